/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is alike on both hooks, once `hook_ctx` is defined. */
#ifndef SLUICE_LIB_HOOK_FRAME_H
#define SLUICE_LIB_HOOK_FRAME_H

/* What both hooks learn from the Ethernet header. */
struct frame {
	__u16 l3;
	__u16 vlan;
	__u16 ethertype;
	bool tagged; /* a priority tag has VLAN 0 */
};

static __always_inline void *hook_data(const hook_ctx *ctx)
{
	return (void *)(long)ctx->data;
}

static __always_inline void *hook_end(const hook_ctx *ctx)
{
	return (void *)(long)ctx->data_end;
}

#endif
