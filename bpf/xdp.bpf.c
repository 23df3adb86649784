// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The XDP hook: root, fast, slow. */
#include "lib/hook_xdp.h"
#include "root.h"
#include "fast.h"
#include "slow.h"

SEC("xdp.frags")
int xdp_root(struct xdp_md *ctx)
{
	root_dispatch(ctx, PROGRAM_FAST);
	count_no_generation(1);
	return XDP_DROP;
}

SEC("xdp.frags")
int xdp_fast(struct xdp_md *ctx)
{
	int action = fast_line(ctx);

	if (action != GO_SLOW)
		return action;
	tail_call_constant(ctx, &programs, PROGRAM_SLOT(config.slot, config.variant, PROGRAM_SLOW));
	count_no_generation(1);
	return XDP_DROP;
}

SEC("xdp.frags")
int xdp_slow(struct xdp_md *ctx)
{
	return slow_line(ctx);
}

/*
 * Ends the sessions that user space lists, by test run: bucket locks are only for where softirqs are off. A record that
 * was re-used or seen since it was listed stays.
 */
static __always_inline bool reap_one(const struct reap_entry *entry, __u8 family, bool always)
{
	struct flow_state *state = flow_state_at(family, entry->line);
	struct flow_state *forward = flow_state_at(family, entry->line & ~1u);
	struct flow_state *back = flow_state_at(family, entry->line | 1);

	if (!state || !forward || !back || state->tag != entry->tag)
		return false;
	if (!always && (forward->last_seen != entry->last_seen[0] || back->last_seen != entry->last_seen[1]))
		return false;
	__u32 cause = always ? CLOSE_CLEARED : CLOSE_IDLE;

	return family == 4 ? flow_delete4(entry->line, cause) : flow_delete6(entry->line, cause);
}

SEC("xdp")
int xdp_reap(struct xdp_md *ctx)
{
	__u32 zero = 0, i;
	struct reap_header *header = bpf_map_lookup_elem(&reap_header, &zero);

	if (!header || header->count > REAP_MAX)
		return XDP_ABORTED;
	header->reaped = 0;
	bpf_for (i, 0, header->count) {
		struct reap_entry *entry = bpf_map_lookup_elem(&reap_list, &i);

		if (entry && entry->line && reap_one(entry, header->family, header->flags & REAP_ALWAYS))
			header->reaped++;
	}
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
