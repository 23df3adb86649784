/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The root: read the word `active` once, branch, one tail call with a constant index a branch. */
#ifndef SLUICE_ROOT_H
#define SLUICE_ROOT_H

#include "maps.h"
#include "trace/hooks.h"

/*
 * The index must be a constant for the verifier (rodata is) and stay in a branch of its own: two such calls are merged
 * into one with a variable index if the compiler may see what they do, and the JIT then cannot jump directly.
 */
static __always_inline void tail_call_constant(void *ctx, const void *map, __u32 slot)
{
	asm volatile("r1 = %[ctx]\n\t"
		     "r2 = %[map]\n\t"
		     "r3 = %[slot]\n\t"
		     "call 12"
		     :
		     : [ctx] "r"(ctx), [map] "r"(map), [slot] "r"(slot)
		     : "r0", "r1", "r2", "r3", "r4", "r5", "memory");
}

/* What a program returns: who comes next, or what the hook shall do. No hook knows such a verdict. */
#define GO(ID) (-1000 - (int)PROGRAM_##ID)

/* To the program that comes next, if it is that one. */
#define CALL_NEXT(ctx, action, ID)                                                                                     \
	if (action == GO(ID))                                                                                          \
		tail_call_constant(ctx, &programs, PROGRAM_SLOT(config.slot, config.variant, PROGRAM_##ID));

static __always_inline void root_dispatch(void *ctx, __u32 variant, __u32 kind)
{
	if (ACTIVE_SLOT(active) == 0)
		tail_call_constant(ctx, &programs, PROGRAM_SLOT(0, variant, kind));
	else
		tail_call_constant(ctx, &programs, PROGRAM_SLOT(1, variant, kind));
}

/* Only reached when nothing is loaded: fail closed, and count where no unit is known. */
static __always_inline void count_no_generation(__u32 segments)
{
	struct unit_counters *count = counters_of(0);

	if (!count)
		return;
	count->received += segments;
	count_drop(0, REASON_NO_GENERATION, segments);
}

/* To the short path or to the slow one, behind a program that has looked for a session. */
#define CALL_BEHIND_FAST(ctx, action)                                                                                  \
	if (config.stage_mask & STAGE_BIT(FANOUT))                                                                     \
		CALL_NEXT(ctx, action, FANOUT);                                                                        \
	if (config.stage_mask & STAGE_BIT(NAT64))                                                                      \
		CALL_NEXT(ctx, action, NAT64);                                                                         \
	if (config.stage_mask & STAGE_BIT(GATE))                                                                       \
		CALL_NEXT(ctx, action, UNGRANTED);                                                                     \
	CALL_NEXT(ctx, action, ADMIT);                                                                                 \
	CALLED_OR_DONE(ctx, action)

/* What is still here has a verdict of the hook, or has missed the program that comes next and ends, counted. */
#define CALLED_OR_DONE(ctx, action)                                                                                    \
	if (action <= GO(FAST)) {                                                                                      \
		count_no_generation(hook_segments(ctx));                                                               \
		return HOOK_DROP;                                                                                      \
	}                                                                                                              \
	return trace_leaves(ctx, action, TRACE_SHORT)

#endif
