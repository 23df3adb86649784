/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A translated packet gets its new addresses and ports. Every changed 16-bit word counts as (not old) + new into one
 * sum (RFC 1624), which then corrects the checksums; nothing about it is stored with the session.
 */
#ifndef SLUICE_NAT_REWRITE_H
#define SLUICE_NAT_REWRITE_H

#include "flow_table.h"
#include "lib/checksum.h"

#define TCP_CHECK_AT 16
#define UDP_CHECK_AT 6
#define ICMP_CHECK_AT 2

/* By one hop less (RFC 1812 5.3.1) the word of TTL and protocol falls by 0x0100. */
#define HOP_GROWTH ((__u16)~bpf_htons(0x0100))

/* What a translation adds to sums: by addresses alone, and by everything (RFC 1624). */
struct nat_growth {
	__u64 addresses;
	__u64 all;
};

/*
 * The replay of an established packet: everything is in the line that the lookup has found. `hops` is 1 where it goes
 * on, so that the header's checksum is corrected once for both. The transport's checksum is left to nat_replay().
 */
static __always_inline bool nat_replay4(hook_ctx *ctx, __u32 l3, const struct flow_state *state, bool tcp, __u32 hops,
					struct nat_growth *growth)
{
	const struct flow_line4 *line = (const void *)state - offsetof(struct flow_line4, state);
	struct iphdr *ip = hook_data(ctx) + l3;
	__u32 *ports = (void *)(ip + 1);

	if ((void *)ports + (tcp ? sizeof(struct tcphdr) : sizeof(struct udphdr)) > hook_end(ctx))
		return false;
	/* source and destination stand side by side in both places */
	__u64 be_before = *(const __u64 *)&ip->saddr, be_after = *(const __u64 *)&line->be_new_saddr;
	__u32 be_ports = *(const __u32 *)&line->be_new_sport;
	__u64 sum = (__u32)~be_before + (~be_before >> 32) + (__u32)be_after + (be_after >> 32);
	__u64 all = sum + (__u32) ~*ports + be_ports;

	*(__u64 *)&ip->saddr = be_after;
	*ports = be_ports;
	ip->check = ~csum_fold_sum((__u16)~ip->check + sum + hops * HOP_GROWTH);
	ip->ttl -= hops;
	growth->addresses = sum;
	growth->all = all;
	return true;
}

/* The line is looked up again: kernels before 6.10 refuse to read a number below a pointer that may be either family's.
 */
static __always_inline bool nat_replay6(hook_ctx *ctx, __u32 l3, __u32 number, bool tcp, struct nat_growth *growth)
{
	const struct flow_line6 *line = bpf_map_lookup_elem(&lines6, &number);
	struct ipv6hdr *ip = hook_data(ctx) + l3;
	__u32 *ports = (void *)(ip + 1);
	__u64 *words = (__u64 *)&ip->saddr;

	if (!line || (void *)ports + (tcp ? sizeof(struct tcphdr) : sizeof(struct udphdr)) > hook_end(ctx))
		return false;
	for (int i = 0; i < 4; i++)
		words[i] = ((const __u64 *)line->be_new_saddr)[i];
	*ports = *(const __u32 *)&line->be_new_sport;
	growth->addresses = line->address_growth;
	growth->all = line->growth;
	return true;
}

/* Both families' checksums are written by one piece of code. */
static __always_inline bool nat_replay(hook_ctx *ctx, __u32 l3, const struct flow_state *state, __u32 line, __u8 family,
				       bool tcp, __u32 hops)
{
	struct nat_growth growth = {};
	__u32 header = family == 4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	bool fits = family == 4 ? nat_replay4(ctx, l3, state, tcp, hops, &growth)
				: nat_replay6(ctx, l3, line, tcp, &growth);

	return fits && hook_l4_sum(ctx, l3 + header + (tcp ? TCP_CHECK_AT : UDP_CHECK_AT), growth.addresses, growth.all,
				   !tcp, family != 4);
}

/* Writes one word of the packet, and notes what that does to sums. */
static __always_inline void nat_put32(struct packet *p, __u32 *word, __u32 be_new)
{
	__u64 sum = (__u64)p->nat_sum + (__u32) ~*word + be_new;

	p->nat_sum = csum_fold_sum(sum);
	*word = be_new;
}

static __always_inline void nat_put16(struct packet *p, __u16 *word, __u16 be_new)
{
	p->nat_sum = csum_fold_only(p->nat_sum + (__u16) ~*word + be_new);
	*word = be_new;
}

/*
 * Addresses of the outer header. An ICMP error comes from wherever it likes: its source is translated only if the
 * session's is, so that it does not tell an inside address (RFC 5508 REQ-5).
 */
__noinline int nat_put_addresses(hook_ctx *ctx, struct packet *p)
{
	if (!p)
		return false;
	void *header = hook_data(ctx) + (p->l3 & 0x1f);

	p->nat_sum = 0;
	if (p->family == 4) {
		struct iphdr *ip = header;

		if ((void *)(ip + 1) > hook_end(ctx))
			return false;
		if (!(p->flags & P_RELATED) || p->out4.be_saddr != p->key4.be_saddr)
			nat_put32(p, &ip->saddr, p->out4.be_saddr);
		nat_put32(p, &ip->daddr, p->out4.be_daddr);
		ip->check = csum_add_sum(ip->check, p->nat_sum);
		return true;
	}
	struct ipv6hdr *ip = header;
	__u32 *words = (__u32 *)&ip->saddr, changed = 0;

	if ((void *)(ip + 1) > hook_end(ctx))
		return false;
	for (int i = 0; i < 4; i++)
		changed |= p->out6.be_saddr[i] ^ p->key6.be_saddr[i];
	if (!(p->flags & P_RELATED) || changed)
		for (int i = 0; i < 4; i++)
			nat_put32(p, &words[i], p->out6.be_saddr[i]);
	for (int i = 0; i < 4; i++)
		nat_put32(p, &words[4 + i], p->out6.be_daddr[i]);
	return true;
}

/* Where the checksum of a transport header stands; 0 = none that a translation touches. */
static __always_inline __u32 nat_check_field(__u8 proto)
{
	switch (proto) {
	case IPPROTO_TCP:
		return TCP_CHECK_AT;
	case IPPROTO_UDP:
	case IPPROTO_UDPLITE: /* RFC 3828 3.1: its checksum covers a pseudo-header as UDP's does */
	case IPPROTO_DCCP:    /* RFC 4340 9.1 */
		return UDP_CHECK_AT;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		return ICMP_CHECK_AT;
	default:
		return 0;
	}
}

/* IPv6 addresses have changed, and no checksum of this packet with them. */
static __always_inline void nat_unbalanced(hook_ctx *ctx, const struct packet *p)
{
	if (p->family != 4)
		hook_sum_grows(ctx, p->nat_sum);
}

/* Ports, or the identifier of an echo, and the transport checksum. nat_sum holds what the addresses have changed. */
__noinline int nat_put_transport(hook_ctx *ctx, struct packet *p)
{
	if (!p)
		return false;
	__u32 l4 = p->l4 & 0x3fff, field = nat_check_field(p->proto), pseudo = p->nat_sum;
	__u16 *header = hook_data(ctx) + l4;

	if (!field) {
		nat_unbalanced(ctx, p);
		return true;
	}
	if ((void *)(header + 4) > hook_end(ctx))
		return false;
	if (p->proto == IPPROTO_ICMP)
		p->nat_sum = pseudo = 0; /* no pseudo-header */
	if (p->proto == IPPROTO_TCP || p->proto == IPPROTO_UDP) {
		nat_put16(p, &header[0], p->out6.be_sport);
		nat_put16(p, &header[1], p->out6.be_dport);
	} else if (p->proto == IPPROTO_ICMP || p->proto == IPPROTO_ICMPV6) {
		bool asks = p->icmp_type == (p->family == 4 ? ICMP4_ECHO : ICMP6_ECHO);

		nat_put16(p, &header[2], asks ? p->out6.be_sport : p->out6.be_dport);
	}
	/* RFC 3828 3.1: a sum of 0 is sent as all ones, as UDP's is */
	return hook_l4_sum(ctx, l4 + field, pseudo, p->nat_sum, p->proto == IPPROTO_UDP || p->proto == IPPROTO_UDPLITE,
			   p->family != 4);
}

/* A word of the quote, if the packet has it. */
static __always_inline __u16 *nat_quoted(hook_ctx *ctx, const struct packet *p, __u32 at)
{
	__u16 *word = hook_data(ctx) + (at & 0x3fff);

	if ((at & 0x3fff) + 2 > (p->l3 & 0x1f) + (__u32)p->ip_len || (void *)(word + 1) > hook_end(ctx))
		return NULL;
	return word;
}

/*
 * The transport header that an error quotes; it was sent the other way. Only eight bytes of it are sure to be there
 * (RFC 792), so its checksum is corrected where it is (RFC 5508 REQ-4, RFC 5382 REQ-10). `addresses` is what the quoted
 * addresses have changed.
 */
__noinline int nat_put_quoted_transport(hook_ctx *ctx, struct packet *p, __u32 addresses)
{
	if (!p)
		return false;
	__u32 at = p->quote_l4 & 0x3fff, before = p->nat_sum;
	__u8 proto = p->out6.proto;
	__u32 field = nat_check_field(proto);
	__u16 *first = nat_quoted(ctx, p, at), *second = nat_quoted(ctx, p, at + 2),
	      *third = nat_quoted(ctx, p, at + 4);

	if (!first || !second || !third)
		return false;
	p->nat_sum = proto == IPPROTO_ICMP ? 0 : addresses;
	if (proto == IPPROTO_TCP || proto == IPPROTO_UDP) {
		nat_put16(p, first, p->out6.be_dport);
		nat_put16(p, second, p->out6.be_sport);
	} else if (proto == IPPROTO_ICMP || proto == IPPROTO_ICMPV6) {
		bool asked = *(__u8 *)first == (proto == IPPROTO_ICMP ? ICMP4_ECHO : ICMP6_ECHO);

		nat_put16(p, third, asked ? p->out6.be_dport : p->out6.be_sport);
	}
	__u32 inside = p->nat_sum;
	__u16 *check = field ? nat_quoted(ctx, p, at + field) : NULL;

	/* of what is counted, the addresses' share already stands in `before` */
	p->nat_sum = csum_fold_only(before + inside + (proto == IPPROTO_ICMP ? 0 : (__u16)~addresses));
	if (!check || (proto == IPPROTO_UDP && !*check))
		return true;
	__u16 be_new = csum_add_sum(*check, inside);

	nat_put16(p, check, (proto == IPPROTO_UDP || proto == IPPROTO_UDPLITE) && !be_new ? 0xffff : be_new);
	return true;
}

/* Addresses of the quoted header, which is turned around; what they change, or -1. */
__noinline int nat_put_quoted_addresses(hook_ctx *ctx, struct packet *p)
{
	if (!p)
		return -1;
	__u32 outer = p->nat_sum, inner;
	void *header = hook_data(ctx) + (p->l4 & 0x3fff) + 8;

	p->nat_sum = 0;
	if (p->family == 4) {
		struct iphdr *ip = header;

		if ((void *)(ip + 1) > hook_end(ctx))
			return -1;
		nat_put32(p, &ip->saddr, p->out4.be_daddr);
		nat_put32(p, &ip->daddr, p->out4.be_saddr);
		inner = p->nat_sum;
		__u16 be_check = csum_add_sum(ip->check, inner);

		nat_put16(p, &ip->check, be_check);
		outer = 0; /* no pseudo-header */
	} else {
		struct ipv6hdr *ip = header;
		__u32 *words = (__u32 *)&ip->saddr;

		if ((void *)(ip + 1) > hook_end(ctx))
			return -1;
		for (int i = 0; i < 4; i++) {
			nat_put32(p, &words[i], p->out6.be_daddr[i]);
			nat_put32(p, &words[4 + i], p->out6.be_saddr[i]);
		}
		inner = p->nat_sum;
	}
	p->nat_sum = csum_fold_only(p->nat_sum + outer);
	return inner & 0xffff;
}

/* An ICMP error about a translated packet speaks of the packet its receiver knows (RFC 5508 4.2, 4.3). */
__noinline int nat_put_error(hook_ctx *ctx, struct packet *p)
{
	if (!p)
		return false;
	int inner = nat_put_quoted_addresses(ctx, p);

	if (inner < 0 || !nat_put_quoted_transport(ctx, p, inner))
		return false;
	__u16 *check = hook_data(ctx) + (p->l4 & 0x3fff) + ICMP_CHECK_AT;

	if ((void *)(check + 1) > hook_end(ctx))
		return false;
	*check = csum_add_sum(*check, p->nat_sum);
	return true;
}

/* Turns the packet into what `out*` says. */
__noinline int nat_rewrite(hook_ctx *ctx, struct packet *p)
{
	if (!p || !nat_put_addresses(ctx, p))
		return false;
	/* the checksum stands in the first fragment, and covers the whole datagram */
	if (p->flags & P_LATER) {
		nat_unbalanced(ctx, p);
		return true;
	}
	return p->flags & P_RELATED ? nat_put_error(ctx, p) : nat_put_transport(ctx, p);
}

#endif
