/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Fan-out: listeners found by address and port, their receivers, and the tables that say whose turn it is. */
#ifndef SLUICE_ABI_FANOUT_H
#define SLUICE_ABI_FANOUT_H

#include <linux/types.h>

#include "counters.h"

#define MAX_FANOUT_LISTENERS 64
#define MAX_FANOUT_RECEIVERS 1024
#define MAX_FANOUT_LINES (1 << 14) /* 64 bytes each */

/*
 * Listeners stand in a table in which no two share a slot:
 *   x = the address's words, exclusive-or
 *   slot = ((x * 0x9e3779b1 + be_port * 0x85ebca6b) * multiplier) >> 22       (32-bit arithmetic, 1024 slots)
 * with `multiplier` odd and part of the generation. Address, port and unit are compared, so a miss is a miss.
 */
#define FANOUT_SLOT_SHIFT 22
#define MAX_FANOUT_SLOTS (1 << (32 - FANOUT_SLOT_SHIFT))

#define FANOUT_ROUND_ROBIN 0 /* packet by packet; fragments by their identification */
#define FANOUT_FLOW 1
#define FANOUT_SOURCE 2

struct fanout_listener {
	__u64 table; /* first of its lines << 32 | positions in them: one store changes both; no position = nobody is up
		      */
	__u32 be_addr[4]; /* IPv4 stands in the first word, the rest zero */
	__u16 be_port;
	__u16 unit;   /* that packets arrive on */
	__u16 index;  /* of its counters */
	__u8 family;  /* 4 or 6; 0 = no listener here */
	__u8 balance; /* FANOUT_* */
	__u32 spare[8];
};
_Static_assert(sizeof(struct fanout_listener) == 64, "fanout_listener is one cache line");

struct fanout_receiver {
	/*
	 * Where it was last reached, written by the slow path: nexthops_retired << 32 | stamp << 16 | next hop. Void as
	 * soon as one of the first two is another.
	 */
	__u64 hop;
	__u32 be_addr[4];
	__u16 be_port;
	__u16 index;           /* of its counters */
	__u16 address_delta;   /* one's complement sum of its address less the listener's (RFC 1624) */
	__u16 transport_delta; /* and with the ports */
	__u32 spare[8];
};
_Static_assert(sizeof(struct fanout_receiver) == 64, "fanout_receiver is one cache line");

/* Positions of a table: places in `fanout_receivers`. */
#define FANOUT_LINE_POSITIONS 32
struct fanout_line {
	__u16 receiver[FANOUT_LINE_POSITIONS];
};
_Static_assert(sizeof(struct fanout_line) == 64, "fanout_line is one cache line");

/* received = sum of its receivers' packets + sum(drops), whenever nothing is under way. */
struct fanout_listener_counters {
	__u64 received;
	__u64 received_bytes; /* of IP packets */
	__u64 next;           /* position whose turn it is on this CPU */
	struct drop_counters drops;
};
_Static_assert(sizeof(struct fanout_listener_counters) == 3 * 8 + 8 * REASON_SLOTS,
	       "fanout_listener_counters has no hidden padding");

struct fanout_receiver_counters {
	__u64 packets;
	__u64 bytes;
};

#endif
