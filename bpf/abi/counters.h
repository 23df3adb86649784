/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counters of one unit. Two equations hold at rest, summed over units (GSO packets counted by segments):
 *   received = redirected + handed_off + delivered_local + sum(drops of ingress stages)
 *   redirected + handed_off + replies + originated = sent + sum(drops of egress stages) + device drops
 */
#ifndef SLUICE_ABI_COUNTERS_H
#define SLUICE_ABI_COUNTERS_H

#include <linux/types.h>

/* Reasons are generated from stages.def in the order written there. */
enum reason {
#define STAGE(ID, name, phase, help)
#define REASON(STAGE_ID, ID, name, help) REASON_##ID,
#include "../stages.def"
#undef STAGE
#undef REASON
	REASON_COUNT,
};

/* One optional stage = one bit of the stage mask. */
enum stage {
#define STAGE(ID, name, phase, help) STAGE_##ID,
#define REASON(STAGE_ID, ID, name, help)
#include "../stages.def"
#undef STAGE
#undef REASON
	STAGE_COUNT,
};
#define STAGE_BIT(ID) (1u << STAGE_##ID)

#define UNIT_REASON_SLOTS 96
_Static_assert(REASON_COUNT <= UNIT_REASON_SLOTS, "more reasons than counter slots");

struct unit_counters {
	__u64 received;
	__u64 received_bytes;
	__u64 redirected; /* sent to another device by this program, counted at the ingress unit */
	__u64 redirected_bytes;
	__u64 handed_off; /* to the kernel's neighbour code, counted at the ingress unit */
	__u64 delivered_local;
	__u64 replies;    /* ICMP errors and resets made here, counted at the ingress unit */
	__u64 originated; /* by this host's own stack, counted at the egress unit */
	__u64 sent;       /* seen leaving by the tc egress program, counted at the egress unit */
	__u64 sent_bytes;
	__u64 sessions; /* created by first packets that arrived here */
	__u64 slow;     /* packets that took the slow line */
	__u64 rejudged;
	__u64 icmp_related;     /* ICMP errors forwarded with their flow */
	__u64 replies_withheld; /* by the rate limit; the packet itself is counted as dropped */
	__u64 events_lost;      /* log events that found the buffer full */
	__u64 drops[UNIT_REASON_SLOTS];
};
_Static_assert(sizeof(struct unit_counters) == 896, "unit_counters has no hidden padding");

#endif
