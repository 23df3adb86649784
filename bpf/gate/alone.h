/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The gate alone, for a device whose traffic is nearly all for services of this host: whole, untagged TCP and UDP
 * packets without IP options for such a service are decided here by grants of single hosts, and reach the host's stack
 * without a session. Everything else goes to the gateway's own programs, which know what to do with it, or drop it.
 * While there are grants for prefixes, that is also the way of packets whose source has no grant as a host.
 */
#ifndef SLUICE_GATE_ALONE_H
#define SLUICE_GATE_ALONE_H

#include "gate/grant.h"
#include "lib/dropped.h"
#include "lib/parse.h"
#include "root.h"

#define GATE_HAND_ON (-2000) /* no verdict of a hook: on tc, -1 is one */
#define GATE_TRIES 2 /* as FAST_TRIES: what shares its tag with more than one other is looked for with patience */

/* What is behind a port here. */
static __always_inline struct gate_port *gate_port(__u8 proto, __u16 be_port)
{
	__u32 at = bpf_ntohs(be_port) + (proto == IPPROTO_UDP ? GATE_PORTS : 0);

	return bpf_map_lookup_elem(&gate_ports, &at);
}

/* What a packet counts as, in the unit it came from. */
struct gate_packet {
	struct unit_counters *count;
	__u32 segments;
	__u32 ip_len;
	__u32 service;
	bool is_v4;
};

_Static_assert(REASON_GRANT_REVOKED - REASON_GRANT_EXPIRED == 2, "reasons that a grant ends for stand side by side");

/* Tells the daemon once a second, reason and CPU, as the gateway's own programs do. */
static __noinline int gate_tell(hook_ctx *ctx, __u32 refusal, __u32 service)
{
	struct ethhdr *eth = hook_data(ctx);
	struct iphdr *ip = (void *)(eth + 1);
	struct ipv6hdr *ip6 = (void *)(eth + 1);
	void *end = hook_end(ctx);

	if ((void *)(ip + 1) + sizeof(struct udphdr) > end)
		return 0;
	bool is_v4 = eth->h_proto == bpf_htons(ETH_P_IP);

	if (!is_v4 && (void *)(ip6 + 1) + sizeof(struct udphdr) > end)
		return 0;
	struct event *event = event_begin(config.gate_unit);

	if (!event)
		return 0;
	struct udphdr *ports = is_v4 ? (void *)(ip + 1) : (void *)(ip6 + 1);

	__builtin_memset(event, 0, sizeof(*event));
	if (is_v4) {
		event->key.be_saddr[0] = ip->saddr;
		event->key.be_daddr[0] = ip->daddr;
	} else {
		__builtin_memcpy(event->key.be_saddr, &ip6->saddr, 16);
		__builtin_memcpy(event->key.be_daddr, &ip6->daddr, 16);
	}
	event->key.be_sport = ports->source;
	event->key.be_dport = ports->dest;
	event->key.proto = is_v4 ? ip->protocol : ip6->nexthdr;
	event->kind = EVENT_GATE_DENY;
	event->family = is_v4 ? 4 : 6;
	event->ingress_unit = config.gate_unit;
	event->from_zone = config.gate_zone;
	event->to_zone = ZONE_HOST;
	event->screen = refusal;
	event->policy = service;
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* Counts and tells; apart from what decides, since a packet is refused in many places. */
static __noinline int gate_account(hook_ctx *ctx, __u32 refusal, __u32 service, __u32 segments)
{
	__u32 zero = 0, now = jiffies_now();
	__u32 kind = refusal == REASON_GATE_NO_GRANT ? 0 : 1 + ((refusal - REASON_GRANT_EXPIRED) & 3);

	if (refusal >= REASON_COUNT)
		return 0;
	count_drop(config.gate_unit, refusal, segments);
	tell_short(ctx, hook_ifindex(ctx), config.gate_unit, config.gate_zone, refusal, ETH_HLEN, 0);
	struct gate_told *told = bpf_map_lookup_elem(&gate_told, &zero);

	if (told && kind < GATE_REFUSALS && now - told->at[kind] >= config.hz) {
		told->at[kind] = now;
		gate_tell(ctx, refusal, service);
	}
	return 0;
}

static __always_inline int gate_refused(hook_ctx *ctx, const struct gate_packet *packet, __u32 refusal)
{
	if (prefixes_granted(packet->is_v4 ? 4 : 6))
		return GATE_HAND_ON;
	packet->count->received += packet->segments;
	packet->count->received_bytes += packet->ip_len;
	gate_account(ctx, refusal, packet->service, packet->segments);
	return HOOK_DROP;
}

static __always_inline int gate_judge(hook_ctx *ctx, struct grant *grant, __u32 handle,
				      const struct gate_packet *packet)
{
	__u64 now = bpf_jiffies64();
	__u32 refusal = grant_refusal(grant, handle, now);

	if (refusal)
		return gate_refused(ctx, packet, refusal);
	grant_used(grant, now);
	packet->count->received += packet->segments;
	packet->count->received_bytes += packet->ip_len;
	packet->count->delivered_local += packet->segments;
	return HOOK_PASS;
}

/* Two lines of memory: the bucket, and the record with everything that counts. */
static __always_inline int gate_ask(hook_ctx *ctx, const struct grant_query *query, const struct gate_packet *packet)
{
	__u64 hash = grant_hash(query);
	const struct flow_bucket *bucket = grant_bucket(hash >> 40);
	__u32 handle = 0;

	if (!bucket)
		return gate_refused(ctx, packet, REASON_GATE_NO_GRANT);
	__u64 matches = match_tags(bucket, tag_of(hash));
	struct grant *grant = grant_in(bucket, query, matches, &handle, GATE_TRIES);

	if (grant)
		return gate_judge(ctx, grant, handle, packet);
	/* hardly ever: more than one host without a grant under this tag, or a bucket that was full */
	if (matches || *(volatile __u32 *)&bucket->overflow) {
		handle = grant_look(query, hash);
		grant = handle ? grant_at(handle) : NULL;
		if (grant)
			return gate_judge(ctx, grant, handle, packet);
	}
	return gate_refused(ctx, packet, REASON_GATE_NO_GRANT);
}

static __always_inline int gate_only4(hook_ctx *ctx, struct gate_packet *packet)
{
	struct iphdr *ip = hook_data(ctx) + ETH_HLEN;
	struct udphdr *ports = (void *)(ip + 1);
	struct parsed r;

	if (!parse_network4(ctx, ETH_HLEN, &r) || (void *)(ports + 1) > hook_end(ctx))
		return GATE_HAND_ON;
	if (r.proto != IPPROTO_TCP && r.proto != IPPROTO_UDP)
		return GATE_HAND_ON;
	struct gate_port *port = gate_port(r.proto, ports->dest);

	if (!port || !port->service || !port->be_addr4 || port->be_addr4 != ip->daddr)
		return GATE_HAND_ON;
	struct grant_query query = {.left = ip->saddr, .what = GRANT_WHAT(port->service, 4, 32)};

	packet->service = port->service;
	packet->is_v4 = true;
	packet->ip_len = r.ip_len;
	return gate_ask(ctx, &query, packet);
}

static __always_inline int gate_only6(hook_ctx *ctx, struct gate_packet *packet)
{
	struct ipv6hdr *ip = hook_data(ctx) + ETH_HLEN;
	struct udphdr *ports = (void *)(ip + 1);
	struct parsed r;

	if (!parse_network6(ctx, ETH_HLEN, &r) || (void *)(ports + 1) > hook_end(ctx))
		return GATE_HAND_ON;
	if (r.proto != IPPROTO_TCP && r.proto != IPPROTO_UDP)
		return GATE_HAND_ON;
	struct gate_port *port = gate_port(r.proto, ports->dest);

	if (!port || !port->service)
		return GATE_HAND_ON;
	const __u64 *place = (const __u64 *)port->be_addr6, *from = (const __u64 *)&ip->saddr,
		    *to = (const __u64 *)&ip->daddr;

	if (!(place[0] | place[1]) || ((place[0] ^ to[0]) | (place[1] ^ to[1])))
		return GATE_HAND_ON;
	struct grant_query query = {.left = from[0], .right = from[1], .what = GRANT_WHAT(port->service, 6, 128)};

	packet->service = port->service;
	packet->is_v4 = false;
	packet->ip_len = r.ip_len;
	return gate_ask(ctx, &query, packet);
}

/* A verdict of the hook, or GATE_HAND_ON. */
static __always_inline int gate_only(hook_ctx *ctx)
{
	struct gate_packet packet = {.count = counters_of(config.gate_unit), .segments = hook_segments(ctx)};
	struct ethhdr *eth = hook_data(ctx);

	if (!packet.count || (void *)(eth + 1) > hook_end(ctx))
		return GATE_HAND_ON;
	/* multicast and broadcast are the gateway's to judge */
	if (eth->h_dest[0] & 1)
		return GATE_HAND_ON;
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		return gate_only4(ctx, &packet);
	return eth->h_proto == bpf_htons(ETH_P_IPV6) ? gate_only6(ctx, &packet) : GATE_HAND_ON;
}

#endif
