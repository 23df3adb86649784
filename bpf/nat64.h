/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The fast line of NAT64: an established TCP or UDP packet without options or fragments, replayed as the other family.
 * A program of its own, called by the fast one, which stays small. What it does not recognise goes to the slow line.
 */
#ifndef SLUICE_NAT64_H
#define SLUICE_NAT64_H

#include "fast.h"
#include "lib/nat64_headers.h"

/* TTL and protocol were looked at by the fast program, which called this one; sizes were not. */
static __always_inline bool nat64_find4(hook_ctx *ctx, struct replay *r, struct nat64_ip *ip)
{
	struct iphdr *header = hook_data(ctx) + (r->frame.l3 & 0x1f);
	struct flow_key6 key ALIGNED_KEY;
	__u32 line = 0, be_ports;

	if ((void *)(header + 1) > hook_end(ctx) || *(__u8 *)header != 0x45 || (header->frag_off & bpf_htons(0x3fff)) ||
	    header->ttl <= 1 || !csum_ipv4_valid(header))
		return false;
	r->ip_len = bpf_ntohs(header->tot_len);
	if (r->ip_len < sizeof(*header) + sizeof(struct udphdr) || hook_l3_len(ctx, r->frame.l3, r->ip_len) < r->ip_len)
		return false;
	if (!fast_l4(ctx, r, header + 1, header->protocol, sizeof(*header), &be_ports))
		return false;
	/* RFC 7915 4.5: the slow line computes it */
	struct udphdr *udp = (void *)(header + 1);

	if (!r->is_tcp && ((void *)(udp + 1) > hook_end(ctx) || !udp->check))
		return false;
	ip->traffic_class = header->tos;
	ip->hops = header->ttl - 1;
	ip->proto = header->protocol;
	ip->payload = r->ip_len - sizeof(*header);
	__u64 *words = (__u64 *)&key;

	words[0] = words[2] = 0;
	words[1] = (__u64)header->saddr << 32 | bpf_htonl(NAT64_MAPPED_WORD);
	words[3] = (__u64)header->daddr << 32 | bpf_htonl(NAT64_MAPPED_WORD);
	words[4] = key_last_word(be_ports, r->unit->routing_instance, header->protocol);
	r->state = flow_find6(&key, flow_hash6(config.seed, &key), &line, FAST_TRIES);
	r->line = line;
	return r->state && (r->state->flags & FLOW_NAT64);
}

static __always_inline bool nat64_find6(hook_ctx *ctx, struct replay *r, struct nat64_ip *ip)
{
	struct ipv6hdr *header = hook_data(ctx) + (r->frame.l3 & 0x1f);
	struct flow_key6 key ALIGNED_KEY;
	__u32 line = 0, be_ports;

	if ((void *)(header + 1) > hook_end(ctx) || (*(__u8 *)header >> 4) != 6 || header->hop_limit <= 1)
		return false;
	r->ip_len = bpf_ntohs(header->payload_len) + sizeof(*header);
	if (r->ip_len < sizeof(*header) + sizeof(struct udphdr) || hook_l3_len(ctx, r->frame.l3, r->ip_len) < r->ip_len)
		return false;
	if (!fast_l4(ctx, r, header + 1, header->nexthdr, sizeof(*header), &be_ports))
		return false;
	ip->traffic_class = bpf_ntohs(*(__be16 *)header) >> 4;
	ip->hops = header->hop_limit - 1;
	ip->proto = header->nexthdr;
	ip->payload = r->ip_len - sizeof(*header);
	ip->segment_total = r->segment_len - 20;
	for (int i = 0; i < 4; i++)
		((__u64 *)key.be_saddr)[i] = ((__u64 *)&header->saddr)[i];
	((__u64 *)&key)[4] = key_last_word(be_ports, r->unit->routing_instance, header->nexthdr);
	r->state = flow_find6(&key, flow_hash6(config.seed, &key), &line, FAST_TRIES);
	r->line = line;
	return r->state && (r->state->flags & FLOW_NAT64);
}

/* Ports, checksum, headers: the packet is of the other family afterwards. */
static __always_inline bool nat64_rewrite(hook_ctx *ctx, struct replay *r, const struct nat64_ip *ip)
{
	struct flow_line6 *line = bpf_map_lookup_elem(&lines6, &r->line);
	bool to6 = r->frame.ethertype == ETH_P_IP;
	__u32 old_len = to6 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr), l3 = r->frame.l3 & 0x1f, l4 = l3 + old_len;

	if (!line)
		return false;
	__u16 addresses = to6 ? nat64_growth(nat64_sum4(line->key.be_saddr[3], line->key.be_daddr[3]),
					     nat64_sum6(line->be_new_saddr, line->be_new_daddr))
			      : nat64_growth(nat64_sum6(line->key.be_saddr, line->key.be_daddr),
					     nat64_sum4(line->be_new_saddr[3], line->be_new_daddr[3]));
	__u32 be_before = line->key.be_sport | (__u32)line->key.be_dport << 16;
	__u32 be_after = line->be_new_sport | (__u32)line->be_new_dport << 16;
	__u16 ports = nat64_growth(csum_fold_only(csum_add32(0, be_before)), csum_fold_only(csum_add32(0, be_after)));
	__u32 *be_ports = hook_data(ctx) + l4;

	if ((void *)(be_ports + 1) > hook_end(ctx))
		return false;
	*be_ports = be_after;
	hook_l4_change(ctx, l4, r->is_tcp ? offsetof(struct tcphdr, check) : offsetof(struct udphdr, check), addresses,
		       ports, !r->is_tcp);
	if (!hook_change_family(ctx, &r->frame, old_len, 60 - old_len, to6 ? ETH_P_IPV6 : ETH_P_IP))
		return false;
	__u32 *header = hook_data(ctx) + l3;

	if (to6) {
		if ((void *)(header + 10) > hook_end(ctx))
			return false;
		nat64_header6(header, ip, line->be_new_saddr, line->be_new_daddr);
	} else {
		if ((void *)(header + 5) > hook_end(ctx))
			return false;
		nat64_header4(header, ip, line->be_new_saddr[3], line->be_new_daddr[3]);
	}
	return true;
}

static __always_inline int nat64_replay(hook_ctx *ctx, struct replay *r, const struct nat64_ip *ip)
{
	struct flow_state *state = r->state;

	if (state->zone != r->unit->zone || !(state->flags & FLOW_PLAIN) || needs_rejudging(state))
		return GO_SLOW;
	struct nexthop *nexthop = nexthop_at(state->nexthop);
	struct unit_counters *count = counters_of(r->unit->index);
	__u32 segment_len = r->segment_len + (r->frame.ethertype == ETH_P_IP ? 20 : -20);

	if ((state->marks & MARK_GRANTED) && session_refusal(6, r->line, state->marks))
		return GO_SLOW;
	if (!nexthop || !count || !(nexthop->flags & NEXTHOP_RESOLVED) || segment_len > nexthop->mtu)
		return GO_SLOW;
	if (!replay_fits(r))
		return GO_SLOW;
	__u32 segments = hook_segments(ctx);

	replay_account(r, segments);
	count->received += segments;
	count->received_bytes += r->ip_len;
	if (!nat64_rewrite(ctx, r, ip) || !rewrite_link(ctx, &r->frame, nexthop)) {
		count->drops[REASON_REWRITE_FAILED] += segments;
		return HOOK_DROP;
	}
	count->redirected += segments;
	count->redirected_bytes += r->ip_len;
	return hook_redirect(ctx, nexthop->ifindex);
}

static __always_inline int nat64_line(hook_ctx *ctx)
{
	struct nat64_ip ip = {};
	struct replay r;
	__u32 slot;

	if (!hook_parse_frame(ctx, &r.frame))
		return GO_SLOW;
	r.unit = unit_find(hook_ifindex(ctx), r.frame.vlan, &slot);
	if (!r.unit)
		return GO_SLOW;
	/* sessions between two families are of the IPv6 table */
	r.family = 6;
	if (r.frame.ethertype == ETH_P_IP)
		return nat64_find4(ctx, &r, &ip) ? nat64_replay(ctx, &r, &ip) : GO_SLOW;
	if (r.frame.ethertype == ETH_P_IPV6)
		return nat64_find6(ctx, &r, &ip) ? nat64_replay(ctx, &r, &ip) : GO_SLOW;
	return GO_SLOW;
}

#endif
