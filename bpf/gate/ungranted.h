/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * First packets from a zone that demands grants, of hosts that have none at all: refused before the slow path, which
 * would come to the same after asking everything else. That one sees one of them a second, and tells of it.
 */
#ifndef SLUICE_GATE_UNGRANTED_H
#define SLUICE_GATE_UNGRANTED_H

#include "fast.h"
#include "gtpu/arrival.h"
#include "lib/dropped.h"

/* No session has this key for certain: none of its tag is in the bucket, and none went on from it. */
static __always_inline bool is_nowhere(const struct flow_bucket *bucket, __u64 hash)
{
	return bucket && !match_tags(bucket, tag_of(hash)) && !*(volatile __u32 *)&bucket->overflow;
}

static __always_inline bool is_ungranted4(hook_ctx *ctx, const struct handover *h)
{
	struct iphdr *ip = hook_data(ctx) + (h->l3 & 0x1f);
	struct flow_key4 key ALIGNED_KEY;

	if ((void *)(ip + 1) > hook_end(ctx))
		return false;
	*(__u64 *)&key.be_saddr = *(__u64 *)&ip->saddr;
	((__u64 *)&key)[1] = key_last_word(h->is.be_ports, h->routing_instance, h->is.proto);
	__u64 hash = flow_hash4(config.seed, &key);

	return !prefixes_granted(4) && is_ungranted(4, key.be_saddr, 0) && is_nowhere(bucket_at4(hash >> 40), hash);
}

static __always_inline bool is_ungranted6(hook_ctx *ctx, const struct handover *h)
{
	struct ipv6hdr *ip = hook_data(ctx) + (h->l3 & 0x1f);
	struct flow_key6 key ALIGNED_KEY;
	__u64 *words = (__u64 *)&key;

	if ((void *)(ip + 1) > hook_end(ctx))
		return false;
	for (int i = 0; i < 4; i++)
		words[i] = ((__u64 *)&ip->saddr)[i];
	words[4] = key_last_word(h->is.be_ports, h->routing_instance, h->is.proto);
	__u64 hash = flow_hash6(config.seed, &key);

	return !prefixes_granted(6) && is_ungranted(6, words[0], words[1]) && is_nowhere(bucket_at6(hash >> 40), hash);
}

/* To where DHCP servers listen: the slow path knows whether that is this host. */
static __always_inline bool is_for_dhcp(const struct handover *h)
{
	__u16 be_dport = h->is.be_ports >> 16;

	return h->is.proto == IPPROTO_UDP && be_dport == (h->is.wire == 4 ? bpf_htons(67) : bpf_htons(547));
}

static __always_inline int ungranted_path(hook_ctx *ctx)
{
	struct handover *h = handover_here();

	if (!h)
		return HOOK_DROP;
	if (is_for_dhcp(h) || !(h->is.wire == 4 ? is_ungranted4(ctx, h) : is_ungranted6(ctx, h)))
		return GO(ADMIT);
	__u32 zone = h->zone, segments = hook_segments(ctx);
	struct screen_counters *zone_count = bpf_map_lookup_elem(&screen_counters, &zone);
	struct unit_counters *count = counters_of(h->unit_index);

	if (!zone_count || !count || jiffies_now() - zone_count->logged_at[REASON_GATE_NO_GRANT] >= config.hz)
		return GO(ADMIT);
	count->received += segments;
	count->received_bytes += h->is.ip_len;
	count_drop(h->unit_index, REASON_GATE_NO_GRANT, segments);
	tell_short(ctx, arrival_device(ctx), h->unit_index, zone, REASON_GATE_NO_GRANT, h->l3, h->vlan);
	return HOOK_DROP;
}

#endif
