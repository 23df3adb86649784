/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where a packet arrived: by a device, or out of a tunnel, which counts as having arrived on a mobile interface. */
#ifndef SLUICE_GTPU_ARRIVAL_H
#define SLUICE_GTPU_ARRIVAL_H

#include "maps.h"

static __always_inline struct gtpu_work *gtpu_work_here(void)
{
	__u32 zero = 0;
	struct cpu_memory *memory = bpf_map_lookup_elem(&scratch, &zero);

	if (!memory)
		return NULL;
	barrier_var(memory);
	return &memory->gtpu;
}

/* Of the packets of a device; whoever calls it knows that what is in the scratch is this packet's. */
static __always_inline __u32 arrival_device(const hook_ctx *ctx)
{
	struct gtpu_work *work = config.stage_mask & STAGE_BIT(GTPU) ? gtpu_work_here() : NULL;

	return work && work->inner ? work->inner : hook_ifindex(ctx);
}

/* A packet goes on that came by a device. */
static __always_inline void arrived_by_device(void)
{
	struct gtpu_work *work = config.stage_mask & STAGE_BIT(GTPU) ? gtpu_work_here() : NULL;

	if (work)
		work->inner = 0;
}

#endif
