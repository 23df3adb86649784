/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The one exit: count {stage, reason}, rewrite, forward, answer. */
#ifndef SLUICE_STAGE_EXIT_H
#define SLUICE_STAGE_EXIT_H

#include "flow_table.h"
#include "gtpu/work.h"
#include "lib/dropped.h"
#include "lib/fragment.h"
#include "lib/reply.h"
#include "lib/mss.h"
#include "nat64/cut.h"
#include "nat64/translate.h"
#include "nat/rewrite.h"
#include "lib/rewrite.h"
#include "stage/create.h"
#include "stage/fanout.h"
#include "stage/gate.h"
#include "stage/route.h"

static __always_inline int exit_drop(hook_ctx *ctx, const struct packet *p, __u32 reason)
{
	count_drop(p->unit_index, reason, p->segments);
	tell_drop(ctx, p, reason);
	return HOOK_DROP;
}

static __always_inline struct frame frame_of(const struct packet *p)
{
	struct frame frame = {.l3 = p->l3, .vlan = p->vlan, .ethertype = p->ethertype, .tagged = p->tagged};

	return frame;
}

static __noinline int exit_local(hook_ctx *ctx, struct packet *p)
{
	if (!p)
		return HOOK_DROP;
	struct unit *unit = unit_at(p->unit_slot);
	struct unit_counters *count = counters_of(p->unit_index);
	struct frame frame = frame_of(p);

	if (!unit || !count)
		return HOOK_DROP;
	if ((p->flags & P_TRANSLATED) && !nat_rewrite(ctx, p))
		return exit_drop(ctx, p, REASON_REWRITE_FAILED);
	int action = hook_to_host(ctx, &frame, unit);

	if (action == HOOK_DROP)
		return exit_drop(ctx, p, REASON_REWRITE_FAILED);
	count->delivered_local += p->segments;
	return action;
}

/* The daemon sends what it makes of the packet by the next hop's device, whose neighbour code writes MAC addresses. */
static __always_inline int exit_oversize(hook_ctx *ctx, const struct packet *p, const struct frame *frame,
					 __u32 host_ifindex)
{
	struct unit_counters *count = counters_of(p->unit_index);

	if (!count || !rewrite_hop(ctx, frame))
		return exit_drop(ctx, p, REASON_REWRITE_FAILED);
	if (cut_hand_over(ctx, p, host_ifindex) != CONTINUE)
		return exit_drop(ctx, p, REASON_NAT64_CUT_LIMIT);
	count->oversize += p->segments;
	return HOOK_DROP;
}

/* A function, for the stack of the other one. */
static __noinline int exit_into_tunnel(struct packet *p)
{
	if (!p)
		return HOOK_DROP;
	struct frame frame = frame_of(p);

	return gtpu_enter(&frame, p->unit_index, p->from_zone, p->ip_len);
}

/* The kernel writes the MAC addresses and, where it must, the tag. A function, for the stack of the other one. */
static __noinline int exit_queue(hook_ctx *ctx, struct packet *p)
{
	struct unit_counters *count = p ? counters_of(p->unit_index) : NULL;
	struct nexthop *nexthop = p ? nexthop_at(p->nexthop) : NULL;

	if (!count || !nexthop)
		return HOOK_DROP;
	struct frame frame = frame_of(p);

	frame.l3 &= 0x1f;
	if (!rewrite_hop(ctx, &frame))
		return exit_drop(ctx, p, REASON_REWRITE_FAILED);
	bool named = (p->flags & P_ROUTED) || fib_neighbour(ctx, p);
	int action = hook_hand_off(ctx, &frame, nexthop->host_ifindex, named ? &p->route.key : NULL);

	if (action == HOOK_DROP)
		return exit_drop(ctx, p, REASON_NEIGHBOUR_PENDING);
	count->handed_off += p->segments;
	count->queued += p->segments;
	return action;
}

static __noinline int exit_forward(hook_ctx *ctx, struct packet *p)
{
	if (!p)
		return HOOK_DROP;
	struct nexthop *nexthop = nexthop_at(p->nexthop);
	struct unit_counters *count = counters_of(p->unit_index);
	struct frame frame = frame_of(p);

	frame.l3 &= 0x1f;
	if (!nexthop || !count || !nexthop->flags)
		return exit_drop(ctx, p, REASON_NO_ROUTE);

	if ((generation.tcp_mss || p->nat64) && (p->tcp_flags & TCP_SYN)) {
		p->mss = p->nat64 ? nat64_mss(p, nexthop) : generation.tcp_mss;
		mss_clamp(ctx, p);
	}
	if ((config.stage_mask & STAGE_BIT(NAT64)) && p->nat64) {
		int verdict = p->cut ? cut_or_whole(p) : CONTINUE;

		if (verdict == CONTINUE)
			verdict = nat64_translate(ctx, p);
		if (verdict != CONTINUE)
			return exit_drop(ctx, p, REASON_OF(verdict));
		frame.ethertype = p->ethertype;
		if (p->cut)
			return exit_oversize(ctx, p, &frame, nexthop->host_ifindex);
	} else if ((p->flags & P_TRANSLATED) && !nat_rewrite(ctx, p)) {
		return exit_drop(ctx, p, REASON_REWRITE_FAILED);
	}

	if (leads_into_tunnel(ctx, nexthop)) {
		if (!rewrite_hop(ctx, &frame))
			return exit_drop(ctx, p, REASON_REWRITE_FAILED);
		if (p->flags & P_RELATED)
			count->icmp_related += 1;
		return exit_into_tunnel(p);
	}
	if (!(nexthop->flags & NEXTHOP_RESOLVED))
		return exit_queue(ctx, p);
	if (!rewrite_forward(ctx, &frame, nexthop))
		return exit_drop(ctx, p, REASON_REWRITE_FAILED);
	if (p->flags & P_RELATED)
		count->icmp_related += p->segments;
	count->redirected += p->segments;
	count->redirected_bytes += p->ip_len;
	return hook_redirect(ctx, nexthop->ifindex);
}

static __always_inline bool is_denial(__u32 reason)
{
	bool is = false;
#define STAGE(ID, name, phase, when, help)
#define REASON(STAGE_ID, ID, name, help)
#define DENIAL(STAGE_ID, ID, name, help) is |= reason == REASON_##ID;
#include "../stages.def"
#undef STAGE
#undef REASON
#undef DENIAL
	return is;
}

/* What a verdict of the stages means for the session it concerns: without permission it ends. */
static __always_inline int revoke_if_denied(struct packet *p, int verdict)
{
	__u32 reason = REASON_OF(verdict);

	if (!(p->flags & P_REEVALUATE) || verdict == CONTINUE || verdict == VERDICT_LOCAL)
		return verdict;
	if (!is_denial(reason))
		return verdict;
	bool translated = reason == REASON_NAT_CHANGED;

	if (p->family == 4)
		flow_delete4(p->line, p->tag, translated ? CLOSE_NAT : CLOSE_REVOKED);
	else
		flow_delete6(p->line, p->tag, translated ? CLOSE_NAT : CLOSE_REVOKED);
	return translated ? verdict : DROP(SESSION_REVOKED);
}

static __always_inline int exit_packet(hook_ctx *ctx, struct packet *p, int verdict)
{
	verdict = revoke_if_denied(p, verdict);
	if (verdict == VERDICT_LOCAL && (config.stage_mask & STAGE_BIT(GATE)))
		verdict = gate_group(p);
	bool has_receiver = verdict == VERDICT_FORWARD;

	if (p->flags & P_FIRST)
		verdict = fragment_remember(p, verdict);
	/* no piece of its datagram will leave, and nothing else has made the session */
	if ((p->flags & P_CREATED) && verdict == DROP(FRAGMENT_TABLE_FULL))
		flow_withdraw(p);
	if (verdict & VERDICT_DROP) {
		if (has_receiver)
			fanout_dropped(p, REASON_OF(verdict));
		return exit_drop(ctx, p, REASON_OF(verdict));
	}
	if (verdict & VERDICT_REPLY) {
		exit_drop(ctx, p, REASON_OF(verdict));
		return reply_send(ctx, p);
	}
	if (verdict == VERDICT_LOCAL || (p->flags & P_LOCAL))
		return exit_local(ctx, p);
	if (verdict == VERDICT_FORWARD)
		return fanout_sent(p, exit_forward(ctx, p));
	return exit_forward(ctx, p);
}

#endif
