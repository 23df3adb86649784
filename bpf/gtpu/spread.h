/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One base station sends all that its subscribers send as one outer flow, so a NIC hands all of it to one CPU. XDP
 * looks into the tunnel there, and leaves packets to CPUs by their inner flow: each flow keeps its CPU and its order.
 * The CPUs' programs are the gateway's own, in a program array of their own, since the kernel tells them apart by where
 * they are attached (BPF_XDP_CPUMAP).
 *
 * A queue that is full makes a named drop here: what is on its way to a CPU is counted, and never more than its queue
 * holds.
 */
#ifndef SLUICE_GTPU_SPREAD_H
#define SLUICE_GTPU_SPREAD_H

#include "gtpu/parse.h"

/* What a packet takes along; the program on the other CPU serves devices of every variant. */
struct spread_note {
	__u32 magic;
	__u32 variant;
};

#define SPREAD_MAGIC 0x53505244 /* "SPRD" */

#if HOOK_SPREADS

/* The share of the inner flow. Traffic class and flow label are no part of it: a flow's packets may differ in them. */
static __always_inline __u32 spread_share(hook_ctx *ctx, __u32 at)
{
	struct iphdr *ip = hook_data(ctx) + (at & GTPU_LINEAR);
	struct ipv6hdr *ip6 = (void *)ip;
	__u32 x;

	if (at > GTPU_LINEAR || (void *)(ip + 1) > hook_end(ctx))
		return 0;
	if (*(__u8 *)ip >> 4 == 4)
		x = gtpu_flow_word4(ctx, ip);
	else if ((void *)(ip6 + 1) <= hook_end(ctx))
		x = gtpu_flow_word6(ctx, ip6);
	else
		return 0;
	x ^= x >> 16;
	return x * 0x9e3779b1u >> (32 - SPREAD_SHARE_BITS);
}

static __always_inline bool spread_leave_note(hook_ctx *ctx)
{
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(struct spread_note)))
		return false;
	struct spread_note *note = (void *)(long)ctx->data_meta;

	if ((void *)(note + 1) > hook_data(ctx))
		return false;
	note->magic = SPREAD_MAGIC;
	note->variant = config.variant;
	return true;
}

/* A packet of user data: HOOK_LEFT where it is another CPU's, which counts it as received. */
static __always_inline int gtpu_spread(hook_ctx *ctx, const struct gtpu_work *work)
{
	__u32 slot;

	if ((config.flags & CONFIG_ON_CPU) || work->type != GTPU_G_PDU || !generation.spread_limit)
		return CONTINUE;
	/* generic XDP has an skb, whose device's packets the kernel can spread by itself (RPS) */
	if (unit_find(hook_ifindex(ctx), VLAN_GENERIC, &slot))
		return CONTINUE;
	__u32 cpu = generation.spread[spread_share(ctx, work->body) & (SPREAD_SHARES - 1)];
	struct spread_queue *queue = bpf_map_lookup_elem(&spread_queues, &cpu);

	if (!queue || cpu == bpf_get_smp_processor_id())
		return CONTINUE;
	if ((__s64)(*(volatile __u64 *)&queue->sent - *(volatile __u64 *)&queue->taken) >= generation.spread_limit)
		return DROP(GTPU_QUEUE);
	if (!spread_leave_note(ctx))
		return CONTINUE;
	atomic_add(&queue->sent, 1);
	if (bpf_redirect_map(&spread_cpus, cpu, 0) == HOOK_LEFT)
		return HOOK_LEFT;
	/* nobody waits on that CPU any more */
	atomic_add(&queue->sent, -1);
	return bpf_xdp_adjust_meta(ctx, sizeof(struct spread_note)) ? DROP(REWRITE_FAILED) : CONTINUE;
}

/* On the other CPU: the note comes off. Of which variant the packet is, or MAX_VARIANTS. */
static __always_inline __u32 spread_take(hook_ctx *ctx)
{
	struct spread_note *note = (void *)(long)ctx->data_meta;
	__u32 cpu = bpf_get_smp_processor_id(), variant = MAX_VARIANTS;
	struct spread_queue *queue = bpf_map_lookup_elem(&spread_queues, &cpu);

	if (queue)
		queue->taken += 1;
	if ((void *)(note + 1) <= hook_data(ctx) && note->magic == SPREAD_MAGIC)
		variant = note->variant;
	return bpf_xdp_adjust_meta(ctx, sizeof(struct spread_note)) ? MAX_VARIANTS : variant;
}

#else
static __always_inline int gtpu_spread(hook_ctx *ctx, const struct gtpu_work *work)
{
	return CONTINUE;
}
#endif

#endif
