/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by the XDP program of fan-out over rings and crates/fanout/src/rings. */
#ifndef RINGS_H
#define RINGS_H

#include <linux/types.h>

#define RINGS_LISTENERS 64

struct rings_config {
	__u32 queues;
	__u32 largest; /* bytes of a frame that its room in the sockets' memory holds */
};

/* What the program writes over the MAC addresses of a frame that it hands over: nobody needs them any more. */
struct rings_mark {
	__u16 slot;
	__u8 network;    /* where the IP header begins */
	__u8 fragment;   /* RINGS_... */
	__u16 transport; /* where what follows it and its options begins */
	__u16 unused;
	__be32 be_id; /* of a fragment */
};

#define RINGS_WHOLE 0
#define RINGS_FIRST 1 /* the first fragment: it has the ports */
#define RINGS_LATER 2

struct rings_listener {
	__be32 be_address[4]; /* IPv4 in the first word */
	__be16 be_port;
	__u16 vlan; /* 0 = without a tag */
	__u8 is_v6;
	__u8 unused[3];
	__u32 slot;
};

/* There are two, so that a change is one switch from one to the other. */
struct rings_table {
	__u32 count;
	struct rings_listener listeners[RINGS_LISTENERS];
};

/* Of a listener on one queue. */
struct rings_counters {
	__u64 taken;     /* handed over to the socket of the queue */
	__u64 too_large; /* more than a frame of the socket's memory holds */
	__u64 unserved;  /* the queue has no socket */
};

#endif
