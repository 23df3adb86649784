/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tells the daemon of packets that were dropped: what they were, and what is known of why. Counting is not done here,
 * and does not depend on it: what is beyond a share's rate, or finds the buffer full, is only counted.
 */
#ifndef SLUICE_LIB_DROPPED_H
#define SLUICE_LIB_DROPPED_H

#include "lib/tokens.h"
#include "trace/hooks.h"

/* Frames are longer than a link header; said so that every verifier sees it. */
static __always_inline __u32 dropped_length(hook_ctx *ctx)
{
	__u32 length = hook_frame_len(ctx);

	if (length > DROPPED_HEAD)
		length = DROPPED_HEAD;
	barrier_var(length);
	return ((length - 1) & (DROPPED_HEAD - 1)) + 1;
}

static __always_inline void dropped_facts(struct dropped *told, const struct packet *p)
{
	told->when = p->now;
	told->ifindex = p->ifindex;
	told->vlan = p->vlan;
	told->segments = p->segments;
	told->policy = p->rule_policy;
	told->unit = p->unit_index;
	told->from_zone = p->from_zone;
	told->to_zone = p->to_zone;
	told->nat_destination = p->nat_destination;
	told->nat_source = p->nat_source;
	told->be_sport = p->key6.be_sport;
	told->be_dport = p->key6.be_dport;
	told->l3 = p->l3;
	told->l4 = p->l4;
	told->proto = p->proto;
	__builtin_memset(told->spare, 0, sizeof(told->spare));
}

/* Hardly ever, so once in a program: 1 if the daemon is told. */
__noinline int send_dropped(hook_ctx *ctx, const struct packet *p, __u32 reason, __u32 untold)
{
	if (!p)
		return 0;
	struct dropped *told = bpf_ringbuf_reserve(&dropped, sizeof(*told), 0);

	if (!told)
		return 0;
	dropped_facts(told, p);
	told->reason = reason;
	told->untold = untold;
	told->length = dropped_length(ctx);
	if (!hook_load(ctx, 0, told->head, dropped_length(ctx)))
		told->length = 0;
	bpf_ringbuf_submit(told, 0);
	return 1;
}

/* `p` is this CPU's. */
static __always_inline void tell_drop(hook_ctx *ctx, const struct packet *p, __u32 reason)
{
	__u32 zero = 0, share = DROPPED_SHARE(p->unit_index, reason);
	struct token_bucket *bucket = bpf_map_lookup_elem(&dropped_tokens, &share);
	struct cpu_memory *memory = bpf_map_lookup_elem(&scratch, &zero);

	trace_reason(reason);
	if (!bucket || !memory)
		return;
	if (tokens_take(bucket, p->now, DROPPED_RATE) && send_dropped(ctx, p, reason, memory->untold))
		memory->untold = 0;
	else
		memory->untold += p->segments;
}

/* The same of a packet that a short path drops: no other one has the scratch of its CPU meanwhile. */
static __always_inline void tell_short(hook_ctx *ctx, __u32 ifindex, __u32 unit_index, __u32 zone, __u32 reason,
				       __u32 l3, __u32 vlan)
{
	__u32 zero = 0;
	struct packet *p = bpf_map_lookup_elem(&scratch, &zero);

	if (!p)
		return;
	p->now = jiffies_now();
	p->ifindex = ifindex;
	p->segments = hook_segments(ctx);
	p->unit_index = unit_index;
	p->from_zone = zone;
	p->vlan = vlan;
	p->l3 = l3;
	p->rule_policy = p->to_zone = p->nat_destination = p->nat_source = 0;
	p->key6.be_sport = p->key6.be_dport = p->l4 = p->proto = 0;
	tell_drop(ctx, p, reason);
}

#endif
