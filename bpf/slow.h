/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The slow line: every ingress stage in the order of stages.def, then the one exit. */
#ifndef SLUICE_SLOW_H
#define SLUICE_SLOW_H

#include "stage/entry.h"
#include "stage/screen.h"
#include "stage/screen_rate.h"
#include "stage/fragment.h"
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
#include "stage/exit.h"

/* The last stage of the ingress list only marks where exit_packet() stands. */
static __always_inline int stage_exit(hook_ctx *ctx, struct packet *p)
{
	return CONTINUE;
}

/* The verdict goes through memory, where the verifier forgets which it was: otherwise it follows each to the end. */
#define RUN_ingress(ID, name)                                                                                          \
	if (config.stage_mask & STAGE_BIT(ID)) {                                                                       \
		*(volatile __u32 *)&p->verdict = stage_##name(ctx, p);                                                 \
		verdict = *(volatile __u32 *)&p->verdict;                                                              \
		if (verdict != CONTINUE)                                                                               \
			goto decided;                                                                                  \
	}
#define RUN_egress(ID, name)

static __always_inline int slow_line(hook_ctx *ctx)
{
	__u32 zero = 0;
	struct packet *p = bpf_map_lookup_elem(&scratch, &zero);
	int verdict = CONTINUE;

	if (!p)
		return HOOK_DROP;
	hook_pull_headers(ctx);
	packet_reset(p, ctx);
#define STAGE(ID, name, hook, help) RUN_##hook(ID, name)
#define REASON(STAGE_ID, ID, name, help)
#include "stages.def"
#undef STAGE
#undef REASON
decided:;
	struct unit_counters *count = counters_of(p->unit_index);

	if (!count)
		return HOOK_DROP;
	count->received += p->segments;
	count->received_bytes += p->ip_len;
	count->slow += p->segments;
	return exit_packet(ctx, p, verdict);
}

#endif
