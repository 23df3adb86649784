/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Layouts shared by the stress program and the test that runs it. */
#ifndef SLUICE_STRESS_H
#define SLUICE_STRESS_H

#include <linux/types.h>

/* One CPU's orders and what came of them. */
struct stress {
	__u64 random;
	__u32 ops;    /* a run */
	__u32 keys;   /* sessions there can be */
	__u32 stable; /* the first of them are never ended */
	__u32 zero;
	__u64 found;
	__u64 missed;
	__u64 stable_lost;
	__u64 torn; /* reads of another session's record */
	__u64 inserted;
	__u64 twins;
	__u64 refused; /* no record, or no slot */
	__u64 busy;
	__u64 ended;
	__u64 not_ended; /* somebody else did */
};

#endif
