/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The one parser of the short paths: whole TCP and UDP packets without IP options. What it reads is passed on from
 * program to program, so none reads a header twice. Everything else is the slow path's, which names what is wrong.
 */
#ifndef SLUICE_LIB_PARSE_H
#define SLUICE_LIB_PARSE_H

#include "lib/checksum.h"
#include "maps.h"

/* Addresses, ports and lengths lie inside the packet, TTL and IPv4 checksum are good. */
static __always_inline bool parse_network4(hook_ctx *ctx, __u32 l3, struct parsed *r)
{
	struct iphdr *ip = hook_data(ctx) + l3;

	if ((void *)(ip + 1) > hook_end(ctx))
		return false;
	if (*(__u8 *)ip != 0x45 || (ip->frag_off & bpf_htons(0x3fff)) || ip->ttl <= 1 || !csum_ipv4_valid(ip))
		return false;
	/* no session has it, and a flood of it must not wait for the flow table */
	if (ip->saddr == ip->daddr)
		return false;
	r->ip_len = bpf_ntohs(ip->tot_len);
	r->proto = ip->protocol;
	return r->ip_len >= sizeof(*ip) + sizeof(struct udphdr) && hook_l3_len(ctx, l3, r->ip_len) >= r->ip_len;
}

static __always_inline bool parse_network6(hook_ctx *ctx, __u32 l3, struct parsed *r)
{
	struct ipv6hdr *ip = hook_data(ctx) + l3;

	if ((void *)(ip + 1) > hook_end(ctx))
		return false;
	if ((*(__u8 *)ip >> 4) != 6 || ip->hop_limit <= 1)
		return false;
	/* ::/64 has none but special addresses, mapped ones among them, which the tables use for themselves */
	if (!*(const __u64 *)&ip->saddr || !*(const __u64 *)&ip->daddr)
		return false;
	r->ip_len = bpf_ntohs(ip->payload_len) + sizeof(*ip);
	r->proto = ip->nexthdr;
	return r->ip_len >= sizeof(*ip) + sizeof(struct udphdr) && hook_l3_len(ctx, l3, r->ip_len) >= r->ip_len;
}

/*
 * Ports, and of TCP what its window asks for. `plain`: it belongs to a session, if there is one, and changes nothing of
 * it; without ACK, or with URG, it is for screens to see. `opening`: what the slow path might make a session of.
 */
static __always_inline bool parse_transport(hook_ctx *ctx, struct parsed *r, const void *l4, __u32 l3_header)
{
	void *end = hook_end(ctx);
	__u32 headers = l3_header + sizeof(struct udphdr);

	r->is_tcp = false;
	/* the verifier objects to undefined values, also where nobody looks at them */
	r->tcp_end = r->tcp_ack = r->tcp_window = 0;
	r->plain = r->opening = true;
	if (r->proto == IPPROTO_TCP) {
		const struct tcphdr *tcp = l4;

		if ((void *)(tcp + 1) > end)
			return false;
		__u8 flags = ((const __u8 *)tcp)[13] & (TCP_SYN | TCP_FIN | TCP_RST | TCP_ACK | TCP_URG);
		__u32 header = (((const __u8 *)tcp)[12] >> 4) * 4;

		if (header < sizeof(*tcp) || l3_header + header > r->ip_len)
			return false;
		headers = l3_header + header;
		r->is_tcp = true;
		r->plain = flags == TCP_ACK;
		r->opening = flags == TCP_SYN;
		r->tcp_end = bpf_ntohl(tcp->seq) + r->ip_len - headers;
		r->tcp_ack = bpf_ntohl(tcp->ack_seq);
		r->tcp_window = bpf_ntohs(tcp->window);
	} else if (r->proto != IPPROTO_UDP || l4 + sizeof(struct udphdr) > end) {
		return false;
	}
	r->be_ports = *(const __u32 *)l4;
	r->segment_len = hook_segment_len(ctx, r->ip_len, headers);
	return true;
}

static __always_inline struct handover *handover_here(void)
{
	__u32 zero = 0;
	struct cpu_memory *memory = bpf_map_lookup_elem(&scratch, &zero);

	if (!memory)
		return NULL;
	barrier_var(memory);
	return &memory->handover;
}

#endif
