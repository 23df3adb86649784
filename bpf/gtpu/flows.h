/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which flow of its session a packet belongs to: the first by precedence whose SDF filter it matches (TS 29.244 5.2.1).
 * What filters ask for is read from the packet as it is in the tunnel. The layout of filters is in abi/gtpu.h; in Rust
 * this is sluice_abi::GtpuFilters::find.
 */
#ifndef SLUICE_GTPU_FLOWS_H
#define SLUICE_GTPU_FLOWS_H

#include "gtpu/parse.h"

/* What filters ask of a packet. */
struct gtpu_key {
	__u64 upper; /* remote address; of IPv4 all of it is in `lower` */
	__u64 lower;
	__u16 remote_port;
	__u16 local_port;
	__u8 protocol;
	__u8 dscp;
	__u8 has_ports;
	__u8 is_piece; /* a fragment that is not the first one */
};

/* Ports stand behind the headers, in the first fragment alone. */
static __always_inline void gtpu_read_ports(hook_ctx *ctx, __u32 at, __u32 direction, struct gtpu_key *key)
{
	__be16 *ports = hook_data(ctx) + (at & GTPU_LINEAR);

	key->has_ports = 0;
	if (key->is_piece || !has_ports(key->protocol) || at > GTPU_LINEAR || (void *)(ports + 2) > hook_end(ctx))
		return;
	__u16 source = bpf_ntohs(ports[0]), destination = bpf_ntohs(ports[1]);

	key->remote_port = direction == GTPU_UPLINK ? destination : source;
	key->local_port = direction == GTPU_UPLINK ? source : destination;
	key->has_ports = 1;
}

static __always_inline bool gtpu_read4(hook_ctx *ctx, __u32 at, __u32 direction, struct gtpu_key *key)
{
	struct iphdr *ip = hook_data(ctx) + at;

	if ((void *)(ip + 1) > hook_end(ctx))
		return false;
	key->upper = 0;
	key->lower = bpf_ntohl(direction == GTPU_UPLINK ? ip->daddr : ip->saddr);
	key->protocol = ip->protocol;
	key->dscp = ip->tos >> 2;
	key->is_piece = !!(ip->frag_off & bpf_htons(0x1fff));
	gtpu_read_ports(ctx, at + (*(__u8 *)ip & 0x0f) * 4, direction, key);
	return true;
}

/* How long an extension header is, 0 = it is none (RFC 8200 4). An AH is taken for a protocol, as it is in IPv4. */
static __always_inline __u32 gtpu_header_len(__u8 type, __u8 length)
{
	if (!is_extension(type) || type == IPPROTO_AH)
		return 0;
	return type == IPPROTO_FRAGMENT ? 8 : (length + 1) * 8;
}

/* A chain that is longer, or not all there, ends with the header that is not passed over: a protocol without ports. */
static __always_inline __u32 gtpu_pass_headers(hook_ctx *ctx, __u32 at, struct gtpu_key *key)
{
	for (int i = 0; i < EXTENSION_HEADERS_MAX; i++) {
		__u8 *header = hook_data(ctx) + (at & GTPU_LINEAR);

		if (at > GTPU_LINEAR || (void *)(header + 4) > hook_end(ctx))
			break;
		__u32 len = gtpu_header_len(key->protocol, header[1]);

		if (!len)
			break;
		if (key->protocol == IPPROTO_FRAGMENT && (*(__be16 *)(header + 2) & bpf_htons(0xfff8)))
			key->is_piece = 1;
		key->protocol = header[0];
		if (key->is_piece)
			break;
		at += len;
	}
	return at;
}

static __always_inline bool gtpu_read6(hook_ctx *ctx, __u32 at, __u32 direction, struct gtpu_key *key)
{
	struct ipv6hdr *ip6 = hook_data(ctx) + at;

	if ((void *)(ip6 + 1) > hook_end(ctx))
		return false;
	const __u64 *remote = (const void *)(direction == GTPU_UPLINK ? &ip6->daddr : &ip6->saddr);

	key->upper = bpf_be64_to_cpu(remote[0]);
	key->lower = bpf_be64_to_cpu(remote[1]);
	key->protocol = ip6->nexthdr;
	key->dscp = bpf_ntohs(*(__be16 *)ip6) >> 6 & 0x3f;
	key->is_piece = 0;
	at = gtpu_pass_headers(ctx, at + sizeof(*ip6), key);
	gtpu_read_ports(ctx, at, direction, key);
	return true;
}

/* 1 if key < beyond, which are no more than 63 bits long. As arithmetic: the processor cannot predict these. */
static __always_inline __u64 is_below(__u64 key, __u64 beyond)
{
	__u64 difference = key - beyond;

	barrier_var(difference); /* else clang makes a branch of the shift */
	return difference >> 63;
}

/* 1 if a key of two halves is not above an address. */
static __always_inline __u64 is_reached(__u64 upper, __u64 lower, const struct gtpu_key *key)
{
	__u64 borrow = (~key->lower & lower) | ((~key->lower | lower) & (key->lower - lower));
	__u64 rest = key->upper - upper - (borrow >> 63);

	borrow = (~key->upper & upper) | ((~key->upper | upper) & rest);
	barrier_var(borrow);
	return ~borrow >> 63;
}

/*
 * The interval that a number is in. Of what is left, a quarter after the other: the three comparisons of a step wait
 * for nothing but the step before.
 */
#define GTPU_FIND(WIDE, REACHED)                                                                                       \
	({                                                                                                             \
		__u64 at = 0;                                                                                          \
                                                                                                                       \
		if (WIDE)                                                                                              \
			at = (REACHED(GTPU_NARROW) + REACHED(2 * GTPU_NARROW) + REACHED(3 * GTPU_NARROW)) *            \
			     GTPU_NARROW;                                                                              \
		at += (REACHED(at + 16) + REACHED(at + 32) + REACHED(at + 48)) * 16;                                   \
		at += (REACHED(at + 4) + REACHED(at + 8) + REACHED(at + 12)) * 4;                                      \
		at += REACHED(at + 1) + REACHED(at + 2) + REACHED(at + 3);                                             \
		at;                                                                                                    \
	})

#define GTPU_REMOTE4(AT) is_below(filters->remote4[AT], key->lower + 1)
#define GTPU_REMOTE6(AT) is_reached(filters->remote6_upper[AT], filters->remote6_lower[AT], key)
#define GTPU_REMOTE_PORT(AT) is_below(filters->remote_port[AT], key->remote_port + 1)
#define GTPU_LOCAL_PORT(AT) is_below(filters->local_port[AT], key->local_port + 1)

/* Flows that a packet matches. */
static __always_inline __u64 gtpu_match(const struct gtpu_filters *filters, const struct gtpu_key *key, bool is_ip4)
{
	__u32 asks = filters->asks;
	__u64 flows = filters->protocols[key->protocol] & filters->dscps[key->dscp & 0x3f];

	if (asks & GTPU_ASKS_ADDRESS) {
		if (is_ip4)
			flows &= filters->remote4_flows[GTPU_FIND(asks & GTPU_WIDE_REMOTE4, GTPU_REMOTE4)];
		else
			flows &= filters->remote6_flows[GTPU_FIND(asks & GTPU_WIDE_REMOTE6, GTPU_REMOTE6)];
	}
	if (!key->has_ports)
		return flows & filters->portless;
	if (asks & GTPU_ASKS_REMOTE_PORT)
		flows &= filters->remote_port_flows[GTPU_FIND(asks & GTPU_WIDE_REMOTE_PORT, GTPU_REMOTE_PORT)];
	if (asks & GTPU_ASKS_LOCAL_PORT)
		flows &= filters->local_port_flows[GTPU_FIND(asks & GTPU_WIDE_LOCAL_PORT, GTPU_LOCAL_PORT)];
	return flows;
}

static __always_inline struct gtpu_filters *gtpu_filters_at(__u32 number)
{
	return bpf_map_lookup_elem(&gtpu_filters, &number);
}

/* The number of a packet's flow; GTPU_FLOWS where it has none. `at` is where the inner packet begins. */
__noinline __u32 gtpu_flow_of(hook_ctx *ctx, __u32 number, __u32 at, __u32 wire, __u32 direction)
{
	const struct gtpu_filters *filters = gtpu_filters_at(number);
	struct gtpu_key key;

	if (!filters)
		return GTPU_FLOWS;
	at &= GTPU_LINEAR;
	if (!(wire == 4 ? gtpu_read4(ctx, at, direction, &key) : gtpu_read6(ctx, at, direction, &key)))
		return GTPU_FLOWS;
	__u64 flows = gtpu_match(filters, &key, wire == 4);

	return flows ? lowest_of_word(flows) : GTPU_FLOWS;
}

/* The rules of a packet: its flow's, or those of its session. */
static __always_inline const struct gtpu_rules *gtpu_met(hook_ctx *ctx, const struct gtpu_rules *rules, __u32 at,
							 __u32 wire, const __u32 direction, __u32 *flow)
{
	*flow = GTPU_FLOWS;
	if (!rules->filters)
		return rules;
	__u32 found = gtpu_flow_of(ctx, rules->filters, at, wire, direction);
	struct gtpu_filters *filters = gtpu_filters_at(rules->filters);

	if (!filters || found >= GTPU_FLOWS)
		return rules;
	*flow = found;
	barrier_var(found); /* else clang finds the mask needless, which the verifier does not */
	return &filters->rules[found & (GTPU_FLOWS - 1)];
}

/* The state of a session's flow, where `line` is the one that counts. */
static __always_inline struct gtpu_flow *gtpu_flow_at(const struct gtpu_line *line, __u32 flow)
{
	__u32 block = *(const volatile __u32 *)&line->reach >> 8, at = GTPU_BLOCK_FLOW(block, flow);

	return block ? bpf_map_lookup_elem(&gtpu_flows, &at) : NULL;
}

#endif
