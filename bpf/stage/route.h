/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel's FIB says where a packet goes, then TTL and path MTU are looked at. Nothing here leaves a trace: what is
 * found stands in the packet until it may pass (stage/nexthop.h), so what policies deny takes no room in any table.
 */
#ifndef SLUICE_STAGE_ROUTE_H
#define SLUICE_STAGE_ROUTE_H

#include "gtpu/work.h"
#include "lib/host_inbound.h"
#include "nat/rules.h"
#include "nat64/size.h"

/* Only this many outcomes matter to us; the rest of the kernel's codes are "no route". */
static __always_inline int fib_verdict(struct packet *p, long code)
{
	p->reply = REPLY_NO_ROUTE;
	/* a discard route is how a pool's addresses lead here: hairpinning is not done (RFC 6146 3.8) */
	if (code == BPF_FIB_LKUP_RET_BLACKHOLE && p->nat64 && p->wire == 6) {
		nat_count_failure(p->nat_destination);
		return DROP(NAT64_ADDRESS);
	}
	if (code == BPF_FIB_LKUP_RET_BLACKHOLE)
		return DROP(ROUTE_PROHIBITED);
	if (code == BPF_FIB_LKUP_RET_PROHIBIT)
		p->reply = REPLY_PROHIBITED;
	if (code == BPF_FIB_LKUP_RET_PROHIBIT || code == BPF_FIB_LKUP_RET_UNREACHABLE)
		return DROP_AND_REPLY(ROUTE_PROHIBITED);
	return DROP_AND_REPLY(NO_ROUTE);
}

static __always_inline void note_route(struct packet *p, const struct bpf_fib_lookup *fib, const struct unit *unit,
				       __u32 slot, bool resolved)
{
	struct route *route = &p->route;
	bool v4 = fib->family == AF_INET;

	route->key.host_ifindex = fib->ifindex;
	route->key.be_addr[0] = v4 ? fib->ipv4_dst : fib->ipv6_dst[0];
	for (int i = 1; i < 4; i++)
		route->key.be_addr[i] = v4 ? 0 : fib->ipv6_dst[i];
	route->unit_slot = slot;
	route->unit = unit->index;
	__builtin_memcpy(route->dmac, fib->dmac, 6);
	route->resolved = resolved;
	route->refused = 0;
	p->flags |= P_ROUTED;
}

/*
 * What a session lets through goes where the other side's packets come from: a route into a third zone would carry
 * answers past the policies of that zone, and whoever forges a source there would choose what they are. Zones are
 * compared, for there may be several uplinks in one, and only where a next hop is about to be bound.
 */
__noinline int check_way_back(struct packet *p)
{
	if (!p)
		return DROP(ANSWER_ZONE);
	struct flow_state *other = flow_state_at(p->family, p->line ^ 1);
	struct flow_shared *shared = flow_shared_at(p->family, p->line);

	/* the unit that the session came from, in another zone since a commit */
	if (other && shared && other->zone != p->to_zone && (p->flags & P_RESPONDER) &&
	    p->route.unit == shared->ingress_unit)
		flow_enter_zone(p->family, p->line ^ 1, p->to_zone);
	if (!other || (other->zone != p->to_zone && !(generation.flags & GENERATION_REVERSE_ACROSS_ZONES)))
		return DROP(ANSWER_ZONE);
	return CONTINUE;
}

#define IP_MTU_MIN 68 /* RFC 791 3.2; what the kernel leaves there if it says nothing is less */

/* What the route itself allows, where it is less than its unit does. */
static __always_inline void note_route_mtu(struct packet *p, const struct bpf_fib_lookup *fib, const struct unit *unit)
{
	bool less = fib->mtu_result >= IP_MTU_MIN && fib->mtu_result < unit->mtu;

	p->route.mtu = less ? fib->mtu_result : unit->mtu;
	p->route.key.family = fib->family == AF_INET ? 4 : 6;
	if (less)
		p->route.key.family |= (__u32)fib->mtu_result << NEXTHOP_MTU_SHIFT;
}

static __always_inline void fib_question(struct packet *p, const struct unit *unit, struct bpf_fib_lookup *fib)
{
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = unit->host_ifindex;
	fib->l4_protocol = p->proto;
	fib->sport = p->key6.be_sport;
	fib->dport = leaving6(p)->be_dport;
	fib->tot_len = 1; /* asks for the route's MTU */
	if (p->nat64 ? p->wire == 6 : p->family == 4) {
		fib->family = AF_INET;
		fib->tos = p->traffic_class;
		/* which source a packet of the other family gets is not known yet */
		fib->ipv4_src = p->nat64 ? 0 : p->key4.be_saddr;
		fib->ipv4_dst = p->nat64 ? leaving6(p)->be_daddr[3] : leaving4(p)->be_daddr;
	} else {
		fib->family = AF_INET6;
		/* in the words the kernel reads, see key_last_word() */
		const struct flow_key6 *leaving = leaving6(p);

		for (int i = 0; i < 2; i++) {
			((__u64 *)fib->ipv6_src)[i] = ((__u64 *)&p->key6)[i];
			((__u64 *)fib->ipv6_dst)[i] = ((__u64 *)leaving)[2 + i];
		}
	}
}

/* Of a neighbour that is not resolved the kernel tells nothing but its address: the route's MTU is asked for again. */
static __noinline int ask_route_mtu(hook_ctx *ctx, struct packet *p)
{
	__u32 zero = 0;
	struct unit *from = p ? unit_at(p->unit_slot) : NULL, *to = p ? unit_at(p->route.unit_slot) : NULL;
	struct cpu_memory *memory = bpf_map_lookup_elem(&scratch, &zero);

	if (!p || !from || !to || !memory)
		return 0;
	struct bpf_fib_lookup *fib = &memory->fib;

	fib_question(p, from, fib);
	if (bpf_fib_lookup(ctx, fib, sizeof(*fib), BPF_FIB_LOOKUP_SKIP_NEIGH) == BPF_FIB_LKUP_RET_SUCCESS)
		note_route_mtu(p, fib, to);
	return 0;
}

/* Behind a mobile interface are no neighbours: one entry leads to all subscribers. */
static __always_inline void note_tunnel(struct packet *p, const struct unit *unit)
{
	struct route *route = &p->route;

	for (int i = 0; i < 4; i++)
		route->key.be_addr[i] = 0;
	__builtin_memcpy(route->dmac, unit->mac, 6);
	route->resolved = ROUTE_TUNNEL;
}

static __always_inline int fib_route(hook_ctx *ctx, struct packet *p)
{
	__u32 slot, zero = 0;
	struct unit *unit = unit_at(p->unit_slot);
	struct cpu_memory *memory = bpf_map_lookup_elem(&scratch, &zero);

	if (!unit || !memory)
		return DROP(NO_ROUTE);
	/* its 64 bytes would take the room of a call on the stack */
	struct bpf_fib_lookup *fib = &memory->fib;

	fib_question(p, unit, fib);
	long code = bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);

	if (code != BPF_FIB_LKUP_RET_SUCCESS && code != BPF_FIB_LKUP_RET_NO_NEIGH)
		return fib_verdict(p, code);
	unit = unit_find(fib->ifindex, 0, &slot);
	if (!unit)
		return DROP(NO_EGRESS_UNIT);
	p->to_zone = unit->zone;
	note_route(p, fib, unit, slot, code == BPF_FIB_LKUP_RET_SUCCESS);
	note_route_mtu(p, fib, unit);
	if (code == BPF_FIB_LKUP_RET_NO_NEIGH)
		ask_route_mtu(ctx, p);
	if ((config.stage_mask & STAGE_BIT(GTPU)) && is_mobile(unit))
		note_tunnel(p, unit);
	return p->flags & (P_RESPONDER | P_RELATED) ? check_way_back(p) : CONTINUE;
}

/* RFC 1812 4.2.3.1, RFC 8201: what is too large for its way is answered. */
static __always_inline int check_size(struct packet *p, __u32 mtu)
{
	if (p->nat64)
		return nat64_check_size(p, mtu);
	if (p->segment_len > mtu) {
		p->reply = REPLY_TOO_BIG;
		p->reply_mtu = mtu;
		return DROP_AND_REPLY(TOO_BIG);
	}
	return CONTINUE;
}

/* RFC 1812 5.3.1 */
static __always_inline int check_ttl(struct packet *p)
{
	if (p->ttl > 1)
		return CONTINUE;
	p->reply = REPLY_TIME_EXCEEDED;
	return DROP_AND_REPLY(TTL_EXCEEDED);
}

/* Of a packet whose session knows its next hop. */
static __always_inline int check_known(struct packet *p)
{
	struct nexthop *nexthop = nexthop_at(p->nexthop);

	if (!nexthop)
		return DROP(NO_ROUTE);
	int verdict = check_ttl(p);

	return verdict != CONTINUE ? verdict : check_size(p, nexthop->mtu);
}

/*
 * A DHCP answer to an address that leads nowhere else is for this host, which will have it soon. Where it leads to
 * another link, the unit's host-inbound-traffic tells whether this host has a client on it.
 */
static __always_inline bool is_for_client_here(const struct packet *p, int verdict)
{
	return verdict != CONTINUE || p->route.unit == p->unit_index || host_inbound_admits(p);
}

static __always_inline int stage_route(hook_ctx *ctx, struct packet *p)
{
	if (p->flags & P_LOCAL)
		return CONTINUE;
	if (p->flags & P_KNOWN)
		return check_known(p);
	int verdict = check_ttl(p);

	if (verdict == CONTINUE)
		verdict = fib_route(ctx, p);
	if (p->family == 4 && !(p->flags & P_REEVALUATE) && is_dhcp_answer(p) && is_for_client_here(p, verdict))
		return VERDICT_LOCAL;
	return verdict != CONTINUE ? verdict : check_size(p, p->route.mtu);
}

#endif
