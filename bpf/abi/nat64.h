/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * NAT64 (RFC 6146): one session of two families. It lives in the IPv6 table; what stands on its IPv4 side is written
 * as IPv4-mapped addresses (RFC 4291 2.5.5.2), which no packet may carry, so both sides have keys in one index:
 *
 *   line 2s      key = the client's tuple            be_new_* = the same after translation, mapped
 *   line 2s + 1  key = what servers answer, mapped   be_new_* = the client's tuple, turned around
 *
 * A key's `proto` is the one on the wire of its side: ICMPv6 (58) or ICMP (1).
 */
#ifndef SLUICE_ABI_NAT64_H
#define SLUICE_ABI_NAT64_H

#include <linux/types.h>

/* Of both lines of such a session: leaves as the other family. Set instead of MARK_TRANSLATED. */
#define MARK_NAT64 0x40

#define NAT64_MAPPED_WORD 0xffff /* third word of a mapped address; the first two are 0 */

/* RFC 7915 5.1: up to this size IPv4 packets leave with DF clear; RFC 8200 5: the least MTU of IPv6. */
#define NAT64_DF_CLEAR_MAX 1260
#define NAT64_IPV6_MTU_MIN 1280

#define NAT64_OLD_WORDS 40 /* of an ICMP error: its header, the quoted IP header, and what is changed behind it */
#define NAT64_NEW_WORDS 44 /* IP header and the same */
#define NAT64_INNER_WORDS 26 /* of a quoted IPv6 header with its extension headers; longer ones are not translated */

/* Of such a session's IPv6 lines: bits of the prefix that holds the server's address (`spare[0]`). */
#define nat64_length spare[0]

/* A packet between the families, on its way through the slow line. */
struct nat64_work {
	__u32 be_outer[10]; /* IP header as it came */
	__u32 be_old[NAT64_OLD_WORDS];
	__u32 be_new[NAT64_NEW_WORDS];
	__u32 be_saddr[4]; /* of the packet as it leaves; IPv4 stands in the last word */
	__u32 be_daddr[4];
	__u16 be_sport;
	__u16 be_dport;
	__u16 inner_words; /* of the quoted IP header */
	__u16 quoted_words; /* behind it, that are changed: 2, or 5 of TCP */
	__u16 old_len;	    /* bytes from the IP header on that `be_new` replaces */
	__u16 new_len;
	__u16 message_len; /* of an ICMP message as it leaves, without IP header */
	__u16 prefix_length;
	__u32 be_peer; /* IPv4 source of this direction, as the session has it */
};

#endif
