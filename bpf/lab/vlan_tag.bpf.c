// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A VLAN trunk's far end for kernels without 8021q: one tag, or two, are pushed on what leaves, and only frames with
 * them are accepted.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ETH_P_8021Q 0x8100
#define ETH_P_8021AD 0x88a8
#define VLAN_VID_MASK 0x0fff

const volatile __u16 vlan_id = 100;
const volatile __u16 inner_id = 0;   /* 0 = no second tag */
const volatile __u32 is_service = 0; /* the outer tag is an 802.1ad one */

SEC("tc")
int vlan_push(struct __sk_buff *skb)
{
	if (inner_id && bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), inner_id))
		return TC_ACT_SHOT;
	if (bpf_skb_vlan_push(skb, is_service ? bpf_htons(ETH_P_8021AD) : bpf_htons(ETH_P_8021Q), vlan_id))
		return TC_ACT_SHOT;
	return TC_ACT_OK;
}

static __always_inline int take(struct __sk_buff *skb, __be16 type, __u16 id)
{
	if (!skb->vlan_present || skb->vlan_proto != type || (skb->vlan_tci & VLAN_VID_MASK) != id)
		return -1;
	return bpf_skb_vlan_pop(skb);
}

SEC("tc")
int vlan_pop(struct __sk_buff *skb)
{
	if (take(skb, is_service ? bpf_htons(ETH_P_8021AD) : bpf_htons(ETH_P_8021Q), vlan_id))
		return TC_ACT_SHOT;
	/* the kernel has moved the next tag to where the first was */
	if (inner_id && take(skb, bpf_htons(ETH_P_8021Q), inner_id))
		return TC_ACT_SHOT;
	return TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
