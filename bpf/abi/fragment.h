/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Fragments carry ports only in the first of a datagram. What became of it is kept here, for all CPUs, until the
 * datagram is complete or its time is over.
 */
#ifndef SLUICE_ABI_FRAGMENT_H
#define SLUICE_ABI_FRAGMENT_H

#include <linux/types.h>

/* From the first fragment on (RFC 791 3.2 suggests 15 s and more, RFC 8200 4.5 allows 60 s; Linux waits as long). */
#define FRAGMENT_TIMEOUT_S 30

#define FRAGMENT_WAYS 4
#define FRAGMENT_DATAGRAMS 16384
/* Refused datagrams may take so many places of a bucket, and give way to permitted ones. */
#define FRAGMENT_REFUSED_WAYS 2

/* RFC 791 3.2, RFC 8200 4.5: IPv6 tells datagrams apart without the protocol, which then is 0. */
struct fragment_key {
	__u32 be_saddr[4]; /* IPv4 stands in the first word */
	__u32 be_daddr[4];
	__u32 be_id;
	__u16 zone; /* it comes from */
	__u16 routing_instance;
	__u8 proto;
	__u8 family; /* 4 or 6 */
	__u8 zero[6];
};
_Static_assert(sizeof(struct fragment_key) == 48, "fragment_key has no hidden padding");

#define FRAGMENT_SESSION 1 /* belongs to the session, and goes its way */
#define FRAGMENT_RELATED 2 /* ICMP error that travels with the session */
#define FRAGMENT_LOCAL 3   /* to this host, without a session */
#define FRAGMENT_REFUSED 4 /* dropped for `reason` */

/* Values of `tag` that are no datagram's. */
#define FRAGMENT_FREE 0
#define FRAGMENT_BUSY 1 /* a CPU is filling it */

struct fragment_datagram {
	__u64 tag; /* hash of the key; written last */
	struct fragment_key key;
	__u32 first_seen; /* jiffies */
	__u32 line;       /* of the session the first fragment belongs to, in its direction; 0 = none */
	__u64 open_ends;  /* of what has come, each hashed, by exclusive or: where pieces meet is none; 0 = complete */
	__u32 line_tag;   /* of that line: another one means that the session has ended */
	__u32 tcp_seq;    /* sequence number of the datagram's first byte, if it had one */
	__u16 first_end;  /* where the first fragment ends: no other may begin before (RFC 1858, RFC 5722) */
	__u16 be_sport;
	__u16 be_dport;
	__u16 reason; /* enum reason */
	__u8 proto;   /* of the transport header */
	__u8 icmp_type;
	__u8 icmp_code;
	__u8 follow;         /* FRAGMENT_* */
	__u8 session_family; /* 4 or 6: of the table `line` is in */
	__u8 zero[3];
};
_Static_assert(sizeof(struct fragment_datagram) == 96, "fragment_datagram has no hidden padding");

#endif
