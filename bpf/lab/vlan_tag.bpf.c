// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A VLAN trunk's far end for kernels without 8021q: one tag is pushed on what leaves, and only that tag is accepted. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ETH_P_8021Q 0x8100
#define VLAN_VID_MASK 0x0fff

const volatile __u16 vlan_id = 100;

SEC("tc")
int vlan_push(struct __sk_buff *skb)
{
	if (bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), vlan_id))
		return TC_ACT_SHOT;
	return TC_ACT_OK;
}

SEC("tc")
int vlan_pop(struct __sk_buff *skb)
{
	if (!skb->vlan_present || (skb->vlan_tci & VLAN_VID_MASK) != vlan_id)
		return TC_ACT_SHOT;
	if (bpf_skb_vlan_pop(skb))
		return TC_ACT_SHOT;
	return TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
