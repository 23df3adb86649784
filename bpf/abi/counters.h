/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is counted of one unit: counters.def lists it, and with the drops two equations hold at rest, summed over units
 * (GSO packets counted by segments):
 *   received = redirected + handed_off + delivered_local + decapsulated + gtpu_signals + oversize
 *     + sum(drops of ingress stages)
 *   redirected + handed_off + resolved + unjudged + pieces + replies + duplicated + gtpu_returned + originated
 *     = sent + queued + sum(drops of egress stages) + XDP frames that devices refused
 */
#ifndef SLUICE_ABI_COUNTERS_H
#define SLUICE_ABI_COUNTERS_H

#include <linux/types.h>

/* Reasons are generated from stages.def in the order written there. Their numbers differ from build to build. */
enum reason {
#define STAGE(ID, name, phase, when, help)
#define REASON(STAGE_ID, ID, name, help) REASON_##ID,
#define DENIAL REASON
#include "../stages.def"
#undef STAGE
#undef REASON
#undef DENIAL
	REASON_COUNT,
};

/* One optional stage = one bit of the stage mask. */
enum stage {
#define STAGE(ID, name, phase, when, help) STAGE_##ID,
#define REASON(STAGE_ID, ID, name, help)
#define DENIAL REASON
#include "../stages.def"
#undef STAGE
#undef REASON
#undef DENIAL
	STAGE_COUNT,
};
#define STAGE_BIT(ID) (1u << STAGE_##ID)

/* A quarter of the slots stays empty: so much may be added before anything else has to move. */
#define REASON_SLOTS 256
_Static_assert(4 * REASON_COUNT <= 3 * REASON_SLOTS, "fewer slots than a quarter are empty: double REASON_SLOTS");
_Static_assert(REASON_COUNT <= 0xffff, "a reason has 16 bits of a verdict");

/* What one unit, or whoever else counts, has dropped; indexed by reason. */
struct drop_counters {
	__u64 packets[REASON_SLOTS];
};
_Static_assert(sizeof(struct drop_counters) <= 16384, "half of what a per-CPU map holds at most");

/* Generated from counters.def in the order written there. */
struct unit_counters {
#define COUNTER(name, ROLE, metric, help) __u64 name;
#include "../counters.def"
#undef COUNTER
};
_Static_assert(sizeof(struct unit_counters) <= 16384, "half of what a per-CPU map holds at most");

#endif
