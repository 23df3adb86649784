/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A datagram for a listener whose receiver was reached before leaves without a session: one turn, one rewrite. The fast
 * program has found the listener and says what it saw. Anything unusual is the slow path's, with its turn.
 */
#ifndef SLUICE_FANOUT_PATH_H
#define SLUICE_FANOUT_PATH_H

#include "fast.h"
#include "gate/grant.h"

static __always_inline bool fanout_source(hook_ctx *ctx, __u32 l3, __u8 family, __u32 *be_saddr)
{
	struct iphdr *ip = hook_data(ctx) + l3;
	struct ipv6hdr *ip6 = hook_data(ctx) + l3;

	if (family == 4) {
		if ((void *)(ip + 1) > hook_end(ctx))
			return false;
		be_saddr[0] = ip->saddr;
		return true;
	}
	if ((void *)(ip6 + 1) > hook_end(ctx))
		return false;
	for (int i = 0; i < 4; i++)
		be_saddr[i] = ip6->saddr.in6_u.u6_addr32[i];
	return true;
}

/* Grants are looked up by the slow path. */
static __always_inline bool fanout_asks_gate(const struct handover *h)
{
	return (config.stage_mask & STAGE_BIT(GATE)) && demands_grants(h->zone);
}

static __always_inline int fanout_path(hook_ctx *ctx)
{
	struct handover *h = handover_here();
	__u32 be_saddr[4] = {}, zero = 0;

	if (!h)
		return HOOK_DROP;
	__u32 slot = h->place, l3 = h->l3 & 0x1f;
	__u8 family = h->is.wire == 4 ? 4 : 6;
	struct fanout_listener *listener = fanout_listeners_at(slot);
	struct frame frame = {
		.l3 = l3, .ethertype = family == 4 ? ETH_P_IP : ETH_P_IPV6, .vlan = h->vlan, .tagged = h->tagged};
	__u32 header = family == 4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr), l4 = l3 + header;
	struct udphdr *udp = hook_data(ctx) + l4;

	if (!listener || (void *)(udp + 1) > hook_end(ctx))
		return GO(ADMIT);
	__u32 length = bpf_ntohs(udp->len), be_sport = udp->source;

	if (length < sizeof(*udp) || length > h->is.ip_len - header || h->screened ||
	    (config.stage_mask & STAGE_BIT(SCREEN_RATE)) || fanout_asks_gate(h) ||
	    !fanout_source(ctx, l3, family, be_saddr))
		return GO(ADMIT);
	__u32 index = listener->index;
	bool by_turns = listener->balance == FANOUT_ROUND_ROBIN;
	__u32 word = listener->balance == FANOUT_FLOW ? be_sport : 0;
	struct fanout_listener_counters *listener_count = fanout_counters_of(index);
	struct unit_counters *count = counters_of(h->unit_index);
	struct watermarks *marks = bpf_map_lookup_elem(&watermarks, &zero);

	if (!listener_count || !count || !marks)
		return GO(ADMIT);
	__u64 hash = by_turns ? 0 : fanout_hash(family, be_saddr, word);
	struct fanout_receiver *to = fanout_pick(listener, hash, by_turns, listener_count);

	if (!to)
		return GO(ADMIT);
	__u64 hop = *(volatile __u64 *)&to->hop;
	__u64 now = (__u64) * (volatile __u32 *)&marks->nexthops_retired << 16 | ACTIVE_STAMP(active);
	struct nexthop *nexthop = nexthop_at(hop & 0xffff);

	if (hop >> 16 != now || (hop & 0xffff) < NEXTHOP_FIRST || !nexthop)
		return GO(ADMIT);
	if ((nexthop->flags & (NEXTHOP_RESOLVED | NEXTHOP_TUNNEL)) != NEXTHOP_RESOLVED ||
	    h->is.segment_len > nexthop->mtu)
		return GO(ADMIT);
	__u32 segments = hook_segments(ctx), receiver = to->index;

	if (by_turns)
		fanout_turn(listener, listener_count);
	count->received += segments;
	count->received_bytes += h->is.ip_len;
	listener_count->received += segments;
	listener_count->received_bytes += h->is.ip_len;
	if (!fanout_rewrite(ctx, family, l3, l4, to) || !rewrite_forward(ctx, &frame, nexthop)) {
		count_reason(&listener_count->drops, REASON_REWRITE_FAILED, segments);
		return drop_unwritten(h->unit_index, segments);
	}
	fanout_account(receiver, segments, h->is.ip_len);
	count->redirected += segments;
	count->redirected_bytes += h->is.ip_len;
	return hook_redirect(ctx, nexthop->ifindex);
}

#endif
