/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The far end of a mobile interface: what this host itself sends to subscribers comes out here, and answers that the
 * programs make of their packets.
 */
#ifndef SLUICE_GTPU_DEVICE_H
#define SLUICE_GTPU_DEVICE_H

#include "gtpu/work.h"

static __always_inline int gtpu_device_path(hook_ctx *ctx)
{
	struct frame frame = {};
	struct handover *h = handover_here();
	__u32 slot, segments = hook_segments(ctx), ip_len = 0;
	struct unit *unit = unit_find(hook_ifindex(ctx), 0, &slot);
	struct unit_counters *count = unit ? counters_of(unit->index) : NULL;

	if (!h || !count)
		return HOOK_DROP;
	h->unit_index = unit->index;
	h->zone = unit->zone;
	h->l3 = ETH_HLEN;
	h->vlan = 0;
	count->received += segments;
	hook_pull_headers(ctx);
	if (!hook_parse_frame(ctx, &frame) || frame.tagged)
		return gtpu_drop(ctx, h, REASON_GTPU_NO_SESSION);
	struct iphdr *ip = hook_data(ctx) + (frame.l3 & 0x1f);

	if ((void *)(ip + 1) > hook_end(ctx))
		return gtpu_drop(ctx, h, REASON_GTPU_NO_SESSION);
	/* the host's groups and questions are for nobody here */
	if (frame.ethertype == ETH_P_IP)
		ip_len = bpf_ntohs(ip->tot_len);
	else if (frame.ethertype == ETH_P_IPV6)
		ip_len = bpf_ntohs(*((__be16 *)ip + 2)) + sizeof(struct ipv6hdr);
	if (!ip_len || hook_l3_len(ctx, frame.l3, ip_len) < ip_len)
		return gtpu_drop(ctx, h, REASON_GTPU_NO_SESSION);
	count->received_bytes += ip_len;
	return gtpu_enter(&frame, h->unit_index, h->zone, ip_len);
}

#endif
