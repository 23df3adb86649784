/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The flow table: an index (5-tuple -> line, flow_index.h) and preallocated, mmapable records.
 *
 * A session owns two adjacent lines, one a direction: line 2s is the initiator's, line 2s+1 the responder's; `line ^ 1`
 * is the other direction. What an established packet needs stands in its own line's `flow_state`; what only first
 * packets, re-evaluation and `show` need stands in the session's `flow_shared`.
 */
#ifndef SLUICE_ABI_FLOW_H
#define SLUICE_ABI_FLOW_H

#include <linux/types.h>

/* ICMP echo: the identifier stands in the port of the asking side and ICMP_PORT_ECHO in the other, so that a request
 * never matches the line that answers travel in. */
#define ICMP_PORT_ECHO 0x0800

struct flow_key4 {
	__u32 be_saddr;
	__u32 be_daddr;
	__u16 be_sport;
	__u16 be_dport;
	__u16 routing_instance;
	__u8 proto;
	__u8 zero;
};
_Static_assert(sizeof(struct flow_key4) == 16, "flow_key4 is 16 bytes");

struct flow_key6 {
	__u32 be_saddr[4];
	__u32 be_daddr[4];
	__u16 be_sport;
	__u16 be_dport;
	__u16 routing_instance;
	__u8 proto;
	__u8 zero;
};
_Static_assert(sizeof(struct flow_key6) == 40, "flow_key6 is 40 bytes");

#define FLOW_LIVE 0x01        /* the record is in use */
#define FLOW_RESPONDER 0x02   /* this line is the responder's direction */
#define FLOW_FROM_HOST 0x04   /* this direction leaves this host's own stack */
#define FLOW_NAT64 0x08       /* packets of this direction leave as the other family, see nat64.h */
#define FLOW_ANSWERED 0x10    /* of the responder's line: TCP is established, of other protocols an answer was seen */
#define FLOW_PLAIN 0x20       /* fast path may replay: no TCP handshake or teardown pending (always set for non-TCP) */
#define FLOW_OWN_TIMEOUT 0x40 /* of the initiator's line: flow_shared.timeout_s is not 0 */
#define FLOW_CARRY 0x80       /* bit 31 of `packets` when the sweep was here */

/* TCP state of one direction (RFC 9293 section 3.3.2 as seen from the middle). */
#define TCP_DIR_NONE 0
#define TCP_DIR_SYN 1         /* its SYN was seen */
#define TCP_DIR_ESTABLISHED 2 /* its SYN was acknowledged */
#define TCP_DIR_FIN 3         /* its FIN was seen */
#define TCP_DIR_CLOSED 4      /* its FIN was acknowledged */
#define TCP_DIR_RESET 8       /* with one of the above: a reset was seen, and nothing of either side since */

/*
 * `marks` of one direction: its TCP window scale (RFC 7323 2.2), and what replay must do besides forwarding. All but
 * the scale are set before the key is inserted and never change.
 */
#define TCP_SCALE_SHIFT 0x0f
#define TCP_SCALE_MAX 14
#define MARK_TRANSLATED 0x10   /* addresses or ports change to the line's be_new_* */
#define MARK_EXTENDED 0x20     /* the session needs more than its lines: see struct flow_extension */
#define MARK_GRANTEE 0x40      /* read by older programs: packets of this direction are the use of the line's `grant` */
#define TCP_SCALE_OFFERED 0x80 /* its SYN carried the option */
#define TCP_SCALE_BITS (TCP_SCALE_OFFERED | TCP_SCALE_SHIFT)

/* What every packet touches stands in the first 24 bytes: behind an IPv6 key they end its cache line. */
struct flow_state {
	__u16 nexthop;   /* index into `nexthops` */
	__u8 zone;       /* zone this direction must arrive from */
	__u8 marks;      /* TCP_SCALE_*: shift of `window`; MARK_* */
	__u32 last_seen; /* low 32 bits of jiffies */
	__u16 stamp;     /* ACTIVE_STAMP when last judged; another value means: re-evaluate */
	__u8 tcp_state;  /* TCP_DIR_* of this direction */
	__u8 flags;      /* FLOW_* */
	__u32 packets;   /* low 32 bits; the sweep carries into flow_shared.packets_high */
	__u64 bytes;     /* IP bytes */
	__u16 tag;       /* counts re-uses of the record */
	__u16 window;    /* largest TCP window this direction has advertised, in units of 1 << scale bytes */
	__u32 tcp_end;   /* sequence number after the last byte this direction sent */
};
_Static_assert(sizeof(struct flow_state) == 32, "flow_state is 32 bytes");

struct flow_line4 {
	struct flow_key4 key;
	__u32 be_new_saddr;
	__u32 be_new_daddr;
	__u16 be_new_sport;
	__u16 be_new_dport;
	__u32 grant; /* read by older programs, see struct flow_extension */
	struct flow_state state;
};
_Static_assert(sizeof(struct flow_line4) == 64, "flow_line4 is one cache line");

struct flow_line6 {
	struct flow_key6 key;
	struct flow_state state;
	__u32 be_new_saddr[4];
	__u32 be_new_daddr[4];
	__u16 be_new_sport;
	__u16 be_new_dport;
	__u32 grant;          /* as in flow_line4 */
	__u16 address_growth; /* of the Internet checksum's sum, by the new addresses (RFC 1624) */
	__u16 growth;         /* and by the new ports with them */
	__u32 spare[3];
};
_Static_assert(sizeof(struct flow_line6) == 128, "flow_line6 is two cache lines");

struct flow_shared {
	__u32 policy; /* policy id that permitted it; 0 = host-inbound or from this host */
	__u16 from_zone;
	__u16 to_zone;
	__u16 epoch;           /* ACTIVE_EPOCH of the last policy decision */
	__u16 ingress_unit;    /* unit index the first packet arrived on */
	__u32 timeout_s;       /* 0 = default of its protocol and state */
	__u32 created;         /* low 32 bits of jiffies */
	__u32 packets_high[2]; /* how often bit 31 of each line's packet count changed */
	__u32 generation;      /* configuration generation of the last policy decision */
	__u32 rule_flags;      /* RULE_LOG_* and RULE_COUNT of that policy */
	__u32 syn_end[2];      /* sequence number after each side's SYN itself, whatever data it carried */
	__u32 limited;         /* LIMIT_*: what `session_limits` counts it under */
	__u16 nat_destination; /* ids of the NAT rules that matched, 0 = none */
	__u16 nat_source;
	__u32 nat64_length;    /* of a NAT64 session: bits of the prefix that holds the server's address */
	__u32 nat_bindings[2]; /* that gave its source, and its destination; see nat_binding.h */
};
_Static_assert(sizeof(struct flow_shared) == 64, "flow_shared is one cache line");

/*
 * What few sessions need. Both lines of such a one have MARK_EXTENDED and share the record with the session's number,
 * those of IPv6 behind those of IPv4. Nobody else reads or writes one, so nothing frees it either: it holds for the
 * session whose tag it has. The records are there from the first configuration on that makes use of them.
 *
 * Before there were extensions, the mark said that the session lives by the handle in its lines' `grant`. So it is for
 * a session without an extension of its tag, and new ones have both, for programs that know no better.
 */
#define EXTENSION_GRANT 0x01

struct flow_extension {
	__u16 tag;      /* of the session whose record this is */
	__u8 needs;     /* EXTENSION_*; 0 = never written */
	__u8 grant_use; /* bit 0: the initiator's packets are the grant's use, bit 1: the responder's */
	__u32 grant;    /* handle of the grant by which it lives */
	__u32 reserved_tunnel[6];
	__u32 reserved_policer[4];
	__u32 reserved_usage[4];
};
_Static_assert(sizeof(struct flow_extension) == 64, "flow_extension is one cache line");

#endif
