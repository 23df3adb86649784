/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sizes differ between the families: what that means for MTUs and maximum segment sizes. */
#ifndef SLUICE_NAT64_SIZE_H
#define SLUICE_NAT64_SIZE_H

#include "nat64/mapping.h"
#include "maps.h"

#define FRAGMENT_HEADER 8

/*
 * RFC 7915 4: what has no DF and is longer than the path is known to take leaves in fragments. Errors are cut off
 * instead, and a GSO packet's segments are not ours to cut.
 */
static __always_inline bool nat64_is_cut(struct packet *p, __u32 length, __u32 mtu)
{
	__u32 limit = least(mtu, generation.lowest_ipv6_mtu);

	if (p->wire != 4 || !(p->flags & P_MAY_CUT) || (p->flags & P_ICMP_ERROR) || p->segments > 1)
		return false;
	if (length <= limit || length + FRAGMENT_HEADER > OVERSIZE_LARGE)
		return false;
	p->cut = limit;
	return true;
}

/* RFC 7915 4 and 5: a packet that is too long after translation is answered, with an MTU of the family it came in. */
static __always_inline int nat64_check_size(struct packet *p, __u32 mtu)
{
	__u32 header = p->wire == 6 ? 20 : p->flags & P_FRAGMENT ? 48 : 40;
	__u32 length = p->segment_len - p->ip_header_len + header;

	if (p->wire == 4 && (p->flags & P_ICMP_ERROR))
		length = least(length + 20, NAT64_IPV6_MTU_MIN); /* what it quotes grows too, and is cut */
	if (nat64_is_cut(p, length, mtu) || length <= mtu)
		return CONTINUE;
	p->reply = REPLY_TOO_BIG;
	p->reply_mtu = p->wire == 6 ? mtu + 20 : mtu - (header - 20);
	if (p->wire == 6 && p->reply_mtu < NAT64_IPV6_MTU_MIN) {
		/* nobody sends less than this in one piece (RFC 8200 5); fragmenting is not ours */
		if (p->segment_len <= NAT64_IPV6_MTU_MIN)
			return DROP(TOO_BIG);
		p->reply_mtu = NAT64_IPV6_MTU_MIN;
	}
	return DROP_AND_REPLY(TOO_BIG);
}

/* What fits through both links: IPv6 headers take 20 bytes more. */
static __always_inline __u32 nat64_mss(const struct packet *p, const struct nexthop *nexthop)
{
	struct unit *unit = unit_at(p->unit_slot);
	__u32 in = (unit ? unit->mtu : 1500) - (p->wire == 4 ? 40 : 60);
	__u32 mss = least(in, (__u32)nexthop->mtu - (p->wire == 4 ? 60 : 40));

	return generation.tcp_mss ? least(mss, generation.tcp_mss) : mss;
}

#endif
