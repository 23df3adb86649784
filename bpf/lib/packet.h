/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the slow path knows of a packet. Lives in a per-CPU map, so it holds indices, never pointers. */
#ifndef SLUICE_LIB_PACKET_H
#define SLUICE_LIB_PACKET_H

#include "lib/flow_hash.h"
#include "abi/abi.h"

#define P_MULTICAST 0x00001 /* multicast or broadcast, by MAC or by address */
#define P_FRAGMENT 0x00002
#define P_ICMP_ERROR 0x00004
#define P_OPTIONS 0x00008    /* IPv4 options or IPv6 extension headers are present */
#define P_KNOWN 0x00010      /* belongs to a live session; `nexthop` is its cached next hop */
#define P_REEVALUATE 0x00020 /* belongs to a live session of an older stamp, or without a next hop */
#define P_RELATED 0x00040    /* ICMP error travelling with the session it reports about */
#define P_LOCAL 0x00080      /* for this host */
#define P_RESPONDER 0x00100  /* travels in the responder's direction of its session */
#define P_NEW 0x00200        /* opens a session */
#define P_LATER 0x00400      /* fragment that is not the first: the fragment stage finds its ports */
#define P_TINY 0x00800       /* first fragment without the whole transport header */
#define P_FIRST 0x01000      /* first fragment whose verdict the others of its datagram follow */
#define P_TRANSLATED 0x02000 /* leaves with another tuple: `out*` */
#define P_ALLOCATE 0x04000   /* source address and port are still to be taken from `nat_pool` */
#define P_ROUTED 0x08000  /* `route` is what the FIB said; whether its next hop has an entry is the nexthop stage's */
#define P_CREATED 0x10000 /* this packet recorded its session */
#define P_ATOMIC 0x20000  /* has a Fragment header, and is a whole packet (RFC 6946) */
#define P_MAY_CUT 0x40000 /* IPv4 without DF: who forwards it may fragment it */
#define P_RESUMED 0x80000 /* opens the session of a TCP connection of this host that is older */
#define P_BOUND 0x100000  /* this packet made its source's binding */

/* A verdict: CONTINUE, or what the exit shall do; the reason sits in the low 16 bits. */
#define CONTINUE 0
#define VERDICT_DROP 0x00010000
#define VERDICT_LOCAL 0x00020000
#define VERDICT_REPLY 0x00040000   /* drop, and answer with `reply` */
#define VERDICT_FORWARD 0x00080000 /* the next hop is known, and no further stage is asked */
#define VERDICT_TUNNEL 0x00100000  /* a message of GTP-U: what is in it is looked at as a packet of its own */
#define REASON_OF(verdict) ((verdict) & 0xffff)
#define DROP(ID) (VERDICT_DROP | REASON_##ID)
#define DROP_AND_REPLY(ID) (VERDICT_REPLY | REASON_##ID)

enum reply {
	REPLY_NONE,
	REPLY_TIME_EXCEEDED,
	REPLY_TOO_BIG,
	REPLY_NO_ROUTE,
	REPLY_PROHIBITED,
	REPLY_PORT,
	REPLY_RESET,
	REPLY_SOURCE_ROUTE,
	REPLY_COOKIE, /* SYN and ACK with a cookie */
};

/* What the short paths read of a packet (lib/parse.h). */
struct parsed {
	__u32 be_ports;
	__u32 ip_len;
	__u32 segment_len; /* largest IP packet it becomes on the wire */
	__u32 tcp_end;
	__u32 tcp_ack;
	__u16 tcp_window;
	__u8 proto;
	__u8 wire; /* 4 or 6 */
	bool is_tcp;
	bool plain;
	bool opening;
};

/* The same on its way from the fast program to the next, with what that found. */
struct handover {
	struct parsed is;
	__u32 vlan;
	__u32 place; /* fan-out: slot of the listener; NAT64, GTP-U: line of the session, 0 = not known */
	__u16 l3;
	__u16 unit_index;
	__u16 routing_instance;
	__u16 zone;
	__u8 tagged;
	__u8 screened; /* the unit has screens */
	__u16 l4;      /* of a message of GTP-U: offset of the outer UDP header; 0 = behind a plain IP header */
	__u8 entry;    /* ENTRY_*: what goes into a tunnel */
	__u8 zero[3];
};

#define ENTRY_REPLAY 0 /* a packet of the session at `place`, whose headers are to be rewritten */
#define ENTRY_READY 1  /* a packet that is as it leaves, but for its link header */
#define ENTRY_RELAY 2  /* a message of GTP-U, as it came out of another tunnel */
#define ENTRY_COPIED 3 /* as ENTRY_READY, and its copy was made */
#define ENTRY_COPY 4   /* a copy; `place` is its mark */

/* What programs of GTP-U tell each other of a packet. */
struct gtpu_work {
	__u32 inner; /* device that a packet out of a tunnel is taken to have arrived on; 0 = it came by none */
	__u32 teid;
	__u32 peer;   /* entries of the line's decision, which is read once a packet */
	__u32 mobile; /* device of the mobile interface that the subscriber is behind */
	__u16 mtu;    /* of a packet that is too long: how long one may be */
	__u16 spare;
	__u16 gtp; /* offsets into the frame: of the GTP-U header, and of what follows it and its extensions */
	__u16 body;
	__u16 body_len;
	__u16 length; /* as the GTP-U header says */
	__u16 be_sequence;
	__u16 be_sport; /* of the outer header that is to come */
	__u8 type;
	__u8 flags;      /* first octet of the GTP-U header */
	__u8 unknown;    /* GTPU_UNKNOWN_* */
	__u8 answer;     /* enum gtpu_answer */
	__u8 tos;        /* of the outer header */
	__u8 container;  /* second octet of a PDU Session Container that is to come */
	__u8 inner_wire; /* 4 or 6 */
	__u8 unused;
	__u32 message[12]; /* an answer, from the GTP-U header on */
	__u32 message_len;
	__u32 checked;    /* the outer UDP header has a checksum, or will */
	__u32 copies;     /* so many packets of this CPU were to be copied */
	__u32 place;      /* of a packet out of a tunnel: line of its session, 0 = not known */
	struct parsed is; /* and that packet, where it is known */
};

/* What the kernel's FIB said of a packet. Tables learn of it only once the packet may pass. */
struct route {
	struct nexthop_key key; /* of the neighbour */
	__u32 unit_slot;        /* of the egress unit */
	__u16 unit;             /* and its index */
	__u16 mtu;              /* of the route; 0 = only the unit's counts */
	__u8 dmac[6];
	__u8 resolved; /* `dmac` is known; ROUTE_TUNNEL: none is needed */
	__u8 refused;  /* its zone has asked for too many new neighbours */
};

#define ROUTE_TUNNEL 2

struct packet {
	struct flow_key4 key4 ALIGNED_KEY;
	struct flow_key6 key6 ALIGNED_KEY;
	/* The tuple it leaves with, valid if P_TRANSLATED. As of `key*`, ports stand in both. */
	struct flow_key4 out4 ALIGNED_KEY;
	struct flow_key6 out6 ALIGNED_KEY;
	__u64 hash;       /* of the key, and of the key answers have; set by the session stage */
	__u64 reply_hash; /* only of first packets */
	__u32 ifindex;
	__u32 unit_slot;
	__u32 now;    /* jiffies */
	__u32 active; /* the word, read once */
	struct route route ALIGNED_KEY;
	__u32 flags; /* P_* */
	__u32 line;  /* of the session this packet belongs to */
	__u32 nexthop;
	__u32 rule_policy; /* policy id that decided */
	__u32 timeout_s;
	__u32 tcp_seq;
	__u32 tcp_ack;
	__u32 host_sent; /* if P_RESUMED: sequence numbers after what the host's socket has sent, and got */
	__u32 host_got;
	__u32 screens;   /* SCREEN_BIT()s of what the packet looks like */
	__u32 option_at; /* of the IPv4 header: where its walk stands */
	__u32 cookie;    /* our answer is part of a cookie's exchange; for REPLY_COOKIE its sequence number */
	__u32 verdict;   /* of the stages: through here the verifier forgets which one it was */
	__u32 be_fragment_id;
	__u32 grant;        /* handle of the grant that a new session lives by */
	__u32 line_tag;     /* of `line`, as the first fragment knew it */
	__u32 class_source; /* of the session's forward direction, as far as `classed` says */
	__u32 class_destination;
	__u32 class_service;
	__u32 nat_address[4];  /* what a NAT rule makes of an address */
	__u32 nat_sum;         /* of what a rewrite has changed, for the checksum */
	__u32 nat_looked;      /* candidates for a port */
	__u32 nat_bindings[2]; /* of a first packet: what gives its source, and gave its destination */
	__u32 quote_l4;        /* offset of the transport header that an ICMP error quotes */
	__u32 asked;           /* the device by which the kernel's FIB was asked last */
	__u32 vlan;            /* VLAN_* */
	__u16 ethertype;       /* host byte order */
	__u16 l3;              /* offsets into the frame */
	__u16 l4;
	__u16 ip_len; /* whole IP packet */
	__u16 ip_header_len;
	__u16 segments;    /* GSO */
	__u16 segment_len; /* largest IP packet it becomes on the wire */
	__u16 reply_mtu;
	__u16 cut; /* NAT64: bytes of the fragments that it leaves in; 0 = whole */
	__u16 from_zone;
	__u16 to_zone;
	__u16 unit_index;
	__u16 be_l4_check;
	__u16 payload; /* bytes after the TCP header */
	__u16 tcp_window;
	__u16 mss;             /* of a SYN: the largest that may be announced */
	__u16 tag;             /* of the session's record */
	__u16 fragment_offset; /* bytes of the datagram before this fragment, and in it */
	__u16 fragment_length;
	__u16 nat_destination; /* ids of the NAT rules that matched */
	__u16 nat_source;
	__u16 nat_pool;
	__u16 nat_unit; /* index of the egress unit of the forward direction */
	__u8 family;    /* 4 or 6: of the session */
	__u8 proto;
	__u8 ttl;
	__u8 tcp_flags;
	__u8 icmp_type;
	__u8 icmp_code;
	__u8 reply; /* enum reply */
	__u8 traffic_class;
	__u8 tagged;     /* bytes of tags */
	__u8 rule_flags; /* RULE_* of the policy that decided */
	__u8 fragment_more;
	__u8 fragment_follow;  /* FRAGMENT_* of the first fragment */
	__u8 tcp_scale;        /* of a SYN: TCP_SCALE_* */
	__u8 limited;          /* LIMIT_*: what the session is counted under */
	__u8 classed;          /* CLASSED_* */
	__u8 grant_use;        /* of a new session, as in flow_extension */
	__u8 class_family;     /* CLASSES_*, or 0 of IPv4 and 1 of IPv6 */
	__u8 wire;             /* 4 or 6: of the packet as it came */
	__u8 nat64;            /* leaves as the other family; of a first packet, bits of the prefix */
	__u8 nat_hairpin;      /* its source is translated as if it left where its destination's binding did */
	__u8 nat_predicted;    /* `out*` has the address already that the pool gives first */
	__u16 fanout_listener; /* indices of counters, once the fan-out stage has found them */
	__u16 fanout_receiver;
	__u16 route_instance; /* whose routes decide: of its unit, unless a session or a NAT rule says otherwise */
	__u16 other_port;     /* added to the source port that the kernel's FIB is asked with */
};

#define CLASSED_SOURCE 0x01
#define CLASSED_DESTINATION 0x02
#define CLASSED_SERVICE 0x04
#define CLASSED_ALL 0x07

/*
 * Places of an address or a port in struct packet, so that one function serves both families and all four of them. The
 * tuple of the session's forward direction, whichever way this packet travels:
 *   before translation   source, destination   as the initiator sends them
 *   after it             source, destination   as the responder sees them
 */
#define SIDE_SOURCE 0
#define SIDE_DESTINATION 1
#define AS_SENT 0
#define AS_TRANSLATED 1

/* A mask the verifier understands; every place lies below. */
#define PLACES 0x7f
_Static_assert(offsetof(struct packet, out6) + sizeof(struct flow_key6) <= PLACES, "the tuples come first");
_Static_assert(offsetof(struct packet, key6) == 16 && offsetof(struct packet, out4) == 56 &&
		       offsetof(struct packet, out6) == 72,
	       "out4 and out6 stand apart as key4 and key6 do");

/* The packet's own tuple, or the one it leaves with: which of them, and which side, holds what is asked for. */
static __always_inline __u32 forward_tuple(const struct packet *p, __u32 when, __u32 *side)
{
	__u32 turned = !!(p->flags & P_RESPONDER);

	*side ^= turned;
	return p->flags & P_TRANSLATED ? (when ^ turned) * 56 : 0;
}

static __always_inline __u32 address_place(const struct packet *p, __u32 when, __u32 side)
{
	__u32 tuple = forward_tuple(p, when, &side);

	return tuple + (p->family == 4 ? 4 * side : 16 + 16 * side);
}

static __always_inline __u32 port_place(const struct packet *p, __u32 when, __u32 side)
{
	__u32 tuple = forward_tuple(p, when, &side);

	return tuple + 16 + 32 + 2 * side;
}

static __always_inline const __u32 *address_in(const struct packet *p, __u32 place)
{
	barrier_var(place); /* else clang finds the mask needless, which verifiers before 6.10 do not */
	place &= PLACES;
	barrier_var(place);
	return (const void *)p + place;
}

static __always_inline __u16 be_port_in(const struct packet *p, __u32 place)
{
	barrier_var(place); /* else clang finds the mask needless, which verifiers before 6.10 do not */
	place &= PLACES;
	barrier_var(place);
	return *(const __u16 *)((const void *)p + place);
}

/*
 * RFC 6890 2.2.2: 192.0.0.0/24 is nobody's, but for what was assigned and may be forwarded: the /29 of IPv4 service
 * continuity (RFC 7335), the anycast addresses of PCP and TURN (RFC 7723, RFC 8155).
 */
static __always_inline bool is_unassigned4(__u32 addr)
{
	__u32 host = addr & 0xff;

	return (addr >> 8) == 0xc00000 && host >= 8 && host != 9 && host != 10;
}

/* The tuple that leaves here. */
static __always_inline const struct flow_key4 *leaving4(const struct packet *p)
{
	return p->flags & P_TRANSLATED ? &p->out4 : &p->key4;
}

static __always_inline const struct flow_key6 *leaving6(const struct packet *p)
{
	return p->flags & P_TRANSLATED ? &p->out6 : &p->key6;
}

/* Protocols whose headers begin with two ports: RFC 9260 3.1, RFC 4340 5.1, RFC 3828 3.1 besides TCP and UDP. */
static __always_inline bool has_ports(__u8 proto)
{
	return proto == IPPROTO_TCP || proto == IPPROTO_UDP || proto == IPPROTO_SCTP || proto == IPPROTO_DCCP ||
	       proto == IPPROTO_UDPLITE;
}

/* The shortest header of a protocol with ports: the common header of SCTP, the generic one of DCCP. */
static __always_inline __u32 least_header(__u8 proto)
{
	return proto == IPPROTO_TCP ? 20 : proto == IPPROTO_UDP || proto == IPPROTO_UDPLITE ? 8 : 12;
}

#define EXTENSION_HEADERS_MAX 6

/* Where a header may begin, said so that every verifier sees it: no chain ends beyond. */
#define HEADERS_LINEAR 0x3fff
_Static_assert(ETH_HLEN + 8 + 40 + EXTENSION_HEADERS_MAX * 256 * 8 <= HEADERS_LINEAR, "an offset is never cut short");

/* IPv6 extension headers that say what follows them (RFC 8200 4); ESP ends the chain. */
static __always_inline bool is_extension(__u8 next)
{
	return next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING || next == IPPROTO_DSTOPTS ||
	       next == IPPROTO_FRAGMENT || next == IPPROTO_AH;
}

struct token_bucket {
	__u32 tokens; /* an answer costs config.hz of them */
	__u32 tick;   /* jiffies of the last refill */
	__u32 spare[2];
};

struct tick_budget {
	__u32 tick;
	__u32 used;
};

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10
#define TCP_URG 0x20

#define ICMP4_ECHO_REPLY 0
#define ICMP4_UNREACHABLE 3
#define ICMP4_ECHO 8
#define ICMP4_TIME_EXCEEDED 11
#define ICMP4_PARAMETER 12
#define ICMP6_UNREACHABLE 1
#define ICMP6_TOO_BIG 2
#define ICMP6_TIME_EXCEEDED 3
#define ICMP6_PARAMETER 4
#define ICMP6_ECHO 128
#define ICMP6_ECHO_REPLY 129
#define ICMP6_ND_FIRST 133
#define ICMP6_ND_LAST 137

/* RFC 1122 3.2.2, RFC 4443 2.1. */
static __always_inline bool is_icmp_error(bool v4, __u8 type)
{
	return v4 ? type == ICMP4_UNREACHABLE || type == ICMP4_TIME_EXCEEDED || type == ICMP4_PARAMETER : type < 128;
}

#endif
