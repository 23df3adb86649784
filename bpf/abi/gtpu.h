/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The user plane of mobile networks: GTP-U tunnels (TS 29.281), and what a packet in one meets (TS 29.244 5.2).
 *
 * A session has a line by the TEID that it is reached under, and one by the address of its subscriber. A line is one
 * cache line: key, decision, usage, rate and quota. What many sessions share stands in a set of rules, which never
 * changes while a line names it: one store of a line's decision switches a session from one set to another, whole.
 */
#ifndef SLUICE_ABI_GTPU_H
#define SLUICE_ABI_GTPU_H

#include <linux/types.h>

#include "limits.h"

#define GTPU_PORT 2152 /* TS 29.281 4.4.2 */

#define GTPU_UPLINK 0
#define GTPU_DOWNLINK 1

/*
 * A line stands in its slot or behind it, no further than the slot's `reach`: so a key that has no line costs as little
 * as one that has. There are GTPU_REACH lines behind the last slot.
 *   slot = ((uint32)key ^ key >> 32) * 0x9e3779b1 >> config.gtpu_uplink_shift        (32-bit arithmetic)
 * of the TEID; by config.gtpu_downlink_shift of the IPv4 address as it stands in packets, or of the first 64 bits of
 * the IPv6 address, since a session may have both.
 */
#define GTPU_REACH 128
#define GTPU_SLOT(KEY, SHIFT) (((__u32)(KEY) ^ (__u32)((__u64)(KEY) >> 32)) * 0x9e3779b1u >> (SHIFT))

/*
 * What becomes of a session's packets, in one word that is read once a packet:
 *   bits 0..15   entry of `gtpu_peers`: where the tunnel's other end is
 *   bits 16..31  entry of `gtpu_rules`; 0 = the line is not in use
 *   bits 32..63  TEID at that peer
 */
#define GTPU_DECISION(TEID, RULES, PEER) ((__u64)(TEID) << 32 | (__u64)(RULES) << 16 | (__u64)(PEER))
#define GTPU_DECISION_PEER(WORD) ((__u32)(WORD) & 0xffff)
#define GTPU_DECISION_RULES(WORD) ((__u32)(WORD) >> 16)
#define GTPU_DECISION_TEID(WORD) ((__u32)((WORD) >> 32))

#define GTPU_FOREVER ((__u64) - 1) /* quota of a line that has none */

/* In `gtpu_uplinks` by TEID, in `gtpu_downlinks` by IPv4 address or by IPv6 prefix: there one of both is 0. */
struct gtpu_line {
	__u32 teid; /* uplink: the key. Downlink: place + 1 of the line that counts and limits this one's packets, or 0
		     */
	__u32 be_addr4;   /* address of the subscriber, 0 = none */
	__u64 be_prefix6; /* first 64 bits of its addresses, 0 = none */
	__u64 decision;
	__u64 bytes; /* of inner IP packets that passed (TS 29.244 5.2.2.2) */
	__u64 packets;
	__u64 arrival; /* theoretical arrival time of the next packet, in ticks (ITU-T I.371, GCRA) */
	__u64 quota;   /* `bytes` may not exceed it */
	__u32 session; /* number that user space knows it by */
	/* of the slot, not of the line that stands there: 8 bits. The others are the block of its session's flows: one
	 * word */
	__u8 reach;
	__u8 flows[3];
};
_Static_assert(sizeof(struct gtpu_line) == 64, "gtpu_line is one cache line");

/*
 * Where in `gtpu_flows` the state of a session's flows stands, in 24 bits, 0 = it has none:
 *   bits 0..2   kind: blocks of kind K have room for 2 << K flows, 1 <= K <= GTPU_BLOCK_KINDS
 *   bits 3..23  which of this kind's blocks, all of which begin at multiples of their room
 * A flow's number is cut to the room, so that a packet that meets a new block with old rules stays in it.
 */
#define GTPU_BLOCK_KINDS 5
#define GTPU_BLOCK(KIND, NUMBER) ((__u32)(NUMBER) << 3 | (__u32)(KIND))
#define GTPU_BLOCK_ROOM(BLOCK) (2u << ((BLOCK) & 7))
#define GTPU_BLOCK_FLOW(BLOCK, FLOW)                                                                                   \
	(((__u32)(BLOCK) >> 3) * GTPU_BLOCK_ROOM(BLOCK) + ((FLOW) & (GTPU_BLOCK_ROOM(BLOCK) - 1)))

/* A tick of the policer is 1/256 ns; a byte costs COST >> 16 ticks. So 64 kb/s to 40 Gb/s are within 1 in 10,000. */
#define GTPU_TICK_SHIFT 8
#define GTPU_COST_SHIFT 16
/*
 * No arrival is further ahead than the tolerance, but for CPUs whose clocks were read one after the other: what seems
 * so has passed, however long ago, or is of a rate before. Bits of ticks, about a second.
 */
#define GTPU_AHEAD_SHIFT 38

#define GTPU_UPLINK_CLOSED 0x0001 /* gate of a QER (TS 29.244 5.4.3) */
#define GTPU_DOWNLINK_CLOSED 0x0002
#define GTPU_UPLINK_DROP 0x0004 /* FAR: DROP (TS 29.244 5.2.1) */
#define GTPU_DOWNLINK_DROP 0x0008
#define GTPU_CONTAINER 0x0010     /* downlink has a PDU Session Container with `qfi` (TS 38.415 5.5.2.1) */
#define GTPU_REFLECTIVE 0x0020    /* and its RQI */
#define GTPU_MARK_UPLINK 0x0040   /* inner packets leave the tunnel with `dscp_uplink` */
#define GTPU_MARK_DOWNLINK 0x0080 /* outer headers have `dscp_downlink`; else the inner packet's */
#define GTPU_TO_PEER 0x0100       /* what comes under the TEID goes on through the tunnel of its decision (N9) */

/* A set of rules. User space shares those that are alike, and re-uses one a second after the last line left it. */
struct gtpu_rules {
	__u64 cost[2];      /* of a byte by direction, see GTPU_COST_SHIFT; 0 = no maximum bit rate */
	__u64 tolerance[2]; /* ticks by which packets may come early: the burst */
	__u32 ifindex;      /* mobile device whose unit inner packets arrive on */
	__u16 flags;        /* GTPU_* */
	__u8 qfi;
	__u8 dscp_uplink;
	__u8 dscp_downlink;
	__u8 zero;
	__u16 filters; /* entry of `gtpu_filters`: its packets are looked at for flows; 0 = for none */
	/* by direction: into which tunnel a copy goes of each packet that passes (FAR: DUPL, TS 29.244 5.2.1) */
	__u32 copy_teid[2];
	__u16 copy_peer[2]; /* entry of `gtpu_peers`; 0 = there are no copies */
	__u8 spare[8];
};
_Static_assert(sizeof(struct gtpu_rules) == 64, "gtpu_rules is one cache line");

/*
 * Flows of a session: PDRs with SDF filters (TS 29.244 5.2.1, TS 23.501 5.7.6.2). A flow is a bit, and the lowest bit
 * is the first by precedence. Each thing that filters ask of a packet has rows of bits, a row for each interval of
 * numbers between two that some flow begins or ends at: what is in all of a packet's rows are the flows that it
 * matches.
 *
 * `remote` is who is not the subscriber. Keys are the first numbers of intervals, in order, the first of them 0; behind
 * the last one it stands again. Where a thing has more than GTPU_NARROW intervals, its GTPU_WIDE_* says so.
 */
#define GTPU_FLOWS 64
#define GTPU_INTERVALS 256
#define GTPU_NARROW 64

#define GTPU_ASKS_ADDRESS 0x01
#define GTPU_ASKS_REMOTE_PORT 0x02
#define GTPU_ASKS_LOCAL_PORT 0x04
#define GTPU_WIDE_REMOTE4 0x10
#define GTPU_WIDE_REMOTE6 0x20
#define GTPU_WIDE_REMOTE_PORT 0x40
#define GTPU_WIDE_LOCAL_PORT 0x80

/* Of a set of rules. User space shares those that are alike, and changes none that some rules name. */
struct gtpu_filters {
	__u64 flows;    /* all that there are */
	__u64 portless; /* those that ask for no port: packets without ports can match them */
	__u32 asks;     /* GTPU_ASKS_*, GTPU_WIDE_* */
	__u32 zero[11];
	__u64 protocols[256];
	__u64 dscps[64];
	__u32 remote4[GTPU_INTERVALS];
	__u64 remote4_flows[GTPU_INTERVALS];
	__u64 remote6_upper[GTPU_INTERVALS];
	__u64 remote6_lower[GTPU_INTERVALS];
	__u64 remote6_flows[GTPU_INTERVALS];
	__u16 remote_port[GTPU_INTERVALS];
	__u64 remote_port_flows[GTPU_INTERVALS];
	__u16 local_port[GTPU_INTERVALS];
	__u64 local_port_flows[GTPU_INTERVALS];
	/* what a flow's packets meet; ifindex and GTPU_TO_PEER are the session's, and so are copies if it has none */
	struct gtpu_rules rules[GTPU_FLOWS];
};
_Static_assert(sizeof(struct gtpu_filters) % 64 == 0, "gtpu_filters are whole cache lines");
_Static_assert(MAX_GTPU_FILTERS <= 0x10000 / GTPU_FLOWS, "the mark of a copy has room for any flow");

/* A flow of a session. */
struct gtpu_flow {
	__u64 arrival[2];   /* by direction, as in gtpu_line */
	__u64 uplink_bytes; /* of inner IP packets that passed */
	__u64 downlink_bytes;
};
_Static_assert(sizeof(struct gtpu_flow) == 32, "gtpu_flow is half a line");

/* The other end of tunnels. All but `nexthop` stays while a line names it. */
struct gtpu_peer {
	__u32 be_local[4]; /* addresses of the outer header; IPv4 stands in the first word */
	__u32 be_remote[4];
	__u32 ifindex; /* device whose unit has the local address: the kernel's FIB is asked as if from there */
	__u16 family;  /* 4 or 6; 0 = not in use */
	__u16 zero;
	__u64 nexthop;       /* written by programs: where the FIB led to, and until when that holds */
	__u64 received;      /* messages from there that are no user data; lost updates do no harm */
	__u64 last_received; /* jiffies of the last one, or of user data */
};
_Static_assert(sizeof(struct gtpu_peer) == 64, "gtpu_peer is one cache line");

#define GTPU_TUNNELS 1 /* a unit of N3, N9 or S1-U: messages to its addresses end here */
#define GTPU_MOBILE 2  /* a mobile interface: inner packets arrive on it, and what is routed to it goes into tunnels */

/* What a unit has besides, by `unit.gtpu`, counted from 1. */
struct gtpu_interface {
	__u32 be_addr6[4]; /* local addresses of tunnels, 0 = none */
	__u32 be_addr4;
	__u8 kind;     /* GTPU_TUNNELS or GTPU_MOBILE */
	__u8 recovery; /* restart counter of Echo Responses (TS 29.281 8.2): always 0 there, kept for path management */
	__u16 zero;
	__u32 spare[2];
};
_Static_assert(sizeof(struct gtpu_interface) == 32, "gtpu_interface is half a line");

#endif
