/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Messages of GTP-U that took the slow path: with IP options, or past screens. Pieces of one are refused. */
#ifndef SLUICE_STAGE_GTPU_H
#define SLUICE_STAGE_GTPU_H

#include "gtpu/work.h"

static __always_inline bool is_for_tunnel(const struct packet *p, const struct unit *unit)
{
	return p->family == 4 ? is_tunnel_address4(unit, p->key4.be_daddr) : is_tunnel_address6(unit, p->key6.be_daddr);
}

static __noinline int stage_gtpu(hook_ctx *ctx, struct packet *p)
{
	struct unit *unit = p ? unit_at(p->unit_slot) : NULL;
	struct handover *to = handover_here();

	if (!unit || !to || !unit->gtpu || p->proto != IPPROTO_UDP || (p->flags & P_MULTICAST) ||
	    p->key6.be_dport != bpf_htons(GTPU_PORT) || !is_for_tunnel(p, unit))
		return CONTINUE;
	/* the others of its datagram follow it */
	if (p->flags & P_FRAGMENT)
		return DROP(GTPU_FRAGMENT);
	to->is.ip_len = p->ip_len;
	to->is.wire = p->wire;
	to->vlan = p->vlan;
	to->l3 = p->l3;
	to->l4 = p->l4;
	to->tagged = p->tagged;
	to->unit_index = p->unit_index;
	to->zone = p->from_zone;
	to->routing_instance = p->key4.routing_instance;
	return VERDICT_TUNNEL;
}

#endif
