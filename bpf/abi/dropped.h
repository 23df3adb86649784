/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the daemon is told of packets that were dropped, through the ring buffer `dropped`. */
#ifndef SLUICE_ABI_DROPPED_H
#define SLUICE_ABI_DROPPED_H

#include <linux/types.h>

#define DROPPED_BUFFER_BYTES (1 << 18)

/*
 * Drops are told by shares: those of a unit and a reason fall into one of so many, and each has its own rate, which is
 * also what it may have at once. So a flood of one kind neither hides the others nor keeps the daemon busy.
 */
#define DROPPED_SHARES 256
#define DROPPED_RATE 50 /* a second and share */
#define DROPPED_SHARE(unit_index, reason) (((unit_index) * 61 + (reason)) & (DROPPED_SHARES - 1))

/* Bytes of the frame: link and IP headers with their usual extensions, and the ports. */
#define DROPPED_HEAD 128

struct dropped {
	__u32 when;    /* jiffies */
	__u32 ifindex; /* of the device that has it */
	__u32 vlan;    /* VLAN_*; the frame may have its tag no more */
	__u32 segments;
	__u32 untold; /* packets that this CPU has dropped without telling since it last told of one */
	__u32 policy; /* 0 = none was asked, or none matched */
	__u16 reason; /* enum reason */
	__u16 unit;
	__u16 from_zone;
	__u16 to_zone;
	__u16 nat_destination; /* ids of NAT rules */
	__u16 nat_source;
	__u16 be_sport; /* of the flow: fragments have them nowhere else */
	__u16 be_dport;
	__u16 l3; /* where the IP header begins, and the transport header if it is not 0 */
	__u16 l4;
	__u16 length; /* of `head` */
	__u8 proto;   /* behind all extension headers; 0 = not looked at */
	__u8 spare[17];
	__u8 head[DROPPED_HEAD];
};
_Static_assert(sizeof(struct dropped) == 192, "dropped has no hidden padding");

#endif
