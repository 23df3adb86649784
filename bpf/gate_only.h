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
ARRAY_MAP(gate_places, struct gate_place, MAX_GATE_SERVICES, BPF_F_MMAPABLE);
PERCPU_MAP(gate_counters, struct gate_counters, 1);

#define GATE_HAND_ON (-1)

/* Service of a port here, 0 = none. */
static __always_inline __u32 service_of_port(__u8 proto, __u16 be_port)
{
	__u32 at = bpf_ntohs(be_port) + (proto == IPPROTO_UDP ? GATE_PORTS : 0);
	struct gate_port *port = bpf_map_lookup_elem(&gate_ports, &at);

	return port ? port->service : 0;
}

static __always_inline int gate_accept(const __u32 *handle, struct gate_counters *count)
{
	struct grant *grant = handle ? grant_at(*handle) : NULL;
	__u64 now = bpf_jiffies64();

	if (!grant) {
		count->no_grant++;
		return HOOK_DROP;
	}
	__u32 refusal = grant_refusal(grant, *handle, now);

	if (!refusal) {
		grant_used(grant, now);
		count->accepted++;
		return HOOK_PASS;
	}
	if (refusal == REASON_GRANT_EXPIRED)
		count->expired++;
	else if (refusal == REASON_GRANT_IDLE)
		count->idle++;
	else
		count->revoked++;
	return HOOK_DROP;
}

static __always_inline int gate_only4(hook_ctx *ctx, struct gate_counters *count)
{
	struct iphdr *ip = hook_data(ctx) + ETH_HLEN;
	struct udphdr *ports = (void *)(ip + 1);

	if ((void *)(ports + 1) > hook_end(ctx) || *(__u8 *)ip != 0x45 || (ip->frag_off & bpf_htons(0x3fff)))
		return GATE_HAND_ON;
	if (ip->protocol != IPPROTO_TCP && ip->protocol != IPPROTO_UDP)
		return GATE_HAND_ON;
	__u32 service = service_of_port(ip->protocol, ports->dest);
	struct gate_place *place = bpf_map_lookup_elem(&gate_places, &service);

	if (!service || !place || !place->be_addr4 || place->be_addr4 != ip->daddr)
		return GATE_HAND_ON;
	struct grant_key4 key = {.be_addr = ip->saddr, .service = service, .length = 32};

	return gate_accept(bpf_map_lookup_elem(&grants4, &key), count);
}

static __always_inline int gate_only6(hook_ctx *ctx, struct gate_counters *count)
{
	struct ipv6hdr *ip = hook_data(ctx) + ETH_HLEN;
	struct udphdr *ports = (void *)(ip + 1);

	if ((void *)(ports + 1) > hook_end(ctx) || *(__u8 *)ip >> 4 != 6)
		return GATE_HAND_ON;
	if (ip->nexthdr != IPPROTO_TCP && ip->nexthdr != IPPROTO_UDP)
		return GATE_HAND_ON;
	__u32 service = service_of_port(ip->nexthdr, ports->dest);
	struct gate_place *place = bpf_map_lookup_elem(&gate_places, &service);
	struct grant_key6 key = {.service = service, .length = 128};
	__u32 other = 0;

	if (!service || !place || !(place->be_addr6[0] | place->be_addr6[3]))
		return GATE_HAND_ON;
	for (__u32 i = 0; i < 4; i++) {
		key.be_addr[i] = ip->saddr.in6_u.u6_addr32[i];
		other |= place->be_addr6[i] ^ ip->daddr.in6_u.u6_addr32[i];
	}
	return other ? GATE_HAND_ON : gate_accept(bpf_map_lookup_elem(&grants6, &key), count);
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
