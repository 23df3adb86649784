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

char LICENSE[] SEC("license") = "Dual BSD/GPL";
