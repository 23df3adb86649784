/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Policies of one generation: zone pair -> range of rules, first match wins. */
#ifndef SLUICE_ABI_POLICY_H
#define SLUICE_ABI_POLICY_H

#include <linux/types.h>

#define ACTION_DENY 0
#define ACTION_PERMIT 1
#define ACTION_REJECT 2

/* Index of a pair: from_zone * MAX_ZONES + to_zone. Context rules first, then global ones, copied by the plan. */
struct zone_pair {
	__u16 first;
	__u16 count;
	__u8 default_action; /* ACTION_* when nothing matches */
	__u8 zero[3];
};
_Static_assert(sizeof(struct zone_pair) == 8, "zone_pair is 8 bytes");

#define RULE_SOURCE_ANY 0x01 /* both families */
#define RULE_DESTINATION_ANY 0x02
#define RULE_APPLICATION_ANY 0x04
#define RULE_LOG_INIT 0x08
#define RULE_LOG_CLOSE 0x10
#define RULE_COUNT 0x20

/* Ranges index `addresses4`, `addresses6` and `service_terms`. */
struct rule {
	__u16 policy; /* policy id: counter slot */
	__u8 action;  /* ACTION_* */
	__u8 flags;   /* RULE_* */
	__u16 source4_first, source4_count;
	__u16 source6_first, source6_count;
	__u16 destination4_first, destination4_count;
	__u16 destination6_first, destination6_count;
	__u16 service_first, service_count;
	__u16 zero[4];
};
_Static_assert(sizeof(struct rule) == 32, "rule is half a cache line");

/* Inclusive, host byte order. */
struct address4_term {
	__u32 low;
	__u32 high;
};

/* Inclusive; two host-order 64-bit halves, the more significant first. */
struct address6_term {
	__u64 low[2];
	__u64 high[2];
};
_Static_assert(sizeof(struct address6_term) == 32, "address6_term is 32 bytes");

#define SERVICE_ANY_PROTO 0x01
#define SERVICE_ICMP 0x02 /* type and code ranges instead of ports */

/* Inclusive ranges, host byte order. proto is the IP protocol (ICMP 1, ICMPv6 58). */
struct service_term {
	__u8 proto;
	__u8 flags; /* SERVICE_* */
	__u8 icmp_type_low, icmp_type_high;
	__u8 icmp_code_low, icmp_code_high;
	__u16 sport_low, sport_high;
	__u16 dport_low, dport_high;
	__u16 timeout_s; /* inactivity-timeout, 0 = default */
};
_Static_assert(sizeof(struct service_term) == 16, "service_term is 16 bytes");

struct policy_counters {
	__u64 sessions; /* sessions permitted */
	__u64 denied;   /* first packets denied or rejected */
	__u64 packets;  /* of sessions that have ended, where the policy counts */
	__u64 bytes;    /* likewise */
};

#endif
