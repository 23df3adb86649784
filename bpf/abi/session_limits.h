/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How many live sessions an address has: `limit-session` of screens. */
#ifndef SLUICE_ABI_SESSION_LIMITS_H
#define SLUICE_ABI_SESSION_LIMITS_H

#include <linux/types.h>

#define LIMIT_SOURCE 0x1
#define LIMIT_DESTINATION 0x2

/* What a zone's screen allows; 0 = no limit. */
struct zone_limits {
	__u32 source;
	__u32 destination;
	__u32 alarm_only; /* count and log, but admit */
	__u32 spare;
};

/* One address under one of the two, in one zone; told apart by a seeded hash. */
struct limit_slot {
	__u32 tag;
	__u32 count; /* 0 = free */
};

#define LIMIT_SETS 32768
#define LIMIT_SLOTS 15

struct limit_set {
	__u32 lock; /* as a bucket's of the flow index */
	__u32 spare;
	struct limit_slot slots[LIMIT_SLOTS];
};
_Static_assert(sizeof(struct limit_set) == 128, "limit_set is two cache lines");

#endif
