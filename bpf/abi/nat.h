/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Address and port translation. Rule-sets are contexts of the classifier; what such a context finds is an index into
 * `nat_rules`, not into `rules`. The order for a first packet (all addresses are those of the session's initiator):
 *
 *   static, else destination NAT   context by ingress unit; matches the tuple as it came
 *   route, policies                original source, translated destination and port
 *   static reverse, else source    context by egress unit, or by ingress and egress unit; matches the same
 *
 * The plan resolves which rule-set of several is the more specific one (interface, zone, routing-instance), so a unit,
 * or a pair of units, has at most one of each kind. What a session is translated to stands in its two lines (flow.h).
 *
 * The stage bits of both NAT stages are set in every variant when there is any rule, and in none otherwise: a session
 * may be re-evaluated from either of its ends.
 */
#ifndef SLUICE_ABI_NAT_H
#define SLUICE_ABI_NAT_H

#include <linux/types.h>

#include "limits.h"

/* By unit index; a context of 0 = none. */
struct nat_unit {
	__u16 static_context;      /* of first packets that arrive here: static NAT, its destination part */
	__u16 destination_context; /* tried where the former finds nothing */
	__u16 reverse_context;     /* of first packets that leave here: static NAT, its source part */
	__u16 source_column;       /* as the unit that packets leave by */
	__u32 source_row;          /* as the unit that they arrive on */
	__u16 reverse_class;       /* the same; added to reverse_context: of static rules that name an instance */
	__u16 zero;
};
_Static_assert(sizeof(struct nat_unit) == 16, "nat_unit is 16 bytes");

/*
 * Contexts of source NAT. Units that all rule-sets treat alike share a row and a column: the cell is source_row of the
 * ingress unit + source_column of the egress unit, NAT_SOURCE_CELLS of them an entry.
 */
#define NAT_SOURCE_CELLS 32
#define MAX_NAT_SOURCES (1 << 17)
struct nat_source {
	__u16 context[NAT_SOURCE_CELLS];
};
_Static_assert(sizeof(struct nat_source) == 64, "nat_source is one cache line");

/* What a rule does. Where one of the first two kinds matches, later rules of its context are not tried. */
#define NAT_OFF 0       /* source-nat off, destination-nat off: no translation */
#define NAT_INTERFACE 1 /* source: to the egress unit's address of the packet's family, ports as `port_*` say */
#define NAT_POOL 2      /* source: to an address (and port) of `pool`; destination: to an address of `pool` */
#define NAT_PREFIX 3    /* the first `target_len` bits become those of be_target, the rest stays */
#define NAT_NPTV6 4     /* the same for a prefix of at most 64 bits, neutral to checksums (RFC 6296 3) */
#define NAT_NAT64 5     /* an IPv6 destination inside the prefix be_match becomes the IPv4 address in it */

#define NAT_RULE_PORT 0x01       /* destination, and static reverse (where it is the source's): the port changes too */
#define NAT_RULE_PORT_RANGE 0x02 /* port_low + n becomes new_port + n; without this every port becomes new_port */

#define NAT_RULE_INSTANCE 0x04 /* destination, static: what was translated is routed in `routing_instance` */

/* 64 bytes, so that a rule lies in one cache line. */
struct nat_rule {
	__u8 kind;       /* NAT_* */
	__u8 flags;      /* NAT_RULE_* */
	__u8 target_len; /* of NAT_PREFIX (a host: 32 or 128) and NAT_NPTV6 */
	__u8 zero;
	__u16 id;               /* counter slot, from 1; allocated once and kept, as policy ids are */
	__u16 pool;             /* NAT_POOL: index in `nat_pools`; NAT_INTERFACE: too, for its ports and flags */
	__u16 port_low;         /* the first matched port of NAT_RULE_PORT_RANGE */
	__u16 new_port;         /* of NAT_RULE_PORT */
	__u16 routing_instance; /* of NAT_RULE_INSTANCE */
	__u16 spare0;
	__u32 be_match[4];  /* NAT_NPTV6: the prefix the address has before; IPv4 stands in the first word */
	__u32 be_target[4]; /* what it has after */
	__u32 spare[4];
};
_Static_assert(sizeof(struct nat_rule) == 64, "nat_rule is one cache line");

#define NAT_POOL_NO_TRANSLATION 0x01 /* `port no-translation`: ports stay; address n of the pool serves host n */
#define NAT_POOL_PRESERVE 0x02       /* the initiator's port is tried first */
#define NAT_POOL_RANDOM 0x04         /* else ports are taken in random order, not one after the other */
#define NAT_POOL_PERSISTENT 0x08     /* `address-persistent`: a source keeps its address, whatever it talks to */
#define NAT_POOL_HOST 0x10           /* addresses of this host: ports of its sockets are left to them */
#define NAT_POOL_OVERFLOW 0x20       /* exhausted, it continues with the pool `overflow` */
#define NAT_POOL_INTERFACE 0x40      /* the addresses are the egress unit's (overflow-pool interface) */
#define NAT_POOL_SHIFT 0x80 /* `host-address-base`: source be_base + n becomes address n; others find no address */

/* `persistent-nat permit` of a rule's pool; 0 = none. */
#define NAT_PERSISTENT_ANY_HOST 1
#define NAT_PERSISTENT_TARGET_HOST 2
#define NAT_PERSISTENT_TARGET_PORT 3

/* Ports in host byte order, inclusive. ICMP echo identifiers are taken from the same range. */
struct nat_pool {
	__u32 first_range; /* index in `nat_ranges` of `ranges` of them, lowest `first` first */
	__u16 ranges;
	__u16 id;        /* counter slot, from 1; allocated once and kept */
	__u32 addresses; /* in all ranges together */
	__u16 port_low;
	__u16 port_high;
	__u8 flags;  /* NAT_POOL_* */
	__u8 family; /* 4 or 6; 0 = both (NAT_POOL_INTERFACE, NAT_INTERFACE) */
	__u16 overflow;
	__u8 persistent; /* NAT_PERSISTENT_* */
	__u8 zero[3];
	__u32 persistent_timeout_s;
	__u32 persistent_sessions; /* max-session-number */
	__u32 be_base[4];
	__u32 spare[4];
};
_Static_assert(sizeof(struct nat_pool) == 64, "nat_pool is one cache line");

/* Consecutive addresses of a pool; no more than 2^32 - 1. */
struct nat_range {
	__u32 be_low[4]; /* IPv4 stands in the first word */
	__u32 first;     /* number within the pool of the lowest address */
	__u32 count;
	__u32 spare[2];
};
_Static_assert(sizeof(struct nat_range) == 32, "nat_range is half a cache line");

/* NAT64 (RFC 6052 2.2). */
struct nat_prefix {
	__u32 be_prefix[4];
	__u8 length; /* 32, 40, 48, 56, 64 or 96 */
	__u8 zero[3];
	__u32 spare[3];
};
_Static_assert(sizeof(struct nat_prefix) == 32, "nat_prefix is half a cache line");

/* By rule id, per CPU. */
struct nat_rule_counters {
	__u64 hits;     /* first packets that the rule matched */
	__u64 sessions; /* of these, sessions recorded */
	__u64 failed;   /* of these, packets dropped: nothing free, or no address */
	__u64 spare;
};
_Static_assert(sizeof(struct nat_rule_counters) == 32, "nat_rule_counters is 32 bytes");

/* By pool id, per CPU. */
struct nat_pool_counters {
	__u64 ports;     /* allocated */
	__u64 exhausted; /* packets that found nothing free */
	__u64 overflow;  /* of these, served by the overflow pool */
	__u64 searched;  /* candidates that were taken */
};
_Static_assert(sizeof(struct nat_pool_counters) == 32, "nat_pool_counters is 32 bytes");

/*
 * Where the search for a free port toward one destination stands. The index of the flow table knows which ports are
 * free; this only saves looking at those that were just given away, and at full destinations again and again.
 */
#define NAT_CURSORS 4096   /* of each CPU */
#define NAT_CURSOR_CPUS 64 /* beyond, two CPUs share them, which costs a try now and then */
struct nat_cursor {
	__u32 tag;      /* of pool address, destination, its port and protocol */
	__u32 position; /* how many candidates were looked at; which is the next depends on the pool's order */
	__u32 misses;   /* one after the other; as many as there are ports means: nothing is free */
	__u32 full_at;  /* jiffies when that was found */
};
_Static_assert(sizeof(struct nat_cursor) == 16, "nat_cursor is 16 bytes");

/* When nothing was free, nothing is looked for again for so long; ports that come free meanwhile wait for it. */
#define NAT_FULL_MS 100

#endif
