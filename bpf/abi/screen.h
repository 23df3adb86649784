/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Screens: which ones a unit's zone asks for, and what they saw. The list of screens is the reasons of the stages
 * `screen` and `screen_first` in stages.def. */
#ifndef SLUICE_ABI_SCREEN_H
#define SLUICE_ABI_SCREEN_H

#include <linux/types.h>

#include "counters.h"

/* `screens` of a unit: one bit a reason of the stage `screen`, in their order, and a word about all. */
#define SCREEN_FIRST REASON_LAND
#define SCREEN_BIT(ID) (1u << (REASON_##ID - SCREEN_FIRST))
#define SCREEN_ALARM_ONLY 0x80000000 /* alarm-without-drop: count and log, but pass */

/* What the screens of one zone saw, whether they dropped it or not; indexed by reason. */
struct screen_counters {
	__u64 hits[UNIT_REASON_SLOTS];
};

/* Jiffies of the last log event: one a second, screen and CPU. */
struct screen_logged {
	__u32 at[UNIT_REASON_SLOTS];
};

/* The last fragment seen of a datagram: the next one must not overlap it. */
#define FRAGMENT_MEMORY 4096
struct fragment_memory {
	__u64 tag;   /* of the datagram; 0 = none */
	__u32 seen;  /* jiffies */
	__u16 first; /* bytes of the datagram it holds: from here ... */
	__u16 end;   /* ... to before here */
};
_Static_assert(sizeof(struct fragment_memory) == 16, "fragment_memory has no hidden padding");

#endif
