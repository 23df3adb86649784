/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The slow path: every ingress stage in the order of stages.def, cut into phases. Each phase is a program of its own,
 * with the maps, the stack and the share of the verifier's patience of one; it leaves what it knows in the scratch of
 * its CPU and calls the next one. A verdict goes to the last phase at once, the one exit.
 */
#ifndef SLUICE_SLOW_H
#define SLUICE_SLOW_H

#include "root.h"
#include "stage/entry.h"
#include "stage/screen.h"
#include "stage/screen_rate.h"
#include "stage/fragment.h"
#include "stage/gtpu.h"
#include "stage/fanout.h"
#include "stage/session.h"
#include "stage/screen_first.h"
#include "stage/nat_destination.h"
#include "stage/nat64.h"
#include "stage/local.h"
#include "stage/route.h"
#include "stage/policy.h"
#include "stage/gate.h"
#include "stage/nat_source.h"
#include "stage/create.h"
#include "stage/nexthop.h"
#include "stage/exit.h"

/* The last stage of the ingress list only marks where exit_packet() stands. */
static __always_inline int stage_exit(hook_ctx *ctx, struct packet *p)
{
	return CONTINUE;
}

enum phase { PHASE_admit, PHASE_judge, PHASE_record, PHASE_leave, PHASE_egress };

#define RUN_IN(PHASE, ID, name)                                                                                        \
	if (PHASE_##PHASE == now && (config.stage_mask & STAGE_BIT(ID)) && PHASE_##PHASE != PHASE_egress) {            \
		*(volatile __u32 *)&p->verdict = stage_##name(ctx, p);                                                 \
		verdict = *(volatile __u32 *)&p->verdict;                                                              \
		if (verdict != CONTINUE)                                                                               \
			return verdict;                                                                                \
	}
#define RUN_admit(ID, name) RUN_IN(admit, ID, name)
#define RUN_judge(ID, name) RUN_IN(judge, ID, name)
#define RUN_record(ID, name) RUN_IN(record, ID, name)
#define RUN_leave(ID, name) RUN_IN(leave, ID, name)
#define RUN_egress(ID, name)

/* The verdict goes through memory, where the verifier forgets which it was: otherwise it follows each to the end. */
static __always_inline int run_stages(hook_ctx *ctx, struct packet *p, const enum phase now)
{
	int verdict = CONTINUE;
#define STAGE(ID, name, phase, when, help) RUN_##phase(ID, name)
#define REASON(STAGE_ID, ID, name, help)
#define DENIAL REASON
#include "stages.def"
#undef STAGE
#undef REASON
#undef DENIAL
	return verdict;
}

static __always_inline struct packet *packet_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&scratch, &zero);
}

/* Sessions whose decision stands need no judge: next hop, TTL and size are all there is to look at. */
static __always_inline int admit_phase(hook_ctx *ctx)
{
	struct packet *p = packet_here();

	if (!p)
		return HOOK_DROP;
	hook_pull_headers(ctx);
	packet_reset(p, ctx, arrival_device(ctx));
	int verdict = run_stages(ctx, p, PHASE_admit);

	if ((config.stage_mask & STAGE_BIT(GTPU)) && verdict == VERDICT_TUNNEL)
		return GO(GTPU_DECAP);
	if (verdict != CONTINUE)
		return GO(LEAVE);
	if (!(p->flags & P_KNOWN) || p->nat64)
		return GO(JUDGE);
	p->verdict = p->nexthop == NEXTHOP_LOCAL ? VERDICT_LOCAL : check_known(p);
	return GO(LEAVE);
}

static __always_inline int judge_phase(hook_ctx *ctx)
{
	struct packet *p = packet_here();

	if (!p)
		return HOOK_DROP;
	int verdict = run_stages(ctx, p, PHASE_judge);

	return verdict != CONTINUE || (p->flags & P_KNOWN) ? GO(LEAVE) : GO(RECORD);
}

static __always_inline int record_phase(hook_ctx *ctx)
{
	struct packet *p = packet_here();

	if (!p)
		return HOOK_DROP;
	run_stages(ctx, p, PHASE_record);
	return GO(LEAVE);
}

/* The next program is missing, and this packet ends: so does what only it has made. */
static __always_inline void record_failed(void)
{
	struct packet *p = packet_here();

	if (p && (p->flags & P_CREATED))
		flow_withdraw(p);
}

static __always_inline int leave_phase(hook_ctx *ctx)
{
	struct packet *p = packet_here();

	if (!p)
		return HOOK_DROP;
	struct unit_counters *count = counters_of(p->unit_index);

	if (!count)
		return HOOK_DROP;
	count->received += p->segments;
	count->received_bytes += p->ip_len;
	count->slow += p->segments;
	return exit_packet(ctx, p, p->verdict);
}

#endif
