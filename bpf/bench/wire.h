/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Layouts of the packet generator and its receiver, shared with `crates/bench`. */
#ifndef SLUICE_BENCH_WIRE_H
#define SLUICE_BENCH_WIRE_H

#include <linux/types.h>

/*
 * A frame: Ethernet, IPv4 without options, UDP, and a payload of which the first 18 bytes (all a 64-byte frame has) are
 * magic, flow, lap (how many frames of its flow came before) and the time it was made, 48 bits of nanoseconds. All in
 * network order. What follows, up to the frame's length, is the same tail in every frame.
 */
#define WIRE_HEAD 60
#define WIRE_MAGIC 0x62656e63
#define WIRE_TTL 64
#define WIRE_LONGEST 1514
#define WIRE_ROOM 2048
#define WIRE_SHAPES 12

/* First client port; flow n has the client n % 65536 and the port WIRE_CLIENT_PORT + n / 65536. */
#define WIRE_CLIENT_PORT 1024
#define WIRE_SERVER_PORT 5060
/* The server of flow n: the upper 12 bits of n * WIRE_SERVER_MIX. */
#define WIRE_SERVER_MIX 2654435761u

/* One length of frame, with the sums (RFC 1071) of everything that its frames have in common. */
struct wire_shape {
	__u16 len;
	__u16 be_ip_len;
	__u16 be_udp_len;
	__u16 zero;
	__u32 ip_sum;
	__u32 udp_sum;
};
_Static_assert(sizeof(struct wire_shape) == 16, "wire_shape has no hidden padding");

/* Fractions of a nanosecond in `gap`: 3 million a second are 333 1/3 ns apart. */
#define WIRE_GAP_SHIFT 16

/* Section `.data.order`: what to send, and how far that is. One generator runs at a time, on one CPU: no atomics. */
struct wire_order {
	__u64 limit;
	__u64 gap; /* 0 = as fast as it goes */
	__u32 flows;
	__u32 stride; /* has no divisor in common with `flows`: every lap visits each of them once */
	__u32 client_net;
	__u32 server_net; /* host order, lower 16 bits free */
	__u32 reply;      /* from server to client */
	__u32 shape_count;
	__u32 stamped;
	__u32 from_pass; /* replay: keep the capture's own times */
	__u8 ethernet[16];
	struct wire_shape shapes[WIRE_SHAPES];

	__u64 sent;
	__u64 bytes;
	__u64 withheld; /* not yet due: the frame is dropped and made anew */
	__u64 late_ns;  /* slept over: the schedule was moved on by as much, nothing was sent in a burst */
	__u64 start_ns;
	__u64 last_ns;
	__u64 next; /* due time since start_ns, times 2^WIRE_GAP_SHIFT */
	__u32 cursor;
	__u32 lap;
	__u32 shape;
	__u32 failures;
};

/* What a receiver knows of a flow: the lap after the highest, and which of the 64 laps below it have come. */
struct wire_flow {
	__u64 window;
	__u32 next;
	__u32 zero;
};

/* Two cache lines a CPU. */
struct wire_counters {
	__u64 received; /* bench frames, corrupt ones included */
	__u64 bytes;
	__u64 distinct;
	__u64 duplicates;
	__u64 reordered; /* RFC 4737: after one of its flow that was sent later */
	__u64 extent;    /* the most that one came late, in frames of its flow */
	__u64 stale;     /* later than the window: a duplicate or very late */
	__u64 bad_ip;    /* header checksum */
	__u64 bad_udp;   /* checksum over addresses, header and payload */
	__u64 bad_tail;  /* a payload that is not the one sent, under a checksum that is right */
	__u64 bad_length;
	__u64 forwarded; /* with a lower TTL than they were sent with */
	__u64 foreign;   /* anything else: passed to the stack */
	__u64 first_ns;
	__u64 last_ns;
	__u64 spare;
};
_Static_assert(sizeof(struct wire_counters) == 128, "wire_counters is two cache lines");

#define WIRE_CPUS 64
/* Per octave of nanoseconds 16 buckets: a value is known within 6 %. */
#define WIRE_SUB_BITS 4
#define WIRE_BUCKETS 640

/* Section `.data.inbox` */
struct wire_inbox {
	__u32 flows;
	__u32 timed;               /* read the clock for every frame */
	__u16 tail_sum[WIRE_ROOM]; /* of a frame of that length, RFC 1071 */
	struct wire_counters cpu[WIRE_CPUS];
};

struct wire_latency {
	__u32 bucket[WIRE_BUCKETS];
};

/* A frame of a capture. */
struct wire_record {
	__u64 due_ns; /* since the first */
	__u32 len;
	__u32 zero;
	__u8 bytes[WIRE_ROOM - 16];
};
_Static_assert(sizeof(struct wire_record) == WIRE_ROOM, "a record is half a page");

#endif
