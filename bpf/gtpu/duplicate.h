/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Copies of a session's packets for a second tunnel (FAR: DUPL, TS 29.244 5.2.1). A copy leaves by the mobile interface
 * and comes out of its far end, whose program puts it into its tunnel: so all that a copy needs, a neighbour's address
 * too, is asked for without its original waiting for it. A packet is copied once its session has let it pass, and goes
 * on whatever becomes of the copy.
 *
 * XDP copies nothing: there the packet goes that way, too, both sent by the tc program of its device.
 */
#ifndef SLUICE_GTPU_DUPLICATE_H
#define SLUICE_GTPU_DUPLICATE_H

#include "gtpu/flows.h"
#include "gtpu/lines.h"
#include "gtpu/work.h"

/* Of a packet's copy, 0 = there is none: it goes where the packet's flow says, else where its session does. */
static __always_inline __u32 gtpu_copy_mark(const struct gtpu_rules *rules, const struct gtpu_rules *met, __u32 flow,
					    const __u32 direction, __u64 decision)
{
	if (flow < GTPU_FLOWS && met->copy_peer[direction])
		return GTPU_FLOW_COPY_MARK(direction, rules->filters, flow);
	return rules->copy_peer[direction] ? GTPU_COPY_MARK(direction, GTPU_DECISION_RULES(decision)) : 0;
}

/* Those that say where a copy goes. */
static __always_inline const struct gtpu_rules *gtpu_copy_rules(__u32 mark)
{
	__u32 number = GTPU_COPY_RULES(mark);

	if (!(mark & GTPU_COPY_BY_FLOW))
		return bpf_map_lookup_elem(&gtpu_rules, &number);
	struct gtpu_filters *filters = gtpu_filters_at(number / GTPU_FLOWS);

	return filters ? &filters->rules[number % GTPU_FLOWS] : NULL;
}

/*
 * The packet is untagged, and its link header of no account. CONTINUE: it goes on, at another place in memory. Else
 * that is done, and at the far end it goes on under the mark `own`.
 */
static __always_inline int gtpu_duplicate(hook_ctx *ctx, const struct handover *h, __u32 ifindex, __u32 mark, __u32 own)
{
	__u32 slot;
	struct gtpu_work *work = gtpu_work_here();
	struct unit *unit = unit_find(ifindex, 0, &slot);

	if (!h || !work)
		return CONTINUE;
	return hook_copy(ctx, ifindex, mark, own, unit ? unit->index : h->unit_index, ++work->copies);
}

#endif
