/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a trace asks for, and what it is told of each packet: see bpf/trace. */
#ifndef SLUICE_ABI_TRACE_H
#define SLUICE_ABI_TRACE_H

#include <linux/types.h>

/* Where a packet was met. */
#define TRACE_XDP 0
#define TRACE_INGRESS 1 /* tc */
#define TRACE_EGRESS 2

/* What looked at it last. */
#define TRACE_SHORT 0 /* a short path */
#define TRACE_SLOW 1
#define TRACE_HOST 2 /* the egress program */

/* What the stages said. */
#define TRACE_GOES_ON 0
#define TRACE_DROPS 1
#define TRACE_IS_LOCAL 2
#define TRACE_FORWARDS 3 /* to a receiver of fan-out; nobody else was asked */

/* What the packet turned out to be. */
#define TRACE_KNOWN 0x01       /* of a session whose decision stands */
#define TRACE_REEVALUATED 0x02 /* of a session that was judged again */
#define TRACE_NEW 0x04
#define TRACE_CREATED 0x08 /* its session was recorded */
#define TRACE_RELATED 0x10 /* an ICMP error about a session */
#define TRACE_FOR_HOST 0x20
#define TRACE_RESPONDER 0x40  /* in the responder's direction */
#define TRACE_UNRESOLVED 0x80 /* handed to the kernel, which asks for the neighbour */

#define TRACE_HEAD 192 /* bytes of a frame that the filter reads */

struct trace_prefix {
	__u32 be_address[4]; /* IPv4 in the first word, the rest zero */
	__u32 be_mask[4];
	__u32 family; /* 4 or 6; 0 = any address */
};

/* Ports are in host order; 0 = any. */
struct trace_filter {
	struct trace_prefix source; /* source and destination: of this packet, or of one in the other direction */
	struct trace_prefix destination;
	struct trace_prefix either;
	__u16 sport;
	__u16 dport;
	__u16 port;      /* of either side */
	__u16 protocol;  /* 0 = any */
	__u32 by_unit;   /* only units in `trace_units` */
	__u32 by_packet; /* anything but units is asked for */
};

/* Frozen. */
struct trace_config {
	struct trace_filter filter;
	__u32 snaplen;
	__u32 rate;  /* packets a second and CPU */
	__u32 drops; /* only packets that are dropped, as they are then */
};

/* Key of `trace_units`. */
struct trace_unit {
	__u32 ifindex;
	__u32 vlan; /* as in abi/unit.h */
};

struct trace_totals {
	__u64 left_out; /* fitted and came beyond the rate */
	__u64 lost;     /* found the buffer full */
};

/* Followed by `captured` bytes of the frame. Two of a packet, with the same number: as it came, as it left. */
struct trace_event {
	__u64 when;   /* ns of CLOCK_MONOTONIC */
	__u64 number; /* of the CPU's packets */
	__u32 cpu;
	__u32 ifindex;
	__u32 length; /* of the frame */
	__u32 captured;
	__u16 vlan_tci;      /* of a tag beside the frame */
	__u16 be_vlan_proto; /* 0 = none */
	__u32 after;         /* 0 = as it came; what follows is of no meaning then */
	__u32 action;        /* of the hook */
	__u32 hook;
	__u32 path;
	__u32 generation; /* number of the commit that judged it */
	__u32 stage_mask;
	__u32 verdict; /* of the stages: TRACE_GOES_ON and so on */
	__u32 stopped; /* the reason with it */
	__u32 reason;  /* it was dropped for; 0 = it was not, or on a way that leaves none */
	__u32 flags;   /* TRACE_KNOWN and so on */
	__u32 line;    /* of its session; 0 = none */
	__u32 nexthop;
	__u32 policy;
	__u32 route_ifindex; /* device that has the neighbour; 0 = not routed */
	__u32 be_route[4];
	__u16 route_family;
	__u16 unit;
	__u16 from_zone;
	__u16 to_zone;
	__u16 nat_destination;
	__u16 nat_source;
	__u16 cut;
	__u8 family; /* of the session */
	__u8 nat64;
	__u8 spare[4];
};
_Static_assert(sizeof(struct trace_event) == 128, "trace_event has no hidden padding");

#endif
