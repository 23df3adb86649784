/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Header changes of a forwarded packet. Checksums of sockets that left them to the device are not touched. */
#ifndef SLUICE_LIB_REWRITE_H
#define SLUICE_LIB_REWRITE_H

#include "maps.h"

/* One hop less to live (RFC 1812 5.3.1, RFC 8200 3). */
static __always_inline bool rewrite_hop(hook_ctx *ctx, const struct frame *frame)
{
	void *data = hook_data(ctx);
	void *end = hook_end(ctx);

	if (frame->ethertype == ETH_P_IP) {
		struct iphdr *ip = data + frame->l3;

		if ((void *)(ip + 1) > end)
			return false;
		/* RFC 1624: the word of TTL and protocol falls by 0x0100 */
		__u32 check = (__u32)ip->check + bpf_htons(0x0100);

		ip->check = (__u16)(check + (check >= 0xffff));
		ip->ttl--;
	} else {
		struct ipv6hdr *ip = data + frame->l3;

		if ((void *)(ip + 1) > end)
			return false;
		ip->hop_limit--;
		hook_sum_grows(ctx, (__u16)~bpf_htons(1)); /* no checksum in this header makes up for it */
	}
	return true;
}

/* MAC addresses, VLAN tags. */
static __always_inline bool rewrite_link(hook_ctx *ctx, const struct frame *frame, const struct nexthop *nexthop)
{
	void *data = hook_data(ctx);

	if (data + ETH_HLEN > hook_end(ctx))
		return false;
	/* dmac and smac stand side by side in both places; dmac is read in one load, so never torn */
	*(__u64 *)data = *(const volatile __u64 *)nexthop->dmac;
	*(__u32 *)(data + 8) = *(const volatile __u32 *)(nexthop->smac + 2);
	__u32 vlan = nexthop->vlan;

	/* the same tags stay as they are; a priority tag is none */
	return vlan == frame->vlan && (vlan || !frame->tagged) ? true : hook_set_vlan(ctx, frame, vlan);
}

/* One hop: TTL, MAC addresses, VLAN tags. */
static __always_inline bool rewrite_forward(hook_ctx *ctx, const struct frame *frame, const struct nexthop *nexthop)
{
	return rewrite_hop(ctx, frame) && rewrite_link(ctx, frame, nexthop);
}

#endif
