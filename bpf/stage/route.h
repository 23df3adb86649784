/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel's FIB gives the next hop; it is cached in the session. Then TTL and path MTU, for every packet. */
#ifndef SLUICE_STAGE_ROUTE_H
#define SLUICE_STAGE_ROUTE_H

#include "lib/nat.h"
#include "lib/nat64_size.h"

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

static __always_inline void nexthop_fill(struct nexthop *nexthop, const struct bpf_fib_lookup *fib,
					 const struct unit *unit, bool resolved, __u32 now)
{
	__u16 mtu = unit->mtu;

	if (resolved && fib->mtu_result >= 68 && fib->mtu_result < mtu)
		mtu = fib->mtu_result;
	nexthop->ifindex = unit->phys_ifindex;
	nexthop->vlan = unit->vlan;
	nexthop->mtu = mtu;
	nexthop->unit = unit->index;
	nexthop->host_ifindex = unit->host_ifindex;
	nexthop->last_used = now;
	if (!resolved) {
		nexthop->flags = NEXTHOP_VALID;
		return;
	}
	/* dmac in one store, see abi/nexthop.h */
	__u64 word = 0;

	__builtin_memcpy(&word, fib->dmac, 6);
	word |= (__u64)unit->mac[0] << 48 | (__u64)unit->mac[1] << 56;
	*(volatile __u64 *)nexthop->dmac = word;
	__builtin_memcpy(nexthop->smac + 2, unit->mac + 2, 4);
	nexthop->flags = NEXTHOP_VALID | NEXTHOP_RESOLVED;
}

/* As the index knows it, or made now. */
static __always_inline __u32 nexthop_number(const struct nexthop_key *key)
{
	__u32 *found = bpf_map_lookup_elem(&nexthop_index, key);

	if (found)
		return *found;
	__u32 index = nexthop_allocate();

	if (index < NEXTHOP_FIRST)
		return NEXTHOP_NONE;
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
static __always_inline __u32 nexthop_recall(const struct nexthop_key *key)
{
	__u32 x = key->be_addr[0] ^ key->be_addr[1] ^ key->be_addr[2] ^ key->be_addr[3] ^ key->host_ifindex;
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
	return memory->index = nexthop_number(key);
}

/* Index of the entry for this FIB result, made if there is none. */
static __noinline int nexthop_for(const struct bpf_fib_lookup *fib, __u32 unit_slot, __u32 resolved, __u32 now)
{
	if (!fib)
		return NEXTHOP_NONE;
	struct unit *unit = unit_at(unit_slot);
	struct nexthop_key key __attribute__((aligned(8))) = {.host_ifindex = fib->ifindex};

	key.family = fib->family == AF_INET ? 4 : 6;
	if (!unit)
		return NEXTHOP_NONE;
	if (fib->family == AF_INET)
		key.be_addr[0] = fib->ipv4_dst;
	else
		__builtin_memcpy(key.be_addr, fib->ipv6_dst, 16);
	__u32 index = nexthop_recall(&key);
	struct nexthop *nexthop = nexthop_at(index);

	if (index < NEXTHOP_FIRST || !nexthop)
		return NEXTHOP_NONE;
	nexthop_fill(nexthop, fib, unit, resolved, now);
	return index;
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

static __noinline int fib_route(hook_ctx *ctx, struct packet *p)
{
	struct bpf_fib_lookup fib ALIGNED_KEY = {};
	__u32 slot;

	if (!p)
		return DROP(NO_ROUTE);
	struct unit *unit = unit_at(p->unit_slot);

	if (!unit)
		return DROP(NO_ROUTE);
	fib.ifindex = unit->host_ifindex;
	fib.l4_protocol = p->proto;
	fib.sport = p->key6.be_sport;
	fib.dport = leaving6(p)->be_dport;
	fib.tot_len = 1; /* asks for the route's MTU */
	if (p->nat64 ? p->wire == 6 : p->family == 4) {
		fib.family = AF_INET;
		fib.tos = p->traffic_class;
		/* which source a packet of the other family gets is not known yet */
		fib.ipv4_src = p->nat64 ? 0 : p->key4.be_saddr;
		fib.ipv4_dst = p->nat64 ? leaving6(p)->be_daddr[3] : leaving4(p)->be_daddr;
	} else {
		fib.family = AF_INET6;
		/* in the words the kernel reads, see key_last_word() */
		const struct flow_key6 *leaving = leaving6(p);

		for (int i = 0; i < 2; i++) {
			((__u64 *)fib.ipv6_src)[i] = ((__u64 *)&p->key6)[i];
			((__u64 *)fib.ipv6_dst)[i] = ((__u64 *)leaving)[2 + i];
		}
	}
	long code = bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);

	if (code != BPF_FIB_LKUP_RET_SUCCESS && code != BPF_FIB_LKUP_RET_NO_NEIGH)
		return fib_verdict(p, code);
	unit = unit_find(fib.ifindex, 0, &slot);
	if (!unit)
		return DROP(NO_EGRESS_UNIT);
	p->to_zone = unit->zone;
	p->nexthop = nexthop_for(&fib, slot, code == BPF_FIB_LKUP_RET_SUCCESS, p->now);
	return p->nexthop == NEXTHOP_NONE ? DROP(NEXTHOP_TABLE_FULL) : CONTINUE;
}

/* RFC 1812 5.3.1 and 4.2.3.1, RFC 8201: what cannot go on is answered. */
static __always_inline int check_hop(struct packet *p)
{
	struct nexthop *nexthop = nexthop_at(p->nexthop);

	if (!nexthop)
		return DROP(NO_ROUTE);
	if (p->nat64)
		return nat64_check_size(p, nexthop->mtu);
	if (p->segment_len > nexthop->mtu) {
		p->reply = REPLY_TOO_BIG;
		p->reply_mtu = nexthop->mtu;
		return DROP_AND_REPLY(TOO_BIG);
	}
	return CONTINUE;
}

static __always_inline int stage_route(hook_ctx *ctx, struct packet *p)
{
	if (p->flags & P_LOCAL)
		return CONTINUE;
	if (p->ttl <= 1) {
		p->reply = REPLY_TIME_EXCEEDED;
		return DROP_AND_REPLY(TTL_EXCEEDED);
	}
	if (!(p->flags & P_KNOWN)) {
		int verdict = fib_route(ctx, p);

		if (verdict != CONTINUE)
			return verdict;
	}
	return check_hop(p);
}

#endif
