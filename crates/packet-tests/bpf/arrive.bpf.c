// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What the kernel does to a tagged frame before tc sees it: the tag leaves the frame and goes into the skb. Prog-run
 * does not, so this stands before the program under test. Also the empty program that makes a veth accept XDP runs.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} target SEC(".maps");

SEC("tc")
int arrive(struct __sk_buff *ctx)
{
	__be16 proto = ctx->protocol;
	__be16 tci;

	if ((proto == bpf_htons(ETH_P_8021Q) || proto == bpf_htons(ETH_P_8021AD)) &&
	    !bpf_skb_load_bytes(ctx, ETH_HLEN, &tci, sizeof(tci))) {
		if (bpf_skb_vlan_pop(ctx) || bpf_skb_vlan_push(ctx, proto, bpf_ntohs(tci)))
			return TC_ACT_STOLEN;
	}
	bpf_tail_call_static(ctx, &target, 0);
	return TC_ACT_STOLEN;
}

SEC("xdp.frags")
int idle(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
