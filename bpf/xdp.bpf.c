// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The XDP hook: root, short paths, phases of the slow path. */
#include "lib/hook_xdp.h"
#include "root.h"
#include "fast.h"
#include "fanout/path.h"
#include "gate/ungranted.h"
#include "nat64/path.h"
#include "slow.h"
#include "gtpu/decap.h"
#include "gtpu/device.h"
#include "gtpu/encap.h"
#include "gtpu/signal.h"
#include "sweep.h"
#include "gate/alone.h"

SEC("xdp.frags")
int xdp_root(struct xdp_md *ctx)
{
	root_dispatch(ctx, root_variant, PROGRAM_FAST);
	count_no_generation(1);
	return XDP_DROP;
}

/* The first program on a CPU that has packets from others: its own array is called `programs`, too. */
SEC("xdp.frags")
int cpu_root(struct xdp_md *ctx)
{
	__u32 variant = spread_take(ctx);

	/* a branch for each: an index that is no constant is a slower call */
	for (__u32 i = 0; i < MAX_VARIANTS; i++)
		if (variant == i)
			root_dispatch(ctx, i, PROGRAM_FAST);
	count_no_generation(1);
	return XDP_DROP;
}

SEC("xdp.frags")
int xdp_fast(struct xdp_md *ctx)
{
	trace_comes(ctx);
	int action = fast_path(ctx, false);

	if (config.stage_mask & STAGE_BIT(GTPU)) {
		if (action <= GO(FAST))
			arrived_by_device();
		CALL_NEXT(ctx, action, GTPU_ENCAP);
		CALL_NEXT(ctx, action, GTPU_DECAP);
		CALL_NEXT(ctx, action, GTPU_DEVICE);
	}
	CALL_BEHIND_FAST(ctx, action);
}

SEC("xdp.frags")
int xdp_gtpu_decap(struct xdp_md *ctx)
{
	int action = gtpu_decap_path(ctx);

	CALL_NEXT(ctx, action, ADMIT);
	CALL_NEXT(ctx, action, FAST_INNER);
	CALL_COUNTED(ctx, action, GTPU_ENCAP);
	CALL_COUNTED(ctx, action, GTPU_SIGNAL);
	CALLED_OR_DONE(ctx, action);
}

SEC("xdp.frags")
int xdp_gtpu_signal(struct xdp_md *ctx)
{
	int action = gtpu_signal_path(ctx);

	/* an error that goes on as if it had come by a mobile interface */
	CALL_NEXT(ctx, action, FAST_INNER);
	return trace_leaves(ctx, action == GO(FAST_INNER) ? HOOK_DROP : action, TRACE_SHORT);
}

SEC("xdp.frags")
int xdp_fast_inner(struct xdp_md *ctx)
{
	int action = fast_path(ctx, true);

	CALL_NEXT(ctx, action, GTPU_ENCAP);
	CALL_BEHIND_FAST(ctx, action);
}

SEC("xdp.frags")
int xdp_gtpu_device(struct xdp_md *ctx)
{
	int action = gtpu_device_path(ctx);

	CALL_COUNTED(ctx, action, GTPU_ENCAP);
	CALLED_OR_DONE(ctx, action);
}

SEC("xdp.frags")
int xdp_gtpu_encap(struct xdp_md *ctx)
{
	int action = gtpu_encap_path(ctx);

	/* to tell its sender: it was counted as dropped */
	CALL_NEXT(ctx, action, GTPU_SIGNAL);
	return trace_leaves(ctx, action == GO(GTPU_SIGNAL) ? HOOK_DROP : action, TRACE_SHORT);
}

SEC("xdp.frags")
int xdp_fanout(struct xdp_md *ctx)
{
	int action = fanout_path(ctx);

	CALL_NEXT(ctx, action, ADMIT);
	CALLED_OR_DONE(ctx, action);
}

SEC("xdp.frags")
int xdp_ungranted(struct xdp_md *ctx)
{
	int action = ungranted_path(ctx);

	CALL_NEXT(ctx, action, ADMIT);
	CALLED_OR_DONE(ctx, action);
}

SEC("xdp.frags")
int xdp_nat64(struct xdp_md *ctx)
{
	int action = nat64_path(ctx);

	CALL_COUNTED(ctx, action, GTPU_ENCAP);
	CALL_NEXT(ctx, action, ADMIT);
	CALLED_OR_DONE(ctx, action);
}

SEC("xdp.frags")
int xdp_admit(struct xdp_md *ctx)
{
	int action = admit_phase(ctx);

	if (config.stage_mask & STAGE_BIT(GTPU))
		CALL_NEXT(ctx, action, GTPU_DECAP);
	CALL_NEXT(ctx, action, JUDGE);
	CALL_NEXT(ctx, action, LEAVE);
	CALLED_OR_DONE(ctx, action);
}

SEC("xdp.frags")
int xdp_judge(struct xdp_md *ctx)
{
	int action = judge_phase(ctx);

	CALL_NEXT(ctx, action, RECORD);
	CALL_NEXT(ctx, action, LEAVE);
	CALLED_OR_DONE(ctx, action);
}

SEC("xdp.frags")
int xdp_record(struct xdp_md *ctx)
{
	int action = record_phase(ctx);

	if (action == GO(LEAVE)) {
		tail_call_constant(ctx, &programs, PROGRAM_SLOT(config.slot, config.variant, PROGRAM_LEAVE));
		record_failed();
		count_no_generation(hook_segments(ctx));
	}
	return HOOK_DROP;
}

SEC("xdp.frags")
int xdp_leave(struct xdp_md *ctx)
{
	int action = leave_phase(ctx);

	CALL_COUNTED(ctx, action, GTPU_ENCAP);
	return trace_leaves(ctx, action, TRACE_SLOW);
}

/* In the root's place, on devices that have the gate alone before them. */
SEC("xdp.frags")
int xdp_gate(struct xdp_md *ctx)
{
	int verdict = gate_only(ctx);

	if (verdict != GATE_HAND_ON)
		return verdict;
	root_dispatch(ctx, root_variant, PROGRAM_FAST);
	count_no_generation(1);
	return XDP_DROP;
}

/*
 * Ends the sessions that user space lists, by test run: bucket locks are only for where softirqs are off. A record that
 * was re-used since it was listed stays.
 */
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

		if (!entry || !entry->line)
			continue;
		header->reaped += header->family == 4 ? flow_delete4(entry->line, entry->tag, CLOSE_CLEARED)
						      : flow_delete6(entry->line, entry->tag, CLOSE_CLEARED);
	}
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
