/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The gate alone, for a device whose traffic is nearly all for services of this host: whole, untagged TCP and UDP
 * packets without IP options for such a service are decided here by grants of single hosts, and reach the host's stack
 * without a session. Everything else goes to the gateway's own programs, which know what to do with it, or drop it.
 */
#ifndef SLUICE_GATE_ONLY_H
#define SLUICE_GATE_ONLY_H

#include "lib/grant.h"
#include "root.h"

ARRAY_MAP(gate_ports, struct gate_port, 2 * GATE_PORTS, BPF_F_MMAPABLE);
PERCPU_MAP(gate_counters, struct gate_counters, 1);

#define GATE_HAND_ON (-1)
#define GATE_TRIES 2 /* as FAST_TRIES: what shares its tag with more than one other is looked for with patience */

/* What is behind a port here. */
static __always_inline struct gate_port *gate_port(__u8 proto, __u16 be_port)
{
	__u32 at = bpf_ntohs(be_port) + (proto == IPPROTO_UDP ? GATE_PORTS : 0);

	return bpf_map_lookup_elem(&gate_ports, &at);
}

static __always_inline int gate_refused(struct gate_counters *count, __u32 refusal)
{
	if (refusal == REASON_GATE_NO_GRANT)
		count->no_grant++;
	else if (refusal == REASON_GRANT_EXPIRED)
		count->expired++;
	else if (refusal == REASON_GRANT_IDLE)
		count->idle++;
	else
		count->revoked++;
	return HOOK_DROP;
}

static __always_inline int gate_judge(struct grant *grant, __u32 handle, struct gate_counters *count)
{
	__u64 now = bpf_jiffies64();
	__u32 refusal = grant_refusal(grant, handle, now);

	if (refusal)
		return gate_refused(count, refusal);
	grant_used(grant, now);
	count->accepted++;
	return HOOK_PASS;
}

/* Two lines of memory: the bucket, and the record with everything that counts. */
static __always_inline int gate_ask(const struct grant_query *query, struct gate_counters *count)
{
	__u64 hash = grant_hash(query);
	const struct flow_bucket *bucket = grant_bucket(hash >> 40);
	__u32 handle = 0;

	if (!bucket)
		return gate_refused(count, REASON_GATE_NO_GRANT);
	__u64 matches = match_tags(bucket, tag_of(hash));
	struct grant *grant = grant_in(bucket, query, matches, &handle, GATE_TRIES);

	if (grant)
		return gate_judge(grant, handle, count);
	/* hardly ever: more than one stranger under this tag, or a bucket that was full */
	if (matches || *(volatile __u32 *)&bucket->overflow) {
		handle = grant_look(query, hash);
		grant = handle ? grant_at(handle) : NULL;
		if (grant)
			return gate_judge(grant, handle, count);
	}
	return gate_refused(count, REASON_GATE_NO_GRANT);
}

static __always_inline int gate_only4(hook_ctx *ctx, struct gate_counters *count)
{
	struct iphdr *ip = hook_data(ctx) + ETH_HLEN;
	struct udphdr *ports = (void *)(ip + 1);

	if ((void *)(ports + 1) > hook_end(ctx) || *(__u8 *)ip != 0x45 || (ip->frag_off & bpf_htons(0x3fff)))
		return GATE_HAND_ON;
	if (ip->protocol != IPPROTO_TCP && ip->protocol != IPPROTO_UDP)
		return GATE_HAND_ON;
	struct gate_port *port = gate_port(ip->protocol, ports->dest);

	if (!port || !port->service || !port->be_addr4 || port->be_addr4 != ip->daddr)
		return GATE_HAND_ON;
	struct grant_query query = {.left = ip->saddr, .what = GRANT_WHAT(port->service, 4, 32)};

	return gate_ask(&query, count);
}

static __always_inline int gate_only6(hook_ctx *ctx, struct gate_counters *count)
{
	struct ipv6hdr *ip = hook_data(ctx) + ETH_HLEN;
	struct udphdr *ports = (void *)(ip + 1);

	if ((void *)(ports + 1) > hook_end(ctx) || *(__u8 *)ip >> 4 != 6)
		return GATE_HAND_ON;
	if (ip->nexthdr != IPPROTO_TCP && ip->nexthdr != IPPROTO_UDP)
		return GATE_HAND_ON;
	struct gate_port *port = gate_port(ip->nexthdr, ports->dest);

	if (!port || !port->service)
		return GATE_HAND_ON;
	const __u64 *place = (const __u64 *)port->be_addr6, *from = (const __u64 *)&ip->saddr,
		    *to = (const __u64 *)&ip->daddr;

	if (!(place[0] | place[1]) || ((place[0] ^ to[0]) | (place[1] ^ to[1])))
		return GATE_HAND_ON;
	struct grant_query query = {.left = from[0], .right = from[1], .what = GRANT_WHAT(port->service, 6, 128)};

	return gate_ask(&query, count);
}

/* A verdict of the hook, or GATE_HAND_ON. */
static __always_inline int gate_only(hook_ctx *ctx)
{
	__u32 zero = 0;
	struct gate_counters *count = bpf_map_lookup_elem(&gate_counters, &zero);
	struct ethhdr *eth = hook_data(ctx);
	int verdict = GATE_HAND_ON;

	if (!count || (void *)(eth + 1) > hook_end(ctx))
		return HOOK_DROP;
	/* multicast and broadcast are the gateway's to judge */
	if (!(eth->h_dest[0] & 1) && eth->h_proto == bpf_htons(ETH_P_IP))
		verdict = gate_only4(ctx, count);
	else if (!(eth->h_dest[0] & 1) && eth->h_proto == bpf_htons(ETH_P_IPV6))
		verdict = gate_only6(ctx, count);
	if (verdict == GATE_HAND_ON)
		count->handed_on++;
	return verdict;
}

#endif
