/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * An established packet out of a tunnel is replayed by the program that took it out: what it is, and its session, are
 * looked for while it is in the tunnel. Every other one is the next program's.
 */
#ifndef SLUICE_GTPU_INNER_H
#define SLUICE_GTPU_INNER_H

#include "fast.h"

/* Of a whole packet of TCP or UDP; else it has no state. What is wrong with it is said later. */
static __always_inline void gtpu_find_inner(hook_ctx *ctx, const struct gtpu_work *work, struct replay *r)
{
	__u32 at = work->body & 0xfff;
	__u8 *first = hook_data(ctx) + at;

	if ((void *)(first + 1) > hook_end(ctx))
		return;
	bool v4 = *first >> 4 == 4;
	__u32 header = v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);

	if (v4 ? !parse_network4(ctx, at, &r->is) : !parse_network6(ctx, at, &r->is))
		return;
	if (!parse_transport(ctx, &r->is, hook_data(ctx) + at + header, header) || !r->is.plain)
		return;
	r->family = r->is.wire = v4 ? 4 : 6;
	if (v4)
		fast_look4(ctx, r, at, 0);
	else
		fast_look6(ctx, r, at, 0);
}

/* `unit` is the one that it arrives on, as itself. */
static __always_inline int gtpu_replay_inner(hook_ctx *ctx, struct replay *r, struct unit *unit)
{
	r->unit = unit;
	/* what the short path looks at before sessions, and what it leaves to others */
	bool listens = (config.stage_mask & STAGE_BIT(FANOUT)) && !r->is.is_tcp;

	if (!r->state || (r->state->flags & FLOW_NAT64) || unit->routing_instance || listens || fast_passes_on(r))
		return GO(FAST_INNER);
	r->frame.l3 = ETH_HLEN;
	r->frame.ethertype = r->family == 4 ? ETH_P_IP : ETH_P_IPV6;
	int action = replay(ctx, r);

	/* from subscriber to subscriber: nothing was done yet */
	return action == GO(GTPU_ENCAP) ? GO(FAST_INNER) : action;
}

#endif
