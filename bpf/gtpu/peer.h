/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where a tunnel's outer packets go: the entry of the table of next hops that the kernel's FIB led to, asked again
 * after a while. The table keeps MAC addresses true, so only changes of routes wait for that.
 */
#ifndef SLUICE_GTPU_PEER_H
#define SLUICE_GTPU_PEER_H

#include "gtpu/lines.h"
#include "stage/nexthop.h"
#include "stage/route.h"

/* `gtpu_peer.nexthop`: index of the entry, above it the low half of jiffies until which it holds. */
#define GTPU_NEXTHOP(INDEX, UNTIL) ((__u64)(UNTIL) << 32 | (INDEX))

static __always_inline void gtpu_peer_question(const struct gtpu_peer *peer, struct bpf_fib_lookup *fib)
{
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = peer->ifindex;
	fib->l4_protocol = IPPROTO_UDP;
	fib->dport = bpf_htons(GTPU_PORT);
	fib->tot_len = 1; /* asks for the route's MTU */
	if (peer->family == 4) {
		fib->family = AF_INET;
		fib->ipv4_src = peer->be_local[0];
		fib->ipv4_dst = peer->be_remote[0];
		return;
	}
	fib->family = AF_INET6;
	for (int i = 0; i < 4; i++) {
		fib->ipv6_src[i] = peer->be_local[i];
		fib->ipv6_dst[i] = peer->be_remote[i];
	}
}

/* Index of the next hop, or NEXTHOP_NONE. Now and then, so once in a program. */
__noinline __u32 gtpu_ask(hook_ctx *ctx, __u32 number, __u32 zone)
{
	__u32 zero = 0, slot;
	struct gtpu_peer *peer = gtpu_peer_at(number);
	struct cpu_memory *memory = bpf_map_lookup_elem(&scratch, &zero);

	if (!peer || !memory || !peer->family)
		return NEXTHOP_NONE;
	struct bpf_fib_lookup *fib = &memory->fib;
	struct packet *p = &memory->packet;

	gtpu_peer_question(peer, fib);
	long code = bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);

	if (code != BPF_FIB_LKUP_RET_SUCCESS && code != BPF_FIB_LKUP_RET_NO_NEIGH)
		return NEXTHOP_NONE;
	struct unit *unit = unit_find(fib->ifindex, 0, &slot);

	/* a tunnel in a tunnel would never end */
	if (!unit || is_mobile(unit))
		return NEXTHOP_NONE;
	p->now = jiffies_now();
	p->from_zone = zone;
	note_route(p, fib, unit, slot, code == BPF_FIB_LKUP_RET_SUCCESS);
	note_route_mtu(p, fib, unit);
	/* of a neighbour that is not resolved the kernel tells nothing but its address */
	if (code == BPF_FIB_LKUP_RET_NO_NEIGH) {
		gtpu_peer_question(peer, fib);
		if (bpf_fib_lookup(ctx, fib, sizeof(*fib), BPF_FIB_LOOKUP_SKIP_NEIGH) == BPF_FIB_LKUP_RET_SUCCESS)
			note_route_mtu(p, fib, unit);
	}
	__u32 index = nexthop_for(p);

	if (index >= NEXTHOP_FIRST)
		*(volatile __u64 *)&peer->nexthop = GTPU_NEXTHOP(index, p->now + config.hz / 2);
	return index;
}

/* Which neighbour a packet waits for that is not resolved yet: the table of next hops does not say. */
static __always_inline const struct nexthop_key *gtpu_neighbour(hook_ctx *ctx, __u32 number, __u32 zone)
{
	__u32 zero = 0;
	struct cpu_memory *memory = bpf_map_lookup_elem(&scratch, &zero);

	return memory && gtpu_ask(ctx, number, zone) >= NEXTHOP_FIRST ? &memory->packet.route.key : NULL;
}

static __always_inline struct nexthop *gtpu_nexthop(hook_ctx *ctx, const struct gtpu_peer *peer, __u32 number,
						    __u32 zone)
{
	__u64 word = *(const volatile __u64 *)&peer->nexthop;
	__u32 index = (__u32)word, left = (__u32)(word >> 32) - jiffies_now();

	if (index < NEXTHOP_FIRST || left > config.hz)
		index = gtpu_ask(ctx, number, zone);
	return index < NEXTHOP_FIRST ? NULL : nexthop_at(index);
}

#endif
