/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * First packets from a zone that demands grants, of hosts that have none at all: refused before the slow line, which
 * would come to the same after asking everything else. That one sees one of them a second, and tells of it.
 */
#ifndef SLUICE_STRANGERS_H
#define SLUICE_STRANGERS_H

#include "fast.h"

/* Where screens count, they must see what they count; fan-out comes before the gate. */
static __always_inline bool refuses_strangers(void)
{
	__u32 before = STAGE_BIT(SCREEN_RATE) | STAGE_BIT(SCREEN_FIRST) | STAGE_BIT(FANOUT);

	return (config.stage_mask & (STAGE_BIT(GATE) | before)) == STAGE_BIT(GATE) &&
	       !(config.flags & CONFIG_KERNEL_INDEX);
}

/* UDP, or a SYN and nothing else: what the slow line might make a session of. */
static __always_inline bool is_opening(hook_ctx *ctx, const void *l4, __u8 proto)
{
	if (proto == IPPROTO_UDP)
		return l4 + sizeof(struct udphdr) <= hook_end(ctx);
	if (proto != IPPROTO_TCP || l4 + sizeof(struct tcphdr) > hook_end(ctx))
		return false;
	return (((__u8 *)l4)[13] & (TCP_SYN | TCP_FIN | TCP_RST | TCP_ACK | TCP_URG)) == TCP_SYN;
}

/* No session has this key for certain: none of its tag is in the bucket, and none went on from it. */
static __always_inline bool is_nowhere(const struct flow_bucket *bucket, __u64 hash)
{
	return bucket && !match_tags(bucket, tag_of(hash)) && !*(volatile __u32 *)&bucket->overflow;
}

static __always_inline bool is_stranger4(hook_ctx *ctx, const struct unit *unit, __u32 l3, __u32 *ip_len)
{
	struct iphdr *ip = hook_data(ctx) + l3;
	struct flow_key4 key ALIGNED_KEY;

	if ((void *)(ip + 1) > hook_end(ctx) || *(__u8 *)ip != 0x45 || (ip->frag_off & bpf_htons(0x3fff)))
		return false;
	if (!is_opening(ctx, ip + 1, ip->protocol))
		return false;
	*(__u64 *)&key.be_saddr = *(__u64 *)&ip->saddr;
	((__u64 *)&key)[1] = key_last_word(*(__u32 *)(ip + 1), unit->routing_instance, ip->protocol);
	__u64 hash = flow_hash4(config.seed, &key);

	*ip_len = bpf_ntohs(ip->tot_len);
	return !prefixes_granted(4) && is_stranger(4, key.be_saddr, 0) && is_nowhere(bucket_at4(hash >> 40), hash);
}

static __always_inline bool is_stranger6(hook_ctx *ctx, const struct unit *unit, __u32 l3, __u32 *ip_len)
{
	struct ipv6hdr *ip = hook_data(ctx) + l3;
	struct flow_key6 key ALIGNED_KEY;
	__u64 *words = (__u64 *)&key;

	if ((void *)(ip + 1) > hook_end(ctx) || *(__u8 *)ip >> 4 != 6 || !is_opening(ctx, ip + 1, ip->nexthdr))
		return false;
	for (int i = 0; i < 4; i++)
		words[i] = ((__u64 *)&ip->saddr)[i];
	words[4] = key_last_word(*(__u32 *)(ip + 1), unit->routing_instance, ip->nexthdr);
	__u64 hash = flow_hash6(config.seed, &key);

	*ip_len = bpf_ntohs(ip->payload_len) + sizeof(*ip);
	return !prefixes_granted(6) && is_stranger(6, words[0], words[1]) && is_nowhere(bucket_at6(hash >> 40), hash);
}

/* HOOK_DROP, or GO(ADMIT). */
static __noinline int refuse_stranger(hook_ctx *ctx)
{
	struct frame frame;
	__u32 slot, ip_len = 0;
	bool stranger = false;

	if (!hook_parse_frame(ctx, &frame))
		return GO(ADMIT);
	struct unit *unit = unit_arriving(hook_ifindex(ctx), frame.vlan, &slot);
	struct ethhdr *eth = hook_data(ctx);

	if (!unit || unit->screens || !demands_grants(unit->zone) || (void *)(eth + 1) > hook_end(ctx) ||
	    *(__u32 *)eth->h_dest != *(__u32 *)unit->mac || *(__u16 *)(eth->h_dest + 4) != *(__u16 *)(unit->mac + 4))
		return GO(ADMIT);
	if (frame.ethertype == ETH_P_IP)
		stranger = is_stranger4(ctx, unit, frame.l3, &ip_len);
	else if (frame.ethertype == ETH_P_IPV6)
		stranger = is_stranger6(ctx, unit, frame.l3, &ip_len);
	if (!stranger)
		return GO(ADMIT);
	__u32 zone = unit->zone, segments = hook_segments(ctx);
	struct screen_counters *zone_count = bpf_map_lookup_elem(&screen_counters, &zone);
	struct unit_counters *count = counters_of(unit->index);

	if (!zone_count || !count || jiffies_now() - zone_count->logged_at[REASON_GATE_NO_GRANT] >= config.hz)
		return GO(ADMIT);
	count->received += segments;
	count->received_bytes += ip_len;
	count_drop(unit->index, REASON_GATE_NO_GRANT, segments);
	return HOOK_DROP;
}

#endif
