/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Screens: which ones a unit's zone asks for, and what they saw. The list of screens is the reasons of the stages
 * `screen` and `screen_first` in stages.def. */
#ifndef SLUICE_ABI_SCREEN_H
#define SLUICE_ABI_SCREEN_H

#include <linux/types.h>

#include "counters.h"

/* `screens` of a unit: one bit a reason of the stage `screen`, in their order, and a word about all. */
#define SCREEN_BASE REASON_LAND
#define SCREEN_BIT(ID) (1u << (REASON_##ID - SCREEN_BASE))
#define SCREEN_ALARM_ONLY 0x80000000 /* alarm-without-drop: count and log, but pass */

/* Of one zone, indexed by reason. */
struct screen_counters {
	__u64 hits[REASON_SLOTS];      /* what the screens saw, whether they dropped it or not */
	__u32 logged_at[REASON_SLOTS]; /* jiffies of the last log event: one a second, reason and CPU */
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

/* Limits of one zone, for the stages `screen_rate` and `screen_first`; 0 = that screen is off. */
#define LIMIT_ALARM_ONLY 0x01    /* alarm-without-drop */
#define LIMIT_SPOOFING 0x02      /* the route back must leave through the unit the packet came from ... */
#define LIMIT_SPOOFING_ZONE 0x04 /* ... or through any unit of its zone */
struct screen_limits {
	__u32 flags;      /* LIMIT_* */
	__u32 icmp_flood; /* packets a second, as all down to syn_destination */
	__u32 udp_flood;
	__u32 syn_alarm;
	__u32 syn_attack;
	__u32 syn_source;
	__u32 syn_destination;
	__u32 syn_timeout_s; /* a cookie may come back for this long */
	__u32 ip_sweep_us;   /* microseconds in which ten are too many, as all that follow */
	__u32 tcp_sweep_us;
	__u32 udp_sweep_us;
	__u32 port_scan_us;
	__u32 udp_port_scan_us;
	__u16 white_first; /* white-list of the SYN flood screen: range in `white_terms` */
	__u16 white_count;
	__u32 spare[2];
};
_Static_assert(sizeof(struct screen_limits) == 64, "screen_limits is one cache line");

/* SYNs of this source for this destination know no threshold. IPv4 stands in the first word. */
#define MAX_WHITE_TERMS 1024
#define MAX_WHITE_TERMS_PER_ZONE 64
struct white_family {
	__u32 family;
	__u32 spare[3];
};
struct white_term {
	__u32 be_saddr[4];
	__u32 be_smask[4];
	__u32 be_daddr[4];
	__u32 be_dmask[4];
	struct white_family of; /* in a line of its own */
};
_Static_assert(sizeof(struct white_term) == 80, "white_term has no hidden padding");

/*
 * Packets a second by key. The tag is the key's seeded 64-bit hash: keys that meet in a bucket never share a count. A
 * bucket that is full gives up the cell with the smallest count, so a key is counted too low at worst.
 */
#define RATE_WAYS 4
#define RATE_SHIFT 50 /* of the tag: which bucket */
#define RATE_BUCKETS (1 << (64 - RATE_SHIFT))
struct rate_cell {
	__u64 tag;  /* 0 = none */
	__u64 word; /* jiffies of the first packet of the second << 32 | packets since */
};
struct rate_bucket {
	struct rate_cell cells[RATE_WAYS];
};
_Static_assert(sizeof(struct rate_bucket) == 64, "rate_bucket is one cache line");

/* Different hosts or ports that a source has asked for since `start_us`. */
#define SCAN_LIMIT 10
#define SCAN_WAYS 4 /* cells where one tag may stand */
#define SCAN_SHIFT 52
#define SCAN_CELLS (1 << (64 - SCAN_SHIFT))
struct scan_cell {
	__u64 tag;
	__u64 start_us;         /* microseconds */
	__u64 seen[SCAN_LIMIT]; /* low half of start_us << 32 | host or port; of another start = empty */
	__u32 interval_us;
	__u32 spare[7];
};
_Static_assert(sizeof(struct scan_cell) == 128, "scan_cell is two cache lines");

/* When a zone last answered with a cookie (jiffies, 0 = never): only then are cookies looked for. */
struct cookie_times {
	__u32 sent;
	__u32 spare;
};

#define KNOWN_SOURCE_S 300 /* a source that has returned a cookie is believed so long */

#endif
