/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is alike on both hooks, once `hook_ctx` is defined. */
#ifndef SLUICE_LIB_HOOK_FRAME_H
#define SLUICE_LIB_HOOK_FRAME_H

/* Of a GTP-U session's packet: it counts as if it had been lost where it comes out of the mobile device. */
static __always_inline void copy_is_lost(__u32 unit_index)
{
	struct unit_counters *count = counters_of(unit_index);

	if (count)
		count->received += 1;
	count_drop(unit_index, REASON_GTPU_DUPLICATE, 1);
}

/* What both hooks learn from the Ethernet header. */
struct frame {
	__u16 l3;
	__u16 ethertype;
	__u32 vlan;  /* VLAN_* of abi/unit.h */
	__u8 tagged; /* bytes of tags; a priority tag has VLAN 0 */
};

#define VLAN_BYTES 4

static __always_inline void *hook_data(const hook_ctx *ctx)
{
	return (void *)(long)ctx->data;
}

static __always_inline void *hook_end(const hook_ctx *ctx)
{
	return (void *)(long)ctx->data_end;
}

/* Tags that frames of a unit have, in bytes. */
static __always_inline __u32 vlan_bytes(__u32 vlan)
{
	return vlan & VLAN_TWO ? 2 * VLAN_BYTES : vlan ? VLAN_BYTES : 0;
}

static __always_inline __be16 vlan_outer_type(__u32 vlan)
{
	return vlan & VLAN_SERVICE ? bpf_htons(ETH_P_8021AD) : bpf_htons(ETH_P_8021Q);
}

static __always_inline __u32 vlan_inner(__u32 vlan)
{
	return vlan >> VLAN_INNER_SHIFT & VLAN_ID;
}

/* The outer tag is known: the one behind it, if any. What follows is the network layer, or a tag too many. */
static __always_inline bool frame_second_tag(hook_ctx *ctx, struct frame *frame)
{
	if (frame->ethertype != ETH_P_8021Q)
		return true;
	__be16 *tag = hook_data(ctx) + frame->l3;

	if ((void *)(tag + 2) > hook_end(ctx))
		return false;
	frame->vlan |= VLAN_TWO | (bpf_ntohs(tag[0]) & VLAN_ID) << VLAN_INNER_SHIFT;
	frame->ethertype = bpf_ntohs(tag[1]);
	frame->l3 += VLAN_BYTES;
	frame->tagged = 2 * VLAN_BYTES;
	return true;
}

#endif
