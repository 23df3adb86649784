/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Policies of one generation: zone pair -> its rules, then the global ones, first match wins. */
#ifndef SLUICE_ABI_POLICY_H
#define SLUICE_ABI_POLICY_H

#include <linux/types.h>

#define ACTION_DENY 0
#define ACTION_PERMIT 1
#define ACTION_REJECT 2

/* Index of a pair: from_zone * MAX_ZONES + to_zone. */
struct zone_pair {
	__u16 context;       /* the pair's own rules; 0 = none */
	__u16 global;        /* tried after them; 0 = none */
	__u8 default_action; /* ACTION_* when nothing matches */
	__u8 zero[3];
};
_Static_assert(sizeof(struct zone_pair) == 8, "zone_pair is 8 bytes");

#define RULE_LOG_INIT 0x08
#define RULE_LOG_CLOSE 0x10
#define RULE_COUNT 0x20

/* What a rule does; classifier.h says how it is found. */
struct rule {
	__u16 policy;        /* policy id: counter slot */
	__u8 action;         /* ACTION_* */
	__u8 flags;          /* RULE_* */
	__u16 timeout_s;     /* inactivity-timeout of all its applications, 0 = default */
	__u16 service_count; /* not 0: its applications differ in it, and these `service_terms` tell */
	__u32 service_first;
	__u32 zero;
};
_Static_assert(sizeof(struct rule) == 16, "rule is a quarter of a cache line");

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
	__u64 sessions; /* sessions permitted, also anew */
	__u64 denied;   /* first packets denied or rejected */
	__u64 packets;  /* of sessions that have ended, where the policy counts */
	__u64 bytes;    /* likewise */
};

#endif
