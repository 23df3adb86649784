/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Next hops are shared by the sessions that use them: an entry for each neighbour, refreshed by the daemon. Only
 * packets that pass come here, behind their session, so neither denied ones nor those that find a table full take
 * entries.
 */
#ifndef SLUICE_STAGE_NEXTHOP_H
#define SLUICE_STAGE_NEXTHOP_H

#include "lib/tokens.h"
#include "stage/create.h"

static __always_inline __u32 nexthop_allocate(void)
{
	__u32 zero = 0, index = 0;
	struct watermarks *marks = bpf_map_lookup_elem(&watermarks, &zero);

	if (marks && *(volatile __u32 *)&marks->nexthop < MAX_NEXTHOPS - NEXTHOP_FIRST) {
		index = NEXTHOP_FIRST + __sync_fetch_and_add(&marks->nexthop, 1);
		if (index < MAX_NEXTHOPS)
			return index;
	}
	return bpf_map_pop_elem(&free_nexthops, &index) ? NEXTHOP_NONE : index;
}

/* dmac and the first bytes of smac as the one word they are read in, see abi/nexthop.h; 0: not known. */
static __always_inline __u64 link_word(const struct route *route, const struct unit *unit)
{
	__u64 word = 0;

	__builtin_memcpy(&word, route->dmac, 6);
	return route->resolved ? word | (__u64)unit->mac[0] << 48 | (__u64)unit->mac[1] << 56 : 0;
}

static __always_inline __u32 link_rest(const struct unit *unit)
{
	return unit->mac[2] | unit->mac[3] << 8 | unit->mac[4] << 16 | (__u32)unit->mac[5] << 24;
}

static __always_inline __u8 nexthop_flags(const struct route *route)
{
	return NEXTHOP_VALID | (route->resolved ? NEXTHOP_RESOLVED : 0) |
	       (route->resolved == ROUTE_TUNNEL ? NEXTHOP_TUNNEL : 0);
}

/* Whether all of it stands there already. */
static __always_inline bool nexthop_stands(const struct nexthop *nexthop, const struct route *route,
					   const struct unit *unit)
{
	__u8 flags = nexthop_flags(route);

	if ((nexthop->flags & ~NEXTHOP_LEFT) != flags || nexthop->ifindex != unit->phys_ifindex ||
	    nexthop->vlan != unit->vlan || nexthop->mtu != route->mtu || nexthop->host_ifindex != unit->host_ifindex)
		return false;
	return !route->resolved || (*(const volatile __u64 *)nexthop->dmac == link_word(route, unit) &&
				    *(const volatile __u32 *)(nexthop->smac + 2) == link_rest(unit));
}

static __always_inline void nexthop_fill(struct nexthop *nexthop, const struct route *route, const struct unit *unit,
					 __u32 now)
{
	nexthop->ifindex = unit->phys_ifindex;
	nexthop->vlan = unit->vlan;
	nexthop->mtu = route->mtu;
	nexthop->host_ifindex = unit->host_ifindex;
	nexthop->last_used = now;
	if (!route->resolved) {
		nexthop->flags = NEXTHOP_VALID;
		return;
	}
	*(volatile __u64 *)nexthop->dmac = link_word(route, unit);
	*(volatile __u32 *)(nexthop->smac + 2) = link_rest(unit);
	publish(&nexthop->last_used, now);
	nexthop->flags = nexthop_flags(route);
}

static __always_inline void nexthops_have_mtus(void)
{
	__u32 zero = 0;
	struct watermarks *marks = bpf_map_lookup_elem(&watermarks, &zero);

	if (marks && !(marks->nexthops_retired & NEXTHOPS_HAVE_MTUS))
		__sync_fetch_and_or(&marks->nexthops_retired, NEXTHOPS_HAVE_MTUS);
}

/*
 * A neighbour that nobody has asked for yet costs its zone a token, so that a permitted scan leaves the kernel's table
 * and this one to others.
 */
static __always_inline bool zone_may_ask(const struct packet *p)
{
	__u32 zone = p->from_zone;
	struct token_bucket *bucket = bpf_map_lookup_elem(&neighbour_tokens, &zone);

	return bucket && tokens_take(bucket, p->now, NEIGHBOUR_RATE_PER_ZONE);
}

/* What has an entry has paid. */
static __always_inline bool nexthop_may_ask(struct packet *p)
{
	p->route.refused = !p->route.resolved && !zone_may_ask(p);
	return !p->route.refused;
}

/* As the index knows it, or made now. */
static __always_inline __u32 nexthop_number(struct packet *p)
{
	const struct nexthop_key *key = &p->route.key;
	__u32 *found = bpf_map_lookup_elem(&nexthop_index, key);

	if (found)
		return *found;
	if (!nexthop_may_ask(p))
		return NEXTHOP_NONE;
	__u32 index = nexthop_allocate();

	if (index < NEXTHOP_FIRST)
		return NEXTHOP_NONE;
	/* before anybody can find it: the daemon has to know that one neighbour may have several */
	if (key->family >> NEXTHOP_MTU_SHIFT)
		nexthops_have_mtus();
	if (!bpf_map_update_elem(&nexthop_index, key, &index, BPF_NOEXIST))
		return index;
	/* another CPU was first: use its entry */
	bpf_map_push_elem(&free_nexthops, &index, BPF_ANY);
	found = bpf_map_lookup_elem(&nexthop_index, key);
	return found ? *found : NEXTHOP_NONE;
}

static __always_inline bool same_neighbour(const struct nexthop_key *a, const struct nexthop_key *b)
{
	const __u64 *x = (const __u64 *)a, *y = (const __u64 *)b;

	return !((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]));
}

/* Most first packets go where one went before. */
static __always_inline __u32 nexthop_recall(struct packet *p)
{
	const struct nexthop_key *key = &p->route.key;
	__u32 x =
		key->be_addr[0] ^ key->be_addr[1] ^ key->be_addr[2] ^ key->be_addr[3] ^ key->host_ifindex ^ key->family;
	__u32 zero = 0, place = (x * 0x9e3779b1u) >> NEXTHOP_MEMORY_SHIFT;
	struct nexthop_memory *memory = bpf_map_lookup_elem(&nexthop_memory, &place);
	struct watermarks *marks = bpf_map_lookup_elem(&watermarks, &zero);

	if (!memory || !marks)
		return NEXTHOP_NONE;
	__u32 retired = *(volatile __u32 *)&marks->nexthops_retired;

	if (memory->nexthops_retired == retired && memory->index && same_neighbour(&memory->key, key))
		return memory->index;
	memory->key = *key;
	memory->nexthops_retired = retired;
	return memory->index = nexthop_number(p);
}

/* Index of the entry for the packet's route, made if there is none. */
static __always_inline __u32 nexthop_for(struct packet *p)
{
	struct unit *unit = unit_at(p->route.unit_slot);
	__u32 index = nexthop_recall(p);
	struct nexthop *nexthop = nexthop_at(index);

	if (!unit || index < NEXTHOP_FIRST || !nexthop)
		return NEXTHOP_NONE;
	/* Many first packets find it as it must be; CPUs that only read its line share it. */
	if (!nexthop_stands(nexthop, &p->route, unit))
		nexthop_fill(nexthop, &p->route, unit, p->now);
	/* before any session or receiver leads to it */
	if (*(volatile __u32 *)&nexthop->last_used != p->now)
		publish(&nexthop->last_used, p->now);
	return index;
}

/* Why there is no next hop for a packet that has a route. */
static __always_inline __u32 nexthop_refused(const struct packet *p)
{
	return p->route.refused ? DROP(NEIGHBOUR_LIMIT) : DROP(NEXTHOP_TABLE_FULL);
}

/* The session's own direction learns of it; a record that has changed hands meanwhile does not. */
static __always_inline void nexthop_keep(const struct packet *p)
{
	struct flow_state *own = flow_state_at(p->family, p->line);

	if (own && own->tag == p->tag)
		own->nexthop = p->nexthop;
}

/* The way back to whom this host will answer. */
static __always_inline void answer_question(const struct packet *p, const struct unit *unit, struct bpf_fib_lookup *fib)
{
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = unit->host_ifindex;
	fib->l4_protocol = p->proto;
	fib->sport = leaving6(p)->be_dport;
	fib->dport = leaving6(p)->be_sport;
	if (p->family == 4) {
		fib->family = AF_INET;
		fib->ipv4_src = leaving4(p)->be_daddr;
		fib->ipv4_dst = leaving4(p)->be_saddr;
		return;
	}
	const struct flow_key6 *asked = leaving6(p);

	fib->family = AF_INET6;
	for (int i = 0; i < 2; i++) {
		((__u64 *)fib->ipv6_src)[i] = ((__u64 *)asked)[2 + i];
		((__u64 *)fib->ipv6_dst)[i] = ((__u64 *)asked)[i];
	}
}

/*
 * What this host lets in it answers, so whoever forges sources has its stack look for neighbours, of other zones too.
 * Hosts that ask for this one are known to the kernel from then on, and cost nothing.
 */
static __noinline int answer_neighbour(hook_ctx *ctx, struct packet *p)
{
	__u32 zero = 0;
	struct unit *unit = p ? unit_at(p->unit_slot) : NULL;
	struct cpu_memory *memory = bpf_map_lookup_elem(&scratch, &zero);

	if (!unit || !memory)
		return DROP(NEIGHBOUR_LIMIT);
	answer_question(p, unit, &memory->fib);
	if (bpf_fib_lookup(ctx, &memory->fib, sizeof(memory->fib), 0) != BPF_FIB_LKUP_RET_NO_NEIGH || zone_may_ask(p))
		return CONTINUE;
	flow_withdraw(p);
	return DROP(NEIGHBOUR_LIMIT);
}

static __always_inline int stage_nexthop(hook_ctx *ctx, struct packet *p)
{
	if (p->flags & P_LOCAL)
		return p->flags & P_CREATED ? answer_neighbour(ctx, p) : CONTINUE;
	if (!(p->flags & P_ROUTED))
		return CONTINUE;
	p->nexthop = nexthop_for(p);
	if (p->nexthop != NEXTHOP_NONE) {
		if (p->flags & (P_CREATED | P_REEVALUATE))
			nexthop_keep(p);
		return CONTINUE;
	}
	if (p->flags & P_CREATED)
		flow_withdraw(p);
	return nexthop_refused(p);
}

#endif
