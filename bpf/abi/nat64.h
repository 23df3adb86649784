/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * NAT64 (RFC 6146): one session of two families. It lives in the IPv6 table; what stands on its IPv4 side is written
 * as IPv4-mapped addresses (RFC 4291 2.5.5.2), which no packet may carry, so both sides have keys in one index:
 *
 *   line 2s      key = the client's tuple            be_new_* = the same after translation, mapped
 *   line 2s + 1  key = what servers answer, mapped   be_new_* = the client's tuple, turned around
 *
 * Both lines have FLOW_NAT64, and MARK_TRANSLATED as all translated ones. A key's `proto` is the one on the wire of its
 * side: ICMPv6 (58) or ICMP (1).
 */
#ifndef SLUICE_ABI_NAT64_H
#define SLUICE_ABI_NAT64_H

#include <linux/types.h>

#define NAT64_MAPPED_WORD 0xffff /* third word of a mapped address; the first two are 0 */

/* RFC 7915 5.1: up to this size IPv4 packets leave with DF clear; RFC 8200 5: the least MTU of IPv6. */
#define NAT64_DF_CLEAR_MAX 1260
#define NAT64_IPV6_MTU_MIN 1280

/*
 * A packet that is to be fragmented (RFC 7915 4), translated and with a Fragment header, on its way to the daemon,
 * which cuts it: XDP cannot send two packets for one. The IPv6 packet stands behind, in a record of one of two sizes.
 */
struct oversize {
	__u32 ifindex; /* device whose neighbour code sends the pieces */
	__u32 when;    /* jiffies */
	__u16 limit;   /* bytes of a piece */
	__u16 length;  /* of the packet */
	__u8 unsummed; /* its transport checksum is still to be computed */
	__u8 spare[3];
};
_Static_assert(sizeof(struct oversize) == 16, "oversize has no hidden padding");

#define OVERSIZE_BUFFER_BYTES (1 << 20)
#define OVERSIZE_USUAL 2048 /* powers of two */
#define OVERSIZE_LARGE 16384

#endif
