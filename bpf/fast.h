/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The fast path: parse, one lookup, replay. Everything it does not recognise at once goes to the slow path, which
 * starts over; nothing is decided or counted here before the packet is certain to be replayed.
 */
#ifndef SLUICE_FAST_H
#define SLUICE_FAST_H

#include "root.h"
#include "flow_table.h"
#include "lib/checksum.h"
#include "fanout/listener.h"
#include "gtpu/lines.h"
#include "gate/grant.h"
#include "nat/rewrite.h"
#include "lib/parse.h"
#include "lib/rewrite.h"
#include "lib/tcp_window.h"

/* What replay needs, whatever the family. Stays in registers and on the stack. */
struct replay {
	struct parsed is;
	struct frame frame;
	struct unit *unit;
	struct flow_state *state;
	__u32 line; /* of the session; of a datagram for fan-out the slot of its listener */
	__u8 family;
};

/* Two keys of one bucket share a tag once in 10,000 buckets, three hardly ever: the slow path looks at all. */
#define FAST_TRIES 2

/* Room for one more of this CPU's in this tick? */
__noinline int reevaluate_now(void)
{
	__u32 zero = 0;
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
	return budget->used <= config.reevaluated_per_tick;
}

/* Judge again? Only by the generation that is active, and only so many a tick, but for those whose next hop is dead. */
static __always_inline bool needs_reevaluation(const struct flow_state *state)
{
	__u32 word = active;

	if (state->stamp == ACTIVE_STAMP(word) || ACTIVE_SLOT(word) != config.slot)
		return false;
	struct nexthop *nexthop = nexthop_at(state->nexthop);

	return (nexthop && (nexthop->flags & NEXTHOP_LEFT)) || reevaluate_now();
}

/* The network and transport headers as they go on, one hop less to live where they do. */
static __always_inline bool replay_headers(hook_ctx *ctx, const struct replay *r, bool hops)
{
	if (!(r->state->marks & MARK_TRANSLATED))
		return !hops || rewrite_hop(ctx, &r->frame);
	if (!nat_replay(ctx, r->frame.l3, r->state, r->line, r->family, r->is.is_tcp, hops))
		return false;
	return r->family == 4 || !hops || rewrite_hop(ctx, &r->frame);
}

/* Hardly ever: a function of its own keeps the established path small. */
static __noinline int drop_unwritten(__u32 unit_index, __u32 segments)
{
	count_drop(unit_index, REASON_REWRITE_FAILED, segments);
	trace_reason(REASON_REWRITE_FAILED);
	return HOOK_DROP;
}

/* A segment outside of the window is the slow path's to refuse. The other direction's line is this one's neighbour. */
static __always_inline bool replay_fits(const struct replay *r)
{
	if (!r->is.is_tcp || (generation.flags & GENERATION_NO_SEQUENCE_CHECK))
		return true;
	struct flow_state *peer = flow_state_at(r->family, r->line ^ 1);

	return peer && tcp_segment_fits(r->is.tcp_end, r->is.tcp_ack, true, r->state, peer);
}

/* The packet passes: what its session remembers of it. */
static __always_inline void replay_account(const struct replay *r, __u32 segments)
{
	struct flow_state *state = r->state;

	flow_account(state, jiffies_now(), segments, r->is.ip_len);
	if (r->is.is_tcp) {
		if ((__s32)(r->is.tcp_end - state->tcp_end) > 0)
			state->tcp_end = r->is.tcp_end;
		tcp_grow_window(state, r->is.tcp_window);
	}
}

static __always_inline int replay(hook_ctx *ctx, struct replay *r)
{
	struct flow_state *state = r->state;

	/* what leaves as the other family is not replayed here, even where no stage knows of it any more */
	if (state->zone != r->unit->zone || (state->flags & (FLOW_PLAIN | FLOW_NAT64)) != FLOW_PLAIN ||
	    needs_reevaluation(state))
		return GO(ADMIT);

	if (grant_is_due(state) && session_refusal(r->family, r->line, 1))
		return GO(ADMIT);

	struct nexthop *nexthop = nexthop_at(state->nexthop);
	struct unit_counters *count = counters_of(r->unit->index);
	bool local = state->nexthop == NEXTHOP_LOCAL;

	if (!nexthop || !count)
		return GO(ADMIT);
	if (!local && (!(nexthop->flags & NEXTHOP_RESOLVED) || r->is.segment_len > nexthop->mtu))
		return GO(ADMIT);
	if (!replay_fits(r))
		return GO(ADMIT);

	__u32 segments = hook_segments(ctx);

	/* the program that puts it into its tunnel replays it, too: this one stays small */
	if (leads_into_tunnel(ctx, nexthop))
		return GO(GTPU_ENCAP);
	trace_session(r->family, r->line);
	replay_account(r, segments);
	count->received += segments;
	count->received_bytes += r->is.ip_len;
	if (!replay_headers(ctx, r, !local) || (!local && !rewrite_link(ctx, &r->frame, nexthop)))
		return drop_unwritten(r->unit->index, segments);
	if (local) {
		count->delivered_local += segments;
		return hook_to_host(ctx, &r->frame, r->unit);
	}
	count->redirected += segments;
	count->redirected_bytes += r->is.ip_len;
	return hook_redirect(ctx, nexthop->ifindex);
}

/* Where screens count, they must see what they count; fan-out comes before the gate. */
static __always_inline bool refuses_ungranted(void)
{
	__u32 before = STAGE_BIT(SCREEN_RATE) | STAGE_BIT(SCREEN_FIRST) | STAGE_BIT(FANOUT);

	return (config.stage_mask & (STAGE_BIT(GATE) | before)) == STAGE_BIT(GATE) &&
	       !(config.flags & CONFIG_KERNEL_INDEX);
}

/* To the program that is called next on this CPU. */
static __always_inline bool hand_over(const struct replay *r)
{
	struct handover *to = handover_here();

	if (!(config.stage_mask & (STAGE_BIT(FANOUT) | STAGE_BIT(NAT64) | STAGE_BIT(GATE) | STAGE_BIT(GTPU))) || !to)
		return false;
	to->is = r->is;
	to->vlan = r->frame.vlan;
	to->place = r->line;
	to->l3 = r->frame.l3;
	to->tagged = r->frame.tagged;
	to->unit_index = r->unit->index;
	to->zone = r->unit->zone;
	to->routing_instance = r->unit->routing_instance;
	to->screened = !!r->unit->screens;
	if (config.stage_mask & STAGE_BIT(GTPU))
		to->l4 = to->entry = 0;
	return true;
}

/* No session is known for it. */
static __always_inline int fast_miss(const struct replay *r)
{
	if (refuses_ungranted() && r->is.opening && !r->unit->screens && demands_grants(r->unit->zone))
		return GO(UNGRANTED);
	return GO(ADMIT);
}

/* Datagrams for a listener of fan-out. */
static __always_inline bool fast_listens(hook_ctx *ctx, struct replay *r)
{
	struct iphdr *ip = hook_data(ctx) + r->frame.l3;
	struct ipv6hdr *ip6 = hook_data(ctx) + r->frame.l3;
	__u32 place, be_daddr[4] = {};

	if (!(config.stage_mask & STAGE_BIT(FANOUT)) || r->is.is_tcp)
		return false;
	if (r->family == 4) {
		if ((void *)(ip + 1) > hook_end(ctx))
			return false;
		be_daddr[0] = ip->daddr;
	} else {
		if ((void *)(ip6 + 1) > hook_end(ctx))
			return false;
		for (int i = 0; i < 4; i++)
			be_daddr[i] = ip6->daddr.in6_u.u6_addr32[i];
	}
	if (!fanout_find(r->family, be_daddr, r->is.be_ports >> 16, r->unit->index, &place))
		return false;
	r->line = place;
	return true;
}

/*
 * Messages of GTP-U where tunnels end: whether this one does, the next program says. What screens are to see goes the
 * long way round. No tunnel ends on a mobile interface: what subscribers send to that port are datagrams like others.
 */
static __always_inline bool fast_tunnels(const struct replay *r, const bool inner)
{
	return (config.stage_mask & STAGE_BIT(GTPU)) && !inner && r->unit->gtpu && !r->is.is_tcp &&
	       r->is.be_ports >> 16 == bpf_htons(GTPU_PORT) && !r->unit->screens;
}

/* What no short path may take although its headers are in order. */
static __always_inline bool fast_passes_on(const struct replay *r)
{
	bool counted = (config.stage_mask & STAGE_BIT(SCREEN_RATE)) && (r->unit->flags & UNIT_UDP_FLOOD);

	return r->is.is_tcp ? !r->is.plain : counted;
}

#define REPLAY 1 /* its session is known */

/*
 * A subscriber's line, where packets may be for one: it comes from memory while the session does. A read of it, for a
 * store would take it away from other CPUs. For IPv6 it would be more machine code than the established path may have.
 */
static __always_inline void fast_expect_line(const struct unit *unit, __u32 be_daddr)
{
	if (!(config.stage_mask & STAGE_BIT(GTPU)) || unit->gtpu)
		return;
	const struct gtpu_line *line = downlink_at(GTPU_SLOT(be_daddr, config.gtpu_downlink_shift & 31));

	if (line)
		(void)gtpu_decision_of(line);
}

/* The session of a packet whose network header is at `l3`; false = it ends before that header does. */
static __always_inline bool fast_look4(hook_ctx *ctx, struct replay *r, __u32 l3, __u32 routing_instance,
				       const bool tunnelled)
{
	struct iphdr *ip = hook_data(ctx) + l3;
	struct flow_key4 key ALIGNED_KEY;
	__u32 line = 0;

	if ((void *)(ip + 1) > hook_end(ctx))
		return false;
	if (!tunnelled)
		fast_expect_line(r->unit, ip->daddr);
	*(__u64 *)&key.be_saddr = *(__u64 *)&ip->saddr;
	((__u64 *)&key)[1] = key_last_word(r->is.be_ports, routing_instance, r->is.proto);
	r->state = flow_find4(&key, flow_hash4(config.seed, &key), &line, FAST_TRIES);
	r->line = line;
	return true;
}

static __always_inline bool fast_look6(hook_ctx *ctx, struct replay *r, __u32 l3, __u32 routing_instance)
{
	struct ipv6hdr *ip = hook_data(ctx) + l3;
	struct flow_key6 key ALIGNED_KEY;
	__u32 line = 0;

	if ((void *)(ip + 1) > hook_end(ctx))
		return false;
	for (int i = 0; i < 4; i++)
		((__u64 *)key.be_saddr)[i] = ((__u64 *)&ip->saddr)[i];
	((__u64 *)&key)[4] = key_last_word(r->is.be_ports, routing_instance, r->is.proto);
	r->state = flow_find6(&key, flow_hash6(config.seed, &key), &line, FAST_TRIES);
	r->line = line;
	return true;
}

static __always_inline int fast_find4(hook_ctx *ctx, struct replay *r)
{
	if (!fast_look4(ctx, r, r->frame.l3, r->unit->routing_instance, false))
		return GO(ADMIT);
	if ((config.stage_mask & STAGE_BIT(NAT64)) && !r->state)
		return GO(NAT64);
	return r->state ? REPLAY : fast_miss(r);
}

static __always_inline int fast_find6(hook_ctx *ctx, struct replay *r)
{
	if (!fast_look6(ctx, r, r->frame.l3, r->unit->routing_instance))
		return GO(ADMIT);
	if ((config.stage_mask & STAGE_BIT(NAT64)) && r->state && (r->state->flags & FLOW_NAT64))
		return GO(NAT64);
	return r->state ? REPLAY : fast_miss(r);
}

/*
 * Which path is it? The compiler is left to make two programs of this, one a family: held together by barriers they
 * keep more on the stack, which costs 8 ns a packet and is no smaller.
 */
static __always_inline int fast_select(hook_ctx *ctx, struct replay *r, const bool inner)
{
	bool v4 = r->frame.ethertype == ETH_P_IP;
	__u32 header = v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);

	if (v4 ? !parse_network4(ctx, r->frame.l3, &r->is)
	       : r->frame.ethertype != ETH_P_IPV6 || !parse_network6(ctx, r->frame.l3, &r->is))
		return GO(ADMIT);
	r->family = r->is.wire = v4 ? 4 : 6;
	if (!parse_transport(ctx, &r->is, hook_data(ctx) + r->frame.l3 + header, header))
		return GO(ADMIT);
	if (fast_tunnels(r, inner))
		return GO(GTPU_DECAP);
	if (fast_listens(ctx, r))
		return GO(FANOUT);
	if (fast_passes_on(r))
		return fast_miss(r);
	return v4 ? fast_find4(ctx, r) : fast_find6(ctx, r);
}

/* `inner`: out of a tunnel, so the unit is not that of the hook's device. */
static __always_inline int fast_path(hook_ctx *ctx, const bool inner)
{
	struct replay r = {};
	__u32 slot;

	if (!hook_parse_frame(ctx, &r.frame))
		return GO(ADMIT);
	r.unit = unit_arriving(inner ? arrival_device(ctx) : hook_ifindex(ctx), r.frame.vlan, &slot);
	if (!r.unit)
		return GO(ADMIT);
	if (!inner && (config.stage_mask & STAGE_BIT(GTPU)) && is_far_end(r.unit))
		return GO(GTPU_DEVICE);
	/* the slow path knows what to do with frames for others */
	struct ethhdr *eth = hook_data(ctx);

	if ((void *)(eth + 1) > hook_end(ctx) || *(__u32 *)eth->h_dest != *(__u32 *)r.unit->mac ||
	    *(__u16 *)(eth->h_dest + 4) != *(__u16 *)(r.unit->mac + 4))
		return GO(ADMIT);
	int action = fast_select(ctx, &r, inner);

	if (action == REPLAY) {
		action = replay(ctx, &r);
		if (!(config.stage_mask & STAGE_BIT(GTPU)) || action != GO(GTPU_ENCAP))
			return action;
	}
	return action == GO(ADMIT) || !hand_over(&r) ? GO(ADMIT) : action;
}

#endif
