/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The fast path of NAT64: an established TCP or UDP packet without options or fragments, replayed as the other family.
 * A program of its own, called by the fast one, which stays small. That has looked at the packet and says what it saw;
 * answers, which are IPv4, cost a second lookup. What is not recognised goes to the slow path.
 */
#ifndef SLUICE_NAT64_PATH_H
#define SLUICE_NAT64_PATH_H

#include "fast.h"
#include "nat64/headers.h"

/* What the IPv4 header says, and the session that the index of IPv6 has for it. */
static __always_inline struct flow_line6 *nat64_of4(hook_ctx *ctx, struct handover *h, struct nat64_ip *ip)
{
	struct iphdr *header = hook_data(ctx) + (h->l3 & 0x1f);
	struct udphdr *udp = (void *)(header + 1);
	__u64 words[5];
	__u32 line = 0;

	/* RFC 7915 4.5: where there is no checksum the slow path computes it; 4: what is to be fragmented goes there
	 * too */
	if ((void *)(udp + 1) > hook_end(ctx) || (!h->is.is_tcp && !udp->check) ||
	    (h->is.segment_len + 20 > generation.lowest_ipv6_mtu && !(header->frag_off & bpf_htons(IPV4_DF))))
		return NULL;
	ip->traffic_class = header->tos;
	ip->hops = header->ttl - 1;
	ip->proto = header->protocol;
	ip->payload = h->is.ip_len - sizeof(*header);
	words[0] = words[2] = 0;
	words[1] = (__u64)header->saddr << 32 | bpf_htonl(NAT64_MAPPED_WORD);
	words[3] = (__u64)header->daddr << 32 | bpf_htonl(NAT64_MAPPED_WORD);
	words[4] = key_last_word(h->is.be_ports, h->routing_instance, header->protocol);
	const struct flow_key6 *key = (const void *)words;

	if (!flow_find6(key, flow_hash6(config.seed, key), &line, FAST_TRIES))
		return NULL;
	h->place = line;
	return bpf_map_lookup_elem(&lines6, &line);
}

static __always_inline struct flow_line6 *nat64_of6(hook_ctx *ctx, struct handover *h, struct nat64_ip *ip)
{
	struct ipv6hdr *header = hook_data(ctx) + (h->l3 & 0x1f);
	__u32 line = h->place;

	if ((void *)(header + 1) > hook_end(ctx))
		return NULL;
	ip->traffic_class = bpf_ntohs(*(__be16 *)header) >> 4;
	ip->hops = header->hop_limit - 1;
	ip->proto = header->nexthdr;
	ip->payload = h->is.ip_len - sizeof(*header);
	ip->segment_total = h->is.segment_len - 20;
	return bpf_map_lookup_elem(&lines6, &line);
}

/*
 * Before the packet changes its family: ports and checksum. The new addresses stand in the pseudo-header as translated
 * ones of one family do; so does what the bytes behind the IP header grow by.
 */
static __always_inline bool nat64_put_transport(hook_ctx *ctx, const struct handover *h, const struct flow_line6 *line,
						__u32 l4)
{
	__u32 *be_ports = hook_data(ctx) + l4;
	bool tcp = h->is.is_tcp;
	__u32 field = tcp ? TCP_CHECK_AT : UDP_CHECK_AT;

	if ((void *)(be_ports + 1) > hook_end(ctx))
		return false;
	*be_ports = *(const __u32 *)&line->be_new_sport;
	return hook_l4_sum(ctx, l4 + field, line->address_growth, line->growth, !tcp, false);
}

static __always_inline bool nat64_to6(hook_ctx *ctx, struct frame *frame, const struct nat64_ip *ip,
				      const struct flow_line6 *line)
{
	if (!hook_change_family(ctx, frame, sizeof(struct iphdr), sizeof(struct ipv6hdr), ETH_P_IPV6, false))
		return false;
	__u32 *header = hook_data(ctx) + frame->l3;

	if ((void *)(header + 10) > hook_end(ctx))
		return false;
	nat64_header6(header, ip, line->be_new_saddr, line->be_new_daddr);
	/* an IPv4 header counts for nothing, this one for all that stands in it */
	hook_sum_grows(ctx, (__u32)header_sum6(header));
	return true;
}

static __always_inline bool nat64_to4(hook_ctx *ctx, struct frame *frame, const struct nat64_ip *ip,
				      const struct flow_line6 *line)
{
	if (!hook_change_family(ctx, frame, sizeof(struct ipv6hdr), sizeof(struct iphdr), ETH_P_IP, false))
		return false;
	__u32 *header = hook_data(ctx) + frame->l3;

	if ((void *)(header + 5) > hook_end(ctx))
		return false;
	nat64_header4(header, ip, line->be_new_saddr[3], line->be_new_daddr[3]);
	/* the kernel has taken off 20 bytes of the sum, and 20 more are written over */
	hook_sum_grows(ctx, (__u16)~behind_sum6(&line->key));
	return true;
}

/* Whether the session may be replayed: as replay() of the fast program asks. */
static __always_inline bool nat64_may_replay(const struct replay *r, const struct handover *h)
{
	struct flow_state *state = r->state;

	if (state->zone != h->zone || (state->flags & (FLOW_PLAIN | FLOW_NAT64)) != (FLOW_PLAIN | FLOW_NAT64) ||
	    needs_reevaluation(state))
		return false;
	if (grant_is_due(state) && session_refusal(6, r->line, 1))
		return false;
	return replay_fits(r);
}

static __always_inline int nat64_replay(hook_ctx *ctx, struct handover *h, struct nat64_ip *ip, struct flow_line6 *line)
{
	bool to6 = h->is.wire == 4;
	/* sessions between two families are of the IPv6 table */
	struct replay r = {
		.is = h->is,
		.frame = {.l3 = h->l3 & 0x1f, .vlan = h->vlan, .tagged = h->tagged},
		.state = &line->state,
		.line = h->place,
		.family = 6,
	};
	struct nexthop *nexthop = nexthop_at(line->state.nexthop);
	struct unit_counters *count = counters_of(h->unit_index);

	if (!nexthop || !count || !(nexthop->flags & NEXTHOP_RESOLVED) ||
	    h->is.segment_len + (to6 ? 20 : -20) > nexthop->mtu || !nat64_may_replay(&r, h))
		return GO(ADMIT);
	__u32 segments = hook_segments(ctx), l4 = r.frame.l3 + (to6 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));

	trace_session(6, r.line);
	replay_account(&r, segments);
	count->received += segments;
	count->received_bytes += r.is.ip_len;
	/* of packets that may be fragmented on their way: no other one of the session has it for long (RFC 6864 4.1) */
	ip->id = line->state.packets + h->is.be_ports;
	if (!nat64_put_transport(ctx, h, line, l4) ||
	    !(to6 ? nat64_to6(ctx, &r.frame, ip, line) : nat64_to4(ctx, &r.frame, ip, line)))
		return drop_unwritten(h->unit_index, segments);
	if (leads_into_tunnel(ctx, nexthop))
		return gtpu_enter(&r.frame, h->unit_index, h->zone, r.is.ip_len);
	if (!rewrite_link(ctx, &r.frame, nexthop))
		return drop_unwritten(h->unit_index, segments);
	count->redirected += segments;
	count->redirected_bytes += r.is.ip_len;
	return hook_redirect(ctx, nexthop->ifindex);
}

static __always_inline int nat64_path(hook_ctx *ctx)
{
	struct nat64_ip ip = {};
	struct handover *h = handover_here();

	if (!h)
		return GO(ADMIT);
	struct flow_line6 *line = h->is.wire == 4 ? nat64_of4(ctx, h, &ip) : nat64_of6(ctx, h, &ip);

	return line ? nat64_replay(ctx, h, &ip, line) : GO(ADMIT);
}

#endif
