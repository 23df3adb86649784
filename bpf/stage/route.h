/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel's FIB says where a packet goes, then TTL and path MTU are looked at. Nothing here leaves a trace: what is
 * found stands in the packet until it may pass (stage/nexthop.h), so what policies deny takes no room in any table.
 */
#ifndef SLUICE_STAGE_ROUTE_H
#define SLUICE_STAGE_ROUTE_H

#include "gtpu/work.h"
#include "lib/host_inbound.h"
#include "lib/instance.h"
#include "nat/rules.h"
#include "nat64/size.h"

static __always_inline bool fib_leads_on(long code)
{
	return code == BPF_FIB_LKUP_RET_SUCCESS || code == BPF_FIB_LKUP_RET_NO_NEIGH;
}

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

static __always_inline void note_neighbour(struct nexthop_key *key, const struct bpf_fib_lookup *fib)
{
	bool v4 = fib->family == AF_INET;

	key->host_ifindex = fib->ifindex;
	key->family = v4 ? 4 : 6;
	key->be_addr[0] = v4 ? fib->ipv4_dst : fib->ipv6_dst[0];
	for (int i = 1; i < 4; i++)
		key->be_addr[i] = v4 ? 0 : fib->ipv6_dst[i];
}

static __always_inline void note_route(struct packet *p, const struct bpf_fib_lookup *fib, const struct unit *unit,
				       __u32 slot, bool resolved)
{
	struct route *route = &p->route;

	note_neighbour(&route->key, fib);
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

static __always_inline void fib_question(struct packet *p, __u32 ifindex, struct bpf_fib_lookup *fib)
{
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = ifindex;
	fib->l4_protocol = p->proto;
	fib->sport = p->key6.be_sport + p->other_port;
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

/*
 * The device by which another instance is asked after this answer, 0 = it stands. A route to a VRF device is a question
 * to its table. One to the main table is of type `throw`, behind which bpf_fib_lookup goes on by itself for IPv4 alone;
 * it does not say what it was, but nothing else of an instance ends so: what no route knows is unreachable there.
 */
static __always_inline __u32 asked_next(const struct packet *p, const struct bpf_fib_lookup *fib, long code)
{
	__u32 slot;

	if (fib_leads_on(code))
		return unit_find(fib->ifindex, VLAN_INSTANCE, &slot) ? fib->ifindex : 0;
	struct routing_instance *main =
		code == BPF_FIB_LKUP_RET_NOT_FWDED && p->route_instance ? routing_instances_at(0) : NULL;

	return main ? main->ifindex : 0;
}

/* Circles are refused where they are configured; a way through more tables than this ends as one without a route. */
#define INSTANCES_ON_WAY 4

/* Goes on from one table to the next, where that is what they say. A function, for the stack of its callers. */
__noinline long fib_follow(hook_ctx *ctx, struct packet *p, long code)
{
	__u32 zero = 0;
	struct cpu_memory *memory = bpf_map_lookup_elem(&scratch, &zero);

	if (!p || !memory)
		return BPF_FIB_LKUP_RET_NOT_FWDED;
	int i;

	bpf_for (i, 1, INSTANCES_ON_WAY) {
		__u32 next = asked_next(p, &memory->fib, code);

		if (!next || next == p->asked)
			return code;
		p->asked = next;
		fib_question(p, next, &memory->fib);
		code = bpf_fib_lookup(ctx, &memory->fib, sizeof(memory->fib), 0);
	}
	return asked_next(p, &memory->fib, code) ? BPF_FIB_LKUP_RET_NOT_FWDED : code;
}

/* What one table says. */
static __always_inline long fib_ask(hook_ctx *ctx, struct packet *p, const struct unit *unit,
				    struct bpf_fib_lookup *fib)
{
	p->asked = asking_device(p, unit);
	fib_question(p, p->asked, fib);
	return bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);
}

/* What the last one says. */
static __always_inline long fib_ask_through(hook_ctx *ctx, struct packet *p, const struct unit *unit,
					    struct bpf_fib_lookup *fib)
{
	long code = fib_ask(ctx, p, unit, fib);

	return has_instances() ? fib_follow(ctx, p, code) : code;
}

/* Ports that are tried for a next hop: of four alike one is missed in 10,000 times. */
#define PORTS_TRIED 32

/*
 * Among next hops of one route the kernel chooses by a hash of addresses and ports, over those that are there: where
 * one comes or goes, flows of the others would move with it. So a session keeps the one that it has as long as the
 * route has it, too, which shows when the same is asked with other ports. The answer is the kernel's in either case.
 */
__noinline long fib_keep(hook_ctx *ctx, struct packet *p, long code)
{
	__u32 zero = 0;
	struct cpu_memory *memory = bpf_map_lookup_elem(&scratch, &zero);
	struct unit *unit = p ? unit_at(p->unit_slot) : NULL;
	struct flow_state *own = p ? flow_state_at(p->family, p->line) : NULL;
	struct nexthop *nexthop = own && nexthop_is_known(own->nexthop) ? nexthop_at(own->nexthop) : NULL;

	if (!unit || !memory || !nexthop)
		return code;
	struct bpf_fib_lookup *fib = &memory->fib;
	__u8 of_interest = NEXTHOP_RESOLVED | NEXTHOP_TUNNEL | NEXTHOP_LEFT;

	if ((nexthop->flags & of_interest) != NEXTHOP_RESOLVED)
		return code;
	int i;

	bpf_for (i, 1, PORTS_TRIED + 1) {
		if (code == BPF_FIB_LKUP_RET_SUCCESS && fib->ifindex == nexthop->host_ifindex &&
		    !__builtin_memcmp(fib->dmac, nexthop->dmac, 6))
			return code;
		p->other_port = bpf_htons(i);
		code = fib_ask_through(ctx, p, unit, fib);
	}
	p->other_port = 0;
	return fib_ask_through(ctx, p, unit, fib);
}

/*
 * Which neighbour a packet waits for whose session knows its next hop: the table does not say. True where a route leads
 * over that device, `route.key` is its neighbour then.
 */
__noinline int fib_neighbour(hook_ctx *ctx, struct packet *p)
{
	__u32 zero = 0;
	struct cpu_memory *memory = bpf_map_lookup_elem(&scratch, &zero);
	struct unit *unit = p ? unit_at(p->unit_slot) : NULL;
	struct nexthop *nexthop = p ? nexthop_at(p->nexthop) : NULL;

	if (!unit || !memory || !nexthop)
		return false;
	int i;

	bpf_for (i, 0, PORTS_TRIED) {
		p->other_port = bpf_htons(i);
		long code = fib_ask_through(ctx, p, unit, &memory->fib);

		if (fib_leads_on(code) && memory->fib.ifindex == nexthop->host_ifindex) {
			note_neighbour(&p->route.key, &memory->fib);
			return true;
		}
	}
	return false;
}

/* Of a neighbour that is not resolved the kernel tells nothing but its address: the route's MTU is asked for again. */
static __noinline int ask_route_mtu(hook_ctx *ctx, struct packet *p)
{
	__u32 zero = 0;
	struct unit *to = p ? unit_at(p->route.unit_slot) : NULL;
	struct cpu_memory *memory = bpf_map_lookup_elem(&scratch, &zero);

	if (!p || !to || !memory)
		return 0;
	struct bpf_fib_lookup *fib = &memory->fib;

	fib_question(p, p->asked, fib);
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

/* Answers are looked for in the instance that the session's route led into; where that is another one now, it ends. */
static __always_inline bool leaves_instance(const struct packet *p, const struct unit *unit)
{
	return has_instances() && (p->flags & P_REEVALUATE) && !(p->flags & P_RESPONDER) &&
	       unit->routing_instance != instance_beyond(p);
}

static __always_inline int fib_route(hook_ctx *ctx, struct packet *p, const bool may_keep)
{
	__u32 slot, zero = 0;
	struct unit *unit = unit_at(p->unit_slot);
	struct cpu_memory *memory = bpf_map_lookup_elem(&scratch, &zero);

	if (!unit || !memory)
		return DROP(NO_ROUTE);
	/* its 64 bytes would take the room of a call on the stack */
	struct bpf_fib_lookup *fib = &memory->fib;

	long code = fib_ask(ctx, p, unit, fib);

	unit = fib_leads_on(code) ? unit_find(fib->ifindex, 0, &slot) : NULL;
	/* what leads to a unit leads to no other table, which is nearly everything */
	if (!unit && has_instances())
		code = fib_follow(ctx, p, code);
	if (may_keep && (p->flags & P_REEVALUATE) && fib_leads_on(code)) {
		code = fib_keep(ctx, p, code);
		unit = NULL;
	}
	if (!fib_leads_on(code))
		return fib_verdict(p, code);
	unit = unit ?: unit_find(fib->ifindex, 0, &slot);
	if (!unit)
		return DROP(NO_EGRESS_UNIT);
	if (leaves_instance(p, unit))
		return DROP(INSTANCE_CHANGED);
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

/* `may_keep`: it may belong to a session that has a next hop. */
static __always_inline int find_route(hook_ctx *ctx, struct packet *p, const bool may_keep)
{
	if (p->flags & P_LOCAL)
		return CONTINUE;
	if (p->flags & P_KNOWN)
		return check_known(p);
	int verdict = check_ttl(p);

	if (verdict == CONTINUE)
		verdict = fib_route(ctx, p, may_keep);
	if (p->family == 4 && !(p->flags & P_REEVALUATE) && is_dhcp_answer(p) && is_for_client_here(p, verdict))
		return VERDICT_LOCAL;
	return verdict != CONTINUE ? verdict : check_size(p, p->route.mtu);
}

static __always_inline int stage_route(hook_ctx *ctx, struct packet *p)
{
	return find_route(ctx, p, true);
}

#endif
