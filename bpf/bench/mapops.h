/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Layouts of the map benchmark, shared with `crates/bench`. */
#ifndef SLUICE_BENCH_MAPOPS_H
#define SLUICE_BENCH_MAPOPS_H

#include <linux/types.h>

/* Section `.data.mapops`: what one run does, and what it saw. `count` of the keys `first..first + range`. */
struct mapops_state {
	__u32 first;
	__u32 range;
	__u32 stride; /* a large prime: keys come in no order that memory has */
	__u32 start;  /* a run goes on where the one before ended */
	__u32 count;
	__u32 none; /* 0 */
	__u64 ns;
	__u64 done;
	__u64 failed;
};

/* As wide as the key of an IPv4 session. */
struct mapops_key {
	__u64 mixed;
	__u64 number;
};

struct mapops_prefix {
	__u32 bits;
	__u32 be_address;
};

#endif
