/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The fast line: parse, one lookup, replay. Everything it does not recognise at once goes to the slow line, which
 * starts over; nothing is decided or counted here before the packet is certain to be replayed.
 */
#ifndef SLUICE_FAST_H
#define SLUICE_FAST_H

#include "root.h"
#include "flow_table.h"
#include "lib/checksum.h"
#include "lib/fanout.h"
#include "lib/grant.h"
#include "lib/nat_rewrite.h"
#include "lib/rewrite.h"
#include "lib/tcp_window.h"

/* What replay needs, whatever the family. Stays in registers and on the stack. */
struct replay {
	struct frame frame;
	struct unit *unit;
	struct flow_state *state;
	__u32 ip_len;
	__u32 segment_len;
	__u32 line;
	__u32 tcp_end;
	__u32 tcp_ack;
	__u16 tcp_window;
	__u8 family;
	bool is_tcp;
};

/* Two keys of one bucket share a tag once in 10,000 buckets, three hardly ever: the slow line looks at all. */
#define FAST_TRIES 2

/* Judge again? Only by the generation that is active, and only so many a tick. */
static __always_inline bool needs_rejudging(const struct flow_state *state)
{
	__u32 word = active, zero = 0;

	if (state->epoch == ACTIVE_EPOCH(word) || ACTIVE_SLOT(word) != config.slot)
		return false;
	struct cpu_memory *memory = bpf_map_lookup_elem(&scratch, &zero);

	if (!memory)
		return false;
	struct tick_budget *budget = &memory->rejudged;
	__u32 now = jiffies_now();

	if (budget->tick != now) {
		budget->tick = now;
		budget->used = 0;
	}
	budget->used++;
	return budget->used <= config.rejudge_per_tick;
}

static __always_inline bool replay_translation(hook_ctx *ctx, const struct replay *r)
{
	if (!(r->state->marks & MARK_TRANSLATED))
		return true;
	return r->family == 4 ? nat_replay4(ctx, r->frame.l3, r->state, r->is_tcp, 0)
			      : nat_replay6(ctx, r->frame.l3, r->state, r->is_tcp);
}

/* The network and transport headers as they go on. */
static __always_inline bool replay_headers(hook_ctx *ctx, const struct replay *r)
{
	if (!(r->state->marks & MARK_TRANSLATED))
		return rewrite_hop(ctx, &r->frame);
	if (r->family == 4)
		return nat_replay4(ctx, r->frame.l3, r->state, r->is_tcp, 1);
	return nat_replay6(ctx, r->frame.l3, r->state, r->is_tcp) && rewrite_hop(ctx, &r->frame);
}

/* Hardly ever: a function of its own keeps the established path small. */
static __noinline int drop_unwritten(__u32 unit_index, __u32 segments)
{
	count_drop(unit_index, REASON_REWRITE_FAILED, segments);
	return HOOK_DROP;
}

static __always_inline int replay_local(hook_ctx *ctx, struct replay *r, struct unit_counters *count, __u32 segments)
{
	count->received += segments;
	count->received_bytes += r->ip_len;
	if (!replay_translation(ctx, r))
		return drop_unwritten(r->unit->index, segments);
	count->delivered_local += segments;
	return hook_to_host(ctx, &r->frame, r->unit);
}

/* A segment outside of the window is the slow line's to refuse. The other direction's line is this one's neighbour. */
static __always_inline bool replay_fits(const struct replay *r)
{
	if (!r->is_tcp || (config.flags & CONFIG_NO_SEQUENCE_CHECK))
		return true;
	struct flow_state *peer = flow_state_at(r->family, r->line ^ 1);

	return peer && tcp_segment_fits(r->tcp_end, r->tcp_ack, true, r->state, peer);
}

/* The packet passes: what its session remembers of it. */
static __always_inline void replay_account(const struct replay *r, __u32 segments)
{
	struct flow_state *state = r->state;

	flow_account(state, jiffies_now(), segments, r->ip_len);
	if (r->is_tcp) {
		if ((__s32)(r->tcp_end - state->tcp_end) > 0)
			state->tcp_end = r->tcp_end;
		tcp_grow_window(state, r->tcp_window);
	}
}

static __always_inline int replay(hook_ctx *ctx, struct replay *r)
{
	struct flow_state *state = r->state;

	/* what leaves as the other family is not replayed here, even where no stage knows of it any more */
	if (state->zone != r->unit->zone || (state->flags & (FLOW_PLAIN | FLOW_NAT64)) != FLOW_PLAIN ||
	    needs_rejudging(state))
		return GO(ADMIT);

	if (grant_is_due(state) && session_refusal(r->family, r->line, state->marks))
		return GO(ADMIT);

	struct nexthop *nexthop = nexthop_at(state->nexthop);
	struct unit_counters *count = counters_of(r->unit->index);
	bool local = state->nexthop == NEXTHOP_LOCAL;

	if (!nexthop || !count)
		return GO(ADMIT);
	if (!local && (!(nexthop->flags & NEXTHOP_RESOLVED) || r->segment_len > nexthop->mtu))
		return GO(ADMIT);
	if (!replay_fits(r))
		return GO(ADMIT);

	__u32 segments = hook_segments(ctx);

	replay_account(r, segments);
	if (local)
		return replay_local(ctx, r, count, segments);

	count->received += segments;
	count->received_bytes += r->ip_len;
	if (!replay_headers(ctx, r) || !rewrite_link(ctx, &r->frame, nexthop))
		return drop_unwritten(r->unit->index, segments);
	count->redirected += segments;
	count->redirected_bytes += r->ip_len;
	return hook_redirect(ctx, nexthop->ifindex);
}

/* Ports, TCP sequence and header length; false = not for the fast line. */
static __always_inline bool fast_l4(hook_ctx *ctx, struct replay *r, void *l4, __u8 proto, __u32 l3_header,
				    __u32 *be_ports)
{
	void *end = hook_end(ctx);
	__u32 headers = l3_header + sizeof(struct udphdr);

	r->is_tcp = false;
	/* the verifier objects to undefined values, also where nobody looks at them */
	r->tcp_end = r->tcp_ack = r->tcp_window = 0;
	if (proto == IPPROTO_TCP) {
		struct tcphdr *tcp = l4;

		if ((void *)(tcp + 1) > end)
			return false;
		__u8 flags = ((__u8 *)tcp)[13];
		__u32 header = (((__u8 *)tcp)[12] >> 4) * 4;

		/* without ACK, or with URG, it is for screens to see */
		if ((flags & (TCP_SYN | TCP_FIN | TCP_RST | TCP_ACK | TCP_URG)) != TCP_ACK || header < sizeof(*tcp) ||
		    l3_header + header > r->ip_len)
			return false;
		headers = l3_header + header;
		r->is_tcp = true;
		r->tcp_end = bpf_ntohl(tcp->seq) + r->ip_len - headers;
		r->tcp_ack = bpf_ntohl(tcp->ack_seq);
		r->tcp_window = bpf_ntohs(tcp->window);
	} else if (proto == IPPROTO_UDP) {
		if (l4 + sizeof(struct udphdr) > end)
			return false;
		if ((config.stage_mask & STAGE_BIT(SCREEN_RATE)) && (r->unit->flags & UNIT_UDP_FLOOD))
			return false;
	} else {
		return false;
	}
	*be_ports = *(__u32 *)l4;
	r->segment_len = hook_segment_len(ctx, r->ip_len, headers);
	return true;
}

/* To the NAT64 program, which is called next on this CPU. */
static __always_inline int nat64_hand_over(const struct replay *r, __u32 be_ports, __u32 line, __u8 wire)
{
	__u32 zero = 0;
	struct cpu_memory *memory = bpf_map_lookup_elem(&scratch, &zero);

	if (!memory)
		return GO(ADMIT);
	struct nat64_handover *to = &memory->nat64;

	to->line = line;
	to->be_ports = be_ports;
	to->ip_len = r->ip_len;
	to->segment_len = r->segment_len;
	to->tcp_end = r->tcp_end;
	to->tcp_ack = r->tcp_ack;
	to->tcp_window = r->tcp_window;
	to->vlan = r->frame.vlan;
	to->tagged = r->frame.tagged;
	to->l3 = r->frame.l3;
	to->unit_index = r->unit->index;
	to->zone = r->unit->zone;
	to->routing_instance = r->unit->routing_instance;
	to->is_tcp = r->is_tcp;
	to->wire = wire;
	return GO(NAT64);
}

static __always_inline struct fanout_listener *fast_listener(hook_ctx *ctx, const struct replay *r, __u8 family,
							     const struct udphdr *udp, const __u32 *be_daddr)
{
	if ((void *)(udp + 1) > hook_end(ctx))
		return NULL;
	return fanout_find(family, be_daddr, udp->dest, r->unit->index);
}

/* What is known of a datagram for a listener; a copy, so that struct replay can stay in registers. */
struct fanout_datagram {
	struct frame frame;
	struct unit *unit;
	__u32 ip_len;
	__u32 be_saddr[4];
	__u8 family;
};

/*
 * A datagram for a listener whose receiver was reached before leaves without a session: one turn, one rewrite. Anything
 * unusual is the slow line's, with its turn. A function of both families: the fast program stays below 16 KiB.
 */
static __noinline int fast_fanout(hook_ctx *ctx, struct fanout_datagram *r, struct fanout_listener *listener)
{
	struct frame frame = r->frame;
	__u8 family = r->family;

	/* the verifier forgets it on the way through memory */
	frame.l3 &= 0x1f;
	__u32 l3 = frame.l3, header = family == 4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	__u32 l4 = l3 + header, zero = 0;
	struct udphdr *udp = hook_data(ctx) + l4;

	if ((void *)(udp + 1) > hook_end(ctx))
		return GO(ADMIT);
	__u32 length = bpf_ntohs(udp->len);

	if (length < sizeof(*udp) || length > r->ip_len - header || r->unit->screens ||
	    (config.stage_mask & STAGE_BIT(SCREEN_RATE)))
		return GO(ADMIT);
	__u32 index = listener->index;
	bool by_turns = listener->balance == FANOUT_ROUND_ROBIN;
	__u32 word = listener->balance == FANOUT_FLOW ? udp->source : 0;
	struct fanout_listener_counters *listener_count = fanout_counters_of(index);
	struct unit_counters *count = counters_of(r->unit->index);
	struct watermarks *marks = bpf_map_lookup_elem(&watermarks, &zero);

	if (!listener_count || !count || !marks)
		return GO(ADMIT);
	__u64 hash = by_turns ? 0 : fanout_hash(family, r->be_saddr, word);
	struct fanout_receiver *to = fanout_pick(listener, hash, by_turns, listener_count);

	if (!to)
		return GO(ADMIT);
	__u64 hop = *(volatile __u64 *)&to->hop;
	__u64 now = (__u64) * (volatile __u32 *)&marks->nexthops_retired << 16 | ACTIVE_EPOCH(active);
	struct nexthop *nexthop = nexthop_at(hop & 0xffff);

	if (hop >> 16 != now || (hop & 0xffff) < NEXTHOP_FIRST || !nexthop)
		return GO(ADMIT);
	if (!(nexthop->flags & NEXTHOP_RESOLVED) ||
	    hook_segment_len(ctx, r->ip_len, header + sizeof(*udp)) > nexthop->mtu)
		return GO(ADMIT);
	__u32 segments = hook_segments(ctx), receiver = to->index;

	if (by_turns)
		fanout_turn(listener, listener_count);
	count->received += segments;
	count->received_bytes += r->ip_len;
	listener_count->received += segments;
	listener_count->received_bytes += r->ip_len;
	if (!fanout_rewrite(ctx, family, l3, l4, to) || !rewrite_forward(ctx, &frame, nexthop)) {
		count_reason(&listener_count->drops, REASON_REWRITE_FAILED, segments);
		return drop_unwritten(r->unit->index, segments);
	}
	fanout_account(receiver, segments, r->ip_len);
	count->redirected += segments;
	count->redirected_bytes += r->ip_len;
	return hook_redirect(ctx, nexthop->ifindex);
}

static __always_inline int fast_ipv4(hook_ctx *ctx, struct replay *r)
{
	struct iphdr *ip = hook_data(ctx) + r->frame.l3;
	struct flow_key4 key ALIGNED_KEY;
	__u32 line = 0, be_ports;

	r->family = 4;
	if ((void *)(ip + 1) > hook_end(ctx))
		return GO(ADMIT);
	if (*(__u8 *)ip != 0x45 || (ip->frag_off & bpf_htons(0x3fff)) || ip->ttl <= 1 || !csum_ipv4_valid(ip))
		return GO(ADMIT);
	/* no session has it, and a flood of it must not wait for the flow table */
	if (ip->saddr == ip->daddr)
		return GO(ADMIT);
	r->ip_len = bpf_ntohs(ip->tot_len);
	if (r->ip_len < sizeof(*ip) + sizeof(struct udphdr) || hook_l3_len(ctx, r->frame.l3, r->ip_len) < r->ip_len)
		return GO(ADMIT);
	if ((config.stage_mask & STAGE_BIT(FANOUT)) && ip->protocol == IPPROTO_UDP) {
		__u32 be_daddr = ip->daddr;
		struct fanout_listener *listener = fast_listener(ctx, r, 4, (void *)(ip + 1), &be_daddr);

		if (listener) {
			struct fanout_datagram datagram = {r->frame, r->unit, r->ip_len, {ip->saddr}, 4};

			return fast_fanout(ctx, &datagram, listener);
		}
	}
	if (!fast_l4(ctx, r, ip + 1, ip->protocol, sizeof(*ip), &be_ports))
		return GO(ADMIT);
	*(__u64 *)&key.be_saddr = *(__u64 *)&ip->saddr;
	((__u64 *)&key)[1] = key_last_word(be_ports, r->unit->routing_instance, ip->protocol);
	r->state = flow_find4(&key, flow_hash4(config.seed, &key), &line, FAST_TRIES);
	r->line = line;
	if ((config.stage_mask & STAGE_BIT(NAT64)) && !r->state)
		return nat64_hand_over(r, be_ports, 0, 4);
	return r->state ? replay(ctx, r) : GO(ADMIT);
}

static __always_inline int fast_ipv6(hook_ctx *ctx, struct replay *r)
{
	struct ipv6hdr *ip = hook_data(ctx) + r->frame.l3;
	struct flow_key6 key ALIGNED_KEY;
	__u32 line = 0, be_ports;

	r->family = 6;
	if ((void *)(ip + 1) > hook_end(ctx))
		return GO(ADMIT);
	if ((*(__u8 *)ip >> 4) != 6 || ip->hop_limit <= 1)
		return GO(ADMIT);
	r->ip_len = bpf_ntohs(ip->payload_len) + sizeof(*ip);
	if (r->ip_len < sizeof(*ip) + sizeof(struct udphdr) || hook_l3_len(ctx, r->frame.l3, r->ip_len) < r->ip_len)
		return GO(ADMIT);
	if ((config.stage_mask & STAGE_BIT(FANOUT)) && ip->nexthdr == IPPROTO_UDP) {
		__u32 be_daddr[4];

		for (int i = 0; i < 4; i++)
			be_daddr[i] = ip->daddr.in6_u.u6_addr32[i];
		struct fanout_listener *listener = fast_listener(ctx, r, 6, (void *)(ip + 1), be_daddr);

		if (listener) {
			struct fanout_datagram datagram = {r->frame, r->unit, r->ip_len, {}, 6};

			for (int i = 0; i < 4; i++)
				datagram.be_saddr[i] = ip->saddr.in6_u.u6_addr32[i];
			return fast_fanout(ctx, &datagram, listener);
		}
	}
	if (!fast_l4(ctx, r, ip + 1, ip->nexthdr, sizeof(*ip), &be_ports))
		return GO(ADMIT);
	for (int i = 0; i < 4; i++)
		((__u64 *)key.be_saddr)[i] = ((__u64 *)&ip->saddr)[i];
	((__u64 *)&key)[4] = key_last_word(be_ports, r->unit->routing_instance, ip->nexthdr);
	r->state = flow_find6(&key, flow_hash6(config.seed, &key), &line, FAST_TRIES);
	r->line = line;
	if ((config.stage_mask & STAGE_BIT(NAT64)) && r->state && (r->state->flags & FLOW_NAT64))
		return nat64_hand_over(r, be_ports, line, 6);
	return r->state ? replay(ctx, r) : GO(ADMIT);
}

static __always_inline int fast_line(hook_ctx *ctx)
{
	struct replay r;
	__u32 slot;

	if (!hook_parse_frame(ctx, &r.frame))
		return GO(ADMIT);
	r.unit = unit_arriving(hook_ifindex(ctx), r.frame.vlan, &slot);
	if (!r.unit)
		return GO(ADMIT);
	/* the slow line knows what to do with frames for others */
	struct ethhdr *eth = hook_data(ctx);

	if ((void *)(eth + 1) > hook_end(ctx) || *(__u32 *)eth->h_dest != *(__u32 *)r.unit->mac ||
	    *(__u16 *)(eth->h_dest + 4) != *(__u16 *)(r.unit->mac + 4))
		return GO(ADMIT);
	if (r.frame.ethertype == ETH_P_IP)
		return fast_ipv4(ctx, &r);
	if (r.frame.ethertype == ETH_P_IPV6)
		return fast_ipv6(ctx, &r);
	return GO(ADMIT);
}

#endif
