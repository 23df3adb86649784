/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The far end of a mobile interface: what this host itself sends to subscribers comes out here, answers that the
 * programs make of their packets, and copies (duplicate.h).
 */
#ifndef SLUICE_GTPU_DEVICE_H
#define SLUICE_GTPU_DEVICE_H

#include "gtpu/work.h"

/* What XDP has taken out of a tunnel for the sake of its copy goes on as if it had arrived on the mobile interface. */
static __always_inline int gtpu_go_on(hook_ctx *ctx, const struct handover *h, struct gtpu_work *work,
				      const struct unit *unit, struct unit_counters *count)
{
	__u32 mark = hook_mark(ctx);
	struct ethhdr *eth = hook_data(ctx);
	bool is_whole = (void *)(eth + 1) <= hook_end(ctx);

	if (is_whole && (mark & GTPU_INNER_DSCP))
		is_whole = gtpu_mark(ctx, eth->h_proto == bpf_htons(ETH_P_IP) ? 4 : 6, mark & 0x3f);
	if (!is_whole) {
		count->received += 1;
		return gtpu_drop(ctx, h, REASON_REWRITE_FAILED);
	}
	work->inner = unit->host_ifindex;
	return GO(FAST_INNER);
}

static __always_inline int gtpu_device_path(hook_ctx *ctx)
{
	struct frame frame = {};
	struct handover *h = handover_here();
	struct gtpu_work *work = gtpu_work_here();
	__u32 slot, mark = hook_mark(ctx), segments = hook_segments(ctx), ip_len = 0;
	struct unit *unit = unit_find(hook_ifindex(ctx), 0, &slot);
	struct unit_counters *count = unit ? counters_of(unit->index) : NULL;

	if (!h || !work || !count)
		return HOOK_DROP;
	h->unit_index = unit->index;
	h->zone = unit->zone;
	h->l3 = ETH_HLEN;
	h->vlan = 0;
	hook_pull_headers(ctx);
	if (GTPU_IS_INNER(mark))
		return gtpu_go_on(ctx, h, work, unit, count);
	count->received += segments;
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
	int action = gtpu_enter(&frame, h->unit_index, h->zone, ip_len);

	if (GTPU_IS_COPY(mark))
		h->entry = ENTRY_COPY;
	else if (mark == GTPU_COPIED_MARK)
		h->entry = ENTRY_COPIED;
	h->place = mark;
	return action;
}

#endif
