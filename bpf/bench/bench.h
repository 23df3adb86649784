/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Layouts shared by the bench's programs and `crates/bench`, which generates its own from here. */
#ifndef SLUICE_BENCH_H
#define SLUICE_BENCH_H

#include <linux/types.h>

/* One packet of the ring: everything that differs from the template, checksums included. */
struct ring_entry4 {
	__u32 be_saddr;
	__u32 be_daddr;
	__u16 be_sport;
	__u16 be_dport;
	__u16 be_ip_check;
	__u16 be_l4_check;
};
_Static_assert(sizeof(struct ring_entry4) == 16, "four ring entries a cache line");

struct ring_entry6 {
	__u32 be_saddr[4];
	__u32 be_daddr[4];
	__u16 be_sport;
	__u16 be_dport;
	__u16 be_l4_check;
	__u16 zero;
};
_Static_assert(sizeof(struct ring_entry6) == 40, "ring_entry6 has no hidden padding");

/* Who may use which port of this host: what a gate needs to find, and no more. */
struct grant_key4 {
	__u32 be_saddr;
	__u16 be_dport;
	__u8 proto;
	__u8 zero;
};

struct grant_key6 {
	__u32 be_saddr[4];
	__u16 be_dport;
	__u8 proto;
	__u8 zero;
};

#define FRAME4_LEN 60 /* 64 bytes on the wire */
#define FRAME6_LEN 78 /* the shortest with a TCP header and 4 bytes of payload */
#define FRAME_ROOM 80

/* Section `.data.bench`, mmapped by the bench. One program runs at a time, on one CPU: no atomics. */
struct bench_state {
	__u64 count;    /* packets made since the bench set it to 0 */
	__u64 last;     /* packet whose start is stamped into last_ns */
	__u64 first_ns; /* start of packet 0 */
	__u64 last_ns;
	__u64 hits; /* of a floor program's lookups or inserts */
	__u64 misses;
	__u64 failures; /* tail calls that did not happen, lookups that must not fail */
	__u32 cursor;   /* next ring entry */
	__u32 ring_size;
	__u32 tcp_seq; /* host order; every lap of the ring moves it on by tcp_step ... */
	__u32 tcp_step;
	__u32 tcp_first; /* ... and back to here before it leaves the window, as acknowledgements stand still */
	__u32 spare;
	__u8 frame[FRAME_ROOM];
	__u8 answer[FRAME_ROOM]; /* of the wrapper of two families: the IPv4 frame */
};

/* Live frames: section `.data.frames`. */
struct frames_state {
	__u64 sent;
	__u64 withheld; /* not yet due: the frame is dropped and made anew */
	__u64 gap_ns;   /* between frames or bursts; 0 = as fast as it goes */
	__u64 next_due;
	__u32 out_ifindex;
	__u32 flows;
	__u32 cursor;
	__u32 stop;
	__u32 burst; /* frames that go behind each that is due */
	__u32 left;  /* of the burst */
	__u8 frame[FRAME_ROOM];
	/* N3 frames: everything before the inner packet, and a session's TEID less the address of its subscriber */
	__u8 outer[64];
	__u32 teid_less_address;
	__u32 spare;
};

#define SINK_CPUS 64
#define SINK_MAGIC 0x62656e63 /* first payload word of a bench frame, network order */

/* One cache line a CPU. */
struct sink_counters {
	__u64 forwarded; /* bench frames whose TTL a gateway has lowered */
	__u64 untouched; /* bench frames with the TTL they were sent with */
	__u64 foreign;   /* anything else: passed to the stack */
	__u64 spare[5];
};
_Static_assert(sizeof(struct sink_counters) == 64, "sink_counters is one cache line");

struct sink_state {
	struct sink_counters cpu[SINK_CPUS];
	__u32 keep; /* bench frames are kept, while there is room */
	__u32 kept;
};

/* A frame as it arrived; its length may be another than what is kept of it. */
struct kept_frame {
	__u32 length;
	__u8 bytes[FRAME4_LEN];
};
_Static_assert(sizeof(struct kept_frame) == 64, "kept_frame is one cache line");

/* What the bare redirect program does with a frame from `in_ifindex`. */
struct bare_port {
	__u32 in_ifindex;
	__u32 out_ifindex;
	__u8 dmac[6];
	__u8 smac[6];
	__u32 zero;
};

struct bare_state {
	struct bare_port port[2];
	__u64 redirected[2];
};

/* What the least fan-out must be told. */
struct fanout_floor {
	__u32 be_listener;
	__u32 be_receivers[3];
	__u16 be_port;
	__u16 be_receiver_port;
	__u32 out_ifindex;
	__u8 dmac[6];
	__u8 smac[6];
	__u32 next;
};

#define FRAME_TTL 64

#endif
