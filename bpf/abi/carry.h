/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Counters of an earlier state that are added to those of the present one (bpf/carry). */
#ifndef SLUICE_ABI_CARRY_H
#define SLUICE_ABI_CARRY_H

#include <linux/types.h>

/* Counters of one element, at most. */
#define CARRY_WORDS 8192

/* Where a counter stands in its element then and now, in words. */
struct carry_word {
	__u32 from;
	__u32 to;
};

/* Elements to add. */
struct carry_order {
	__u32 first;
	__u32 end;
	__u32 words; /* of `carry_words` */
	__u32 zero;
};

#endif
