// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The tc hook: root, short paths, phases of the slow path; the egress program of every managed device; the finish of
 * XDP's hand-offs. */
#include "lib/hook_tc.h"
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
#include "stage/egress.h"
#include "gate/alone.h"

__u64 clock_jiffies SEC(".data.clock") = 0;

SEC("tc")
int tc_root(struct __sk_buff *ctx)
{
	root_dispatch(ctx, root_variant, PROGRAM_FAST);
	count_no_generation(hook_segments(ctx));
	return TC_ACT_SHOT;
}

SEC("tc")
int tc_fast(struct __sk_buff *ctx)
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

SEC("tc")
int tc_gtpu_decap(struct __sk_buff *ctx)
{
	int action = gtpu_decap_path(ctx);

	CALL_NEXT(ctx, action, ADMIT);
	CALL_NEXT(ctx, action, FAST_INNER);
	CALL_COUNTED(ctx, action, GTPU_ENCAP);
	CALL_COUNTED(ctx, action, GTPU_SIGNAL);
	CALLED_OR_DONE(ctx, action);
}

SEC("tc")
int tc_gtpu_signal(struct __sk_buff *ctx)
{
	int action = gtpu_signal_path(ctx);

	/* an error that goes on as if it had come by a mobile interface */
	CALL_NEXT(ctx, action, FAST_INNER);
	return trace_leaves(ctx, action == GO(FAST_INNER) ? HOOK_DROP : action, TRACE_SHORT);
}

SEC("tc")
int tc_fast_inner(struct __sk_buff *ctx)
{
	int action = fast_path(ctx, true);

	CALL_NEXT(ctx, action, GTPU_ENCAP);
	CALL_BEHIND_FAST(ctx, action);
}

SEC("tc")
int tc_gtpu_device(struct __sk_buff *ctx)
{
	int action = gtpu_device_path(ctx);

	/* what XDP has taken out of a tunnel */
	CALL_NEXT(ctx, action, FAST_INNER);
	CALL_COUNTED(ctx, action, GTPU_ENCAP);
	CALLED_OR_DONE(ctx, action);
}

SEC("tc")
int tc_gtpu_encap(struct __sk_buff *ctx)
{
	int action = gtpu_encap_path(ctx);

	/* to tell its sender: it was counted as dropped */
	CALL_NEXT(ctx, action, GTPU_SIGNAL);
	return trace_leaves(ctx, action == GO(GTPU_SIGNAL) ? HOOK_DROP : action, TRACE_SHORT);
}

SEC("tc")
int tc_fanout(struct __sk_buff *ctx)
{
	int action = fanout_path(ctx);

	CALL_NEXT(ctx, action, ADMIT);
	CALLED_OR_DONE(ctx, action);
}

SEC("tc")
int tc_ungranted(struct __sk_buff *ctx)
{
	int action = ungranted_path(ctx);

	CALL_NEXT(ctx, action, ADMIT);
	CALLED_OR_DONE(ctx, action);
}

SEC("tc")
int tc_nat64(struct __sk_buff *ctx)
{
	int action = nat64_path(ctx);

	CALL_COUNTED(ctx, action, GTPU_ENCAP);
	CALL_NEXT(ctx, action, ADMIT);
	CALLED_OR_DONE(ctx, action);
}

SEC("tc")
int tc_admit(struct __sk_buff *ctx)
{
	int action = admit_phase(ctx);

	if (config.stage_mask & STAGE_BIT(GTPU))
		CALL_NEXT(ctx, action, GTPU_DECAP);
	CALL_NEXT(ctx, action, JUDGE);
	CALL_NEXT(ctx, action, LEAVE);
	CALLED_OR_DONE(ctx, action);
}

SEC("tc")
int tc_judge(struct __sk_buff *ctx)
{
	int action = judge_phase(ctx);

	CALL_NEXT(ctx, action, RECORD);
	CALL_NEXT(ctx, action, LEAVE);
	CALLED_OR_DONE(ctx, action);
}

SEC("tc")
int tc_record(struct __sk_buff *ctx)
{
	int action = record_phase(ctx);

	if (action == GO(LEAVE)) {
		tail_call_constant(ctx, &programs, PROGRAM_SLOT(config.slot, config.variant, PROGRAM_LEAVE));
		record_failed();
		count_no_generation(hook_segments(ctx));
	}
	return HOOK_DROP;
}

SEC("tc")
int tc_leave(struct __sk_buff *ctx)
{
	int action = leave_phase(ctx);

	CALL_COUNTED(ctx, action, GTPU_ENCAP);
	return trace_leaves(ctx, action, TRACE_SLOW);
}

/* In the root's place, on devices that have the gate alone before them. A tag is not in the frame here. */
SEC("tc")
int tc_gate(struct __sk_buff *ctx)
{
	int verdict = ctx->vlan_present ? GATE_HAND_ON : gate_only(ctx);

	if (verdict != GATE_HAND_ON)
		return verdict;
	root_dispatch(ctx, root_variant, PROGRAM_FAST);
	count_no_generation(hook_segments(ctx));
	return TC_ACT_SHOT;
}

SEC("tc")
int tc_egress_root(struct __sk_buff *ctx)
{
	root_dispatch(ctx, root_variant, PROGRAM_EGRESS);
	count_no_generation(hook_segments(ctx));
	return TC_ACT_SHOT;
}

SEC("tc")
int tc_egress(struct __sk_buff *ctx)
{
	trace_comes_by_host(ctx);
	return trace_leaves(ctx, egress_path(ctx), TRACE_HOST);
}

/* A packet that is to be copied; then it leaves by the same device. */
static __always_inline int finish_copy(struct __sk_buff *ctx, const struct copy_handoff *handoff)
{
	__u32 ifindex = handoff->ifindex, own = handoff->own;

	hook_send_copy(ctx, ifindex, handoff->mark, handoff->unit);
	ctx->mark = own;
	return bpf_redirect(ifindex, 0);
}

/* tcx ingress of an XDP device: what XDP decided and could not finish. */
SEC("tc")
int tc_finish(struct __sk_buff *ctx)
{
	struct handoff *handoff = (void *)(long)ctx->data_meta;
	struct copy_handoff *copy = (void *)handoff;

	if ((void *)(copy + 1) <= hook_data(ctx) && copy->magic == COPY_MAGIC)
		return finish_copy(ctx, copy);
	if ((void *)&handoff->family > hook_data(ctx) || handoff->magic != HANDOFF_MAGIC)
		return TC_ACT_UNSPEC;
	/* as the version before has it, whose XDP program is replaced at another moment than this one */
	if ((void *)(handoff + 1) > hook_data(ctx))
		return hook_queue(ctx, handoff->host_ifindex, 0, NULL);
	if (handoff->family == HANDOFF_WHOLE)
		return hook_redirect(ctx, handoff->host_ifindex);
	return hook_queue(ctx, handoff->host_ifindex, handoff->family, handoff->be_addr);
}

/*
 * Lets user space read the kernel's clock of sessions. That it also names `enum reason` keeps the enumeration in the
 * object's type information, and so in that of pinned maps: there another build finds which reason a counter is of.
 */
SEC("syscall")
int read_clock(void *ctx)
{
	clock_jiffies = bpf_jiffies64();
	return bpf_core_type_id_local(enum reason) ? 0 : 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
