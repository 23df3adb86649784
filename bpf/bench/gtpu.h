/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Layouts of the tunnels' harness, see gtpu.bpf.c. */
#ifndef SLUICE_BENCH_GTPU_H
#define SLUICE_BENCH_GTPU_H

#include <linux/types.h>

#define GTPU_INNER 46               /* an IPv4 datagram that fills the shortest frame */
#define GTPU_OUTER (20 + 8 + 8 + 8) /* IPv4, UDP, GTP-U with optional fields, a PDU Session Container */
#define GTPU_UPLINK_LEN (14 + GTPU_OUTER + GTPU_INNER)
#define GTPU_DOWNLINK_LEN (14 + GTPU_INNER)

/* What differs from packet to packet. */
struct gtpu_entry {
	__u32 be_teid;
	__u32 be_saddr; /* of the inner packet */
	__u32 be_daddr;
	__u16 be_sport;
	__u16 be_dport;
	__u16 be_ip_check;
	__u16 zero[3];
};
_Static_assert(sizeof(struct gtpu_entry) == 24, "gtpu_entry is three words");

/* A session of the floor: the headers that its packets get, in one cache line. */
struct gtpu_floor_line {
	__u8 headers[14 + GTPU_OUTER];
	__u8 zero[6];
};
_Static_assert(sizeof(struct gtpu_floor_line) == 64, "gtpu_floor_line is one cache line");

/* Section `.data.tunnels`. */
struct gtpu_state {
	__u64 count;
	__u64 last;
	__u64 first_ns;
	__u64 last_ns;
	__u64 failures;
	__u64 last_clock;
	__u32 cursor;
	__u32 ring_size;
	__u32 first_teid; /* of the floor's sessions */
	__u32 first_subscriber;
	__u32 out_ifindex;
	__u32 zero;
	__u8 frame[128];
	__u8 link[14]; /* addresses of the link that packets leave by */
	__u8 spare[2];
};

#endif
