/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What leaves a managed device. Packets of this data plane carry its mark and pass. Packets the kernel forwarded by
 * itself carry none and end here. The rest is this host's own: its flows are recorded so that answers come back.
 */
#ifndef SLUICE_STAGE_EGRESS_H
#define SLUICE_STAGE_EGRESS_H

#include "lib/dropped.h"
#include "nat/rewrite.h"
#include "stage/create.h"
#include "stage/entry.h"
#include "stage/fragment.h"
#include "stage/gate.h"
#include "stage/session.h"

static __always_inline int egress_drop(hook_ctx *ctx, const struct packet *p, __u32 reason)
{
	count_drop(p->unit_index, reason, p->segments);
	tell_drop(ctx, p, reason);
	return TC_ACT_SHOT;
}

/* A tagged unit: the host's frames get its tags here and leave through the physical device. */
static __always_inline int egress_leave(hook_ctx *ctx, const struct packet *p, const struct unit *unit,
					struct unit_counters *count)
{
	if (!(unit->flags & UNIT_HOST_SIDE)) {
		count->sent += p->segments;
		count->sent_bytes += ctx->len;
		return TC_ACT_UNSPEC;
	}
	__u32 ifindex = unit->phys_ifindex;

	if (!hook_push_vlan(ctx, unit->vlan))
		return egress_drop(ctx, p, REASON_EGRESS_REWRITE);
	return hook_redirect(ctx, ifindex);
}

/* Own packets of a recorded session; those of transit sessions are none of the host's business. */
static __always_inline int egress_follow(hook_ctx *ctx, struct packet *p, struct flow_state *own)
{
	struct flow_state *peer = flow_state_at(p->family, p->line ^ 1);

	if (!peer || own->zone != ZONE_HOST)
		return CONTINUE;
	if (p->proto == IPPROTO_TCP && tcp_reopening(p, own, peer))
		return DROP(EGRESS_REOPENING);
	if (p->proto == IPPROTO_TCP)
		tcp_follow(ctx, p, own, peer);
	else if (p->line & 1)
		flow_answered(p->family, own);
	flow_account(own, p->now, p->segments, p->ip_len);
	return CONTINUE;
}

/* Does this packet of the host open a session? Errors, neighbour discovery and group traffic do not. */
static __always_inline bool egress_opens(hook_ctx *ctx, struct packet *p)
{
	if (p->flags & (P_MULTICAST | P_LATER | P_TINY | P_ICMP_ERROR))
		return false;
	p->flags &= ~P_NEW;
	return may_open(ctx, p, true) == CONTINUE;
}

/*
 * An error of this host about what reached it by destination NAT tells of the packet its receiver knows, and comes from
 * the address that it has sent to (RFC 5508 REQ-4, REQ-5).
 */
static __noinline int egress_error(hook_ctx *ctx, struct packet *p)
{
	if (!p || !(p->family == 4 ? quote_key4(ctx, p) : quote_key6(ctx, p)))
		return CONTINUE;
	struct flow_state *own = find_session(p);

	if (!own || own->zone != ZONE_HOST || !(p->flags & P_TRANSLATED))
		return CONTINUE;
	p->flags |= P_RELATED;
	return nat_rewrite(ctx, p) ? CONTINUE : DROP(EGRESS_REWRITE);
}

/* An IPv4 client's session has its answers' key in this index, a client's of NAT64 in the other one. */
static __noinline int egress_is_taken(struct packet *p)
{
	if (!p)
		return false;
	p->out4 = p->key4;
	return nat64_other_index_has(p);
}

/* Without the grant; the rest of a datagram has no ports to be asked by, and goes the way of its first fragment. */
static __noinline int egress_refuse(struct packet *p)
{
	if (p && (p->flags & P_FRAGMENT))
		fragment_forbid(p, REASON_EGRESS_GRANT);
	return DROP(EGRESS_GRANT);
}

/* Only refused datagrams are remembered. */
static __noinline int egress_later(struct packet *p)
{
	if (!p || !fragment_key_sent(p))
		return CONTINUE;
	int verdict = fragment_follow(p);

	return verdict == DROP(EGRESS_GRANT) ? verdict : CONTINUE;
}

static __noinline int egress_register(hook_ctx *ctx, struct packet *p)
{
	if (!p)
		return DROP(EGRESS_TABLE_FULL);
	int verdict = p->ethertype == ETH_P_IP ? parse_ipv4(ctx, p) : parse_ipv6(ctx, p);

	bool gated = (config.stage_mask & STAGE_BIT(GATE)) && demands_grants(p->from_zone);

	if (verdict == CONTINUE && gated && (p->flags & P_LATER))
		return egress_later(p);
	/* what the host sends is the host's affair: odd packets leave unrecorded, their answers find no session */
	if (verdict != CONTINUE || (p->flags & (P_MULTICAST | P_LATER | P_TINY)))
		return CONTINUE;
	if (p->flags & P_ICMP_ERROR)
		return egress_error(ctx, p);
	struct flow_state *own = find_session(p);

	if (own && p->proto == IPPROTO_TCP) {
		struct flow_state *peer = flow_state_at(p->family, p->line ^ 1);

		if (peer && tcp_reopens(p, own, peer)) {
			end_session(p);
			p->flags &= ~P_TRANSLATED;
			own = NULL;
		}
	}
	if (own) {
		if (check_grant(p) != CONTINUE)
			return egress_refuse(p);
		verdict = egress_follow(ctx, p, own);
		if (verdict != CONTINUE)
			return verdict;
		/* answers of this host to a session that reached it through destination NAT */
		if ((p->flags & P_TRANSLATED) && own->zone == ZONE_HOST && !nat_rewrite(ctx, p))
			return DROP(EGRESS_REWRITE);
		return CONTINUE;
	}
	if (gated && gate_first(p, 1) != CONTINUE)
		return egress_refuse(p);
	if (!egress_opens(ctx, p))
		return CONTINUE;
	if (p->proto == IPPROTO_TCP)
		p->tcp_scale = tcp_scale_of(ctx, p);
	if ((config.stage_mask & STAGE_BIT(NAT64)) && p->family == 4 && egress_is_taken(p))
		return DROP(EGRESS_CONFLICT);
	p->limited = 0;
	p->to_zone = p->from_zone;
	p->from_zone = ZONE_HOST;
	p->nexthop = NEXTHOP_NONE;
	int result = p->family == 4 ? create4(p, 1) : create6(p, 1);

	/* the answers would go to whom NAT gave the port to; a socket tries again, or another port */
	if (result == INSERT_CONFLICT)
		return DROP(EGRESS_CONFLICT);
	return result == INSERT_FULL || result == INSERT_BUSY || result == INSERT_STUCK ? DROP(EGRESS_TABLE_FULL)
											: CONTINUE;
}

/* Where it came from, for the second equation: what carries a verdict was counted where it came in. */
static __always_inline void egress_arrived(const hook_ctx *ctx, struct unit_counters *count, __u32 segments)
{
	__u32 mark = ctx->mark;

	if (mark == HANDOFF_MARK)
		count->resolved += segments;
	else if (mark == PIECE_MARK)
		count->pieces += segments;
	else if (GTPU_IS_INNER(mark))
		count->gtpu_returned += segments;
	else if (GTPU_IS_COPY(mark))
		count->duplicated += segments;
	else if (!CARRIES_VERDICT(mark) && ctx->ingress_ifindex)
		count->unjudged += segments;
	else if (!CARRIES_VERDICT(mark))
		count->originated += segments;
}

/* Of a device that is no unit's: in the null zone nothing leaves; else it is not ours to judge. */
static __always_inline int egress_without_unit(hook_ctx *ctx, struct packet *p)
{
	struct unit *null = unit_find(p->ifindex, VLAN_NULL, &p->unit_slot);
	struct unit_counters *count = null ? counters_of(null->index) : NULL;

	if (!null)
		return TC_ACT_UNSPEC;
	if (count)
		egress_arrived(ctx, count, p->segments);
	p->unit_index = null->index;
	return egress_drop(ctx, p, REASON_EGRESS_NULL_ZONE);
}

static __always_inline int egress_path(hook_ctx *ctx)
{
	__u32 zero = 0;
	struct packet *p = bpf_map_lookup_elem(&scratch, &zero);
	struct frame frame = {};

	hook_pull_headers(ctx);
	if (!p || !hook_parse_frame(ctx, &frame))
		return TC_ACT_SHOT;
	packet_reset(p, ctx, hook_ifindex(ctx));
	p->l3 = frame.l3;
	p->vlan = frame.vlan;
	p->ethertype = frame.ethertype;
	struct unit *unit = unit_find(p->ifindex, p->vlan, &p->unit_slot);

	if (!unit)
		return egress_without_unit(ctx, p);
	struct unit_counters *count = counters_of(unit->index);

	if (!count)
		return TC_ACT_SHOT;
	p->unit_index = unit->index;
	p->from_zone = unit->zone;
	egress_arrived(ctx, count, p->segments);
	if (CARRIES_VERDICT(ctx->mark))
		return egress_leave(ctx, p, unit, count);
	if (ctx->ingress_ifindex)
		return egress_drop(ctx, p, REASON_NO_VERDICT);
	p->key4.routing_instance = p->key6.routing_instance = unit->routing_instance;
	if (p->ethertype == ETH_P_IP || p->ethertype == ETH_P_IPV6) {
		int verdict = egress_register(ctx, p);

		if (verdict != CONTINUE)
			return egress_drop(ctx, p, REASON_OF(verdict));
	}
	return egress_leave(ctx, p, unit, count);
}

#endif
