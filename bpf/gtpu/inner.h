/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * An established packet out of a tunnel is replayed by the program that took it out: what it is, and its session, are
 * looked for while it is in the tunnel. Every other one is the next program's.
 */
#ifndef SLUICE_GTPU_INNER_H
#define SLUICE_GTPU_INNER_H

#include "fast.h"

/*
 * Of a whole packet of TCP or UDP; what is wrong with it is said later. A function of its own, which the verifier looks
 * at once, and not once for each way behind it.
 */
__noinline int gtpu_find_inner(hook_ctx *ctx)
{
	struct gtpu_work *work = gtpu_work_here();
	struct replay r = {};

	if (!work)
		return 0;
	work->place = 0;
	__u32 at = work->body & 0xfff;
	__u8 *first = hook_data(ctx) + at;

	if ((void *)(first + 1) > hook_end(ctx))
		return 0;
	bool v4 = *first >> 4 == 4;
	__u32 header = v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);

	if (v4 ? !parse_network4(ctx, at, &r.is) : !parse_network6(ctx, at, &r.is))
		return 0;
	if (!parse_transport(ctx, &r.is, hook_data(ctx) + at + header, header) || !r.is.plain)
		return 0;
	r.is.wire = v4 ? 4 : 6;
	if (!(v4 ? fast_look4(ctx, &r, at, 0, true) : fast_look6(ctx, &r, at, 0)))
		return 0;
	if (!r.state || (r.state->flags & FLOW_NAT64))
		return 0;
	work->is = r.is;
	work->place = r.line;
	return 1;
}

/* `unit` is the one that it arrives on, as itself. */
static __always_inline int gtpu_replay_inner(hook_ctx *ctx, const struct gtpu_work *work, struct unit *unit)
{
	struct replay r = {
		.is = work->is,
		.frame = {.l3 = ETH_HLEN, .ethertype = work->is.wire == 4 ? ETH_P_IP : ETH_P_IPV6},
		.unit = unit,
		.line = work->place,
		.family = work->is.wire == 4 ? 4 : 6,
	};
	/* what the short path looks at before sessions, and what it leaves to others */
	bool listens = (config.stage_mask & STAGE_BIT(FANOUT)) && !r.is.is_tcp;

	if (!r.line || unit->routing_instance || listens || fast_passes_on(&r))
		return GO(FAST_INNER);
	r.state = flow_state_at(r.family, r.line);
	if (!r.state)
		return GO(FAST_INNER);
	int action = replay(ctx, &r);

	/* from subscriber to subscriber: nothing was done yet */
	return action == GO(GTPU_ENCAP) ? GO(FAST_INNER) : action;
}

#endif
