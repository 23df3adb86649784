/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Answers this gateway makes: ICMP errors (RFC 792, RFC 1812 4.3.2, RFC 4443) and TCP resets (RFC 9293 3.5.2). The
 * packet at hand is turned into the answer and leaves through the device it came from. Source is the ingress unit's
 * address; token buckets of its zone bound the rate (RFC 1812 4.3.2.8).
 */
#ifndef SLUICE_LIB_REPLY_H
#define SLUICE_LIB_REPLY_H

#include "lib/checksum.h"
#include "lib/tokens.h"

#define QUOTE4_MAX 548  /* 576 - 20 - 8, RFC 1812 4.3.2.3 */
#define QUOTE6_MAX 1232 /* 1280 - 40 - 8, RFC 4443 2.4 (c) */
#define ICMP4_ROOM 28
#define ICMP6_ROOM 48

/*
 * Answers that tell a path's MTU have buckets of their own, behind those of all others: without them connections hang
 * (RFC 2923 2.1), so nobody may use them up by having his packets refused.
 */
static __always_inline __u32 reply_bucket(const struct packet *p)
{
	return p->from_zone + (p->reply == REPLY_TOO_BIG ? REPLY_BUCKET_TOO_BIG : 0);
}

static __always_inline bool reply_allowed(const struct packet *p)
{
	__u32 number = reply_bucket(p);
	struct token_bucket *bucket = bpf_map_lookup_elem(&reply_tokens, &number);

	return bucket && tokens_take(bucket, p->now, REPLY_RATE_PER_ZONE);
}

/* One's complement sum of `len` bytes (a multiple of four) at `offset` into the frame. */
static __noinline int sum_range(hook_ctx *ctx, __u32 offset, __u32 len)
{
	__u64 sum = 0;
	__u32 i;

	bpf_for (i, 0, len / 4) {
		__u32 at = (offset + i * 4) & 0xfff;
		__u32 *word = hook_data(ctx) + at;

		if ((void *)(word + 1) > hook_end(ctx))
			break;
		sum += *word;
	}
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	return csum_fold_only(sum);
}

static __always_inline __u32 pseudo_sum(const struct packet *p)
{
	__u32 len = p->ip_len - p->ip_header_len;

	if (p->wire == 4)
		return csum_pseudo4(p->key4.be_saddr, p->key4.be_daddr, p->proto, len);
	return csum_pseudo6(p->key6.be_saddr, p->key6.be_daddr, p->proto, len);
}

/* Offset of the checksum a device may still have to complete, from the layer-4 header; 0 = none. */
static __always_inline __u32 partial_field(const struct packet *p)
{
	__u32 field = p->proto == IPPROTO_TCP ? 16 : p->proto == IPPROTO_UDP ? 6 : 0;

	/* who fragments a packet completes it before */
	return field && !(p->flags & P_FRAGMENT) && hook_maybe_partial(p->be_l4_check, pseudo_sum(p)) ? field : 0;
}

/* Let the quoted checksum be the same before and after a device completes it, so that the ICMP sum holds. */
static __always_inline bool settle_quote(hook_ctx *ctx, __u32 l4, __u32 field, __u32 end)
{
	__u32 at = (l4 + field) & 0xfff;
	__be16 *check = hook_data(ctx) + at;

	if ((void *)(check + 1) > hook_end(ctx))
		return false;
	*check = 0;
	__u16 rest = sum_range(ctx, l4, (end - l4) & ~3u);

	/* the quote is cut to whole words behind a header of whole words */
	check = hook_data(ctx) + at;
	if ((void *)(check + 1) > hook_end(ctx))
		return false;
	*check = csum_fixed_point(rest);
	return true;
}

/* Swap the MAC addresses of the old header at `old` into a new one at 0, with its type or tags. */
static __always_inline bool reply_ethernet(hook_ctx *ctx, __u32 old, __u32 header_len)
{
	void *data = hook_data(ctx);
	void *from = data + (old & 0x3f);

	if (data + ETH_HLEN + 8 > hook_end(ctx) || from + ETH_HLEN + 8 > hook_end(ctx))
		return false;
	__u32 dmac = *(__u32 *)from, smac = *(__u32 *)(from + 6), type = *(__u32 *)(from + 12);
	__u16 dmac2 = *(__u16 *)(from + 4), smac2 = *(__u16 *)(from + 10), last = *(__u16 *)(from + 20);
	__u32 second = *(__u32 *)(from + 16);

	*(__u32 *)data = smac;
	*(__u16 *)(data + 4) = smac2;
	*(__u32 *)(data + 6) = dmac;
	*(__u16 *)(data + 10) = dmac2;
	*(__u16 *)(data + 12) = (__u16)type;
	if (header_len > ETH_HLEN) {
		*(__u32 *)(data + 12) = type;
		*(__u16 *)(data + 16) = (__u16)second;
	}
	if (header_len > ETH_HLEN + 4) {
		*(__u32 *)(data + 16) = second;
		*(__u16 *)(data + 20) = last;
	}
	return true;
}

static __always_inline void reply_ipv4(struct iphdr *ip, __u32 len, __u8 proto, __u32 be_saddr, __u32 be_daddr)
{
	*(__u32 *)ip = bpf_htonl(0x45000000 | len);
	((__u32 *)ip)[1] = 0;
	((__u32 *)ip)[2] = bpf_htonl(64 << 24 | proto << 16);
	ip->saddr = be_saddr;
	ip->daddr = be_daddr;
	__u32 sum = 0;

	for (int i = 0; i < 10; i++)
		sum += ((__u16 *)ip)[i];
	ip->check = csum_fold(sum);
}

static __always_inline void reply_ipv6(struct ipv6hdr *ip, __u32 payload, __u8 proto, const __u32 *be_saddr,
				       const __u32 *be_daddr)
{
	*(__u32 *)ip = bpf_htonl(0x60000000);
	*((__u32 *)ip + 1) = bpf_htonl(payload << 16 | proto << 8 | 64);
	for (int i = 0; i < 4; i++) {
		((__u32 *)&ip->saddr)[i] = be_saddr[i];
		((__u32 *)&ip->daddr)[i] = be_daddr[i];
	}
}

/* Type and code in the upper bytes, as they stand in the header. */
static __always_inline __u32 icmp4_kind(const struct packet *p)
{
	switch (p->reply) {
	case REPLY_TIME_EXCEEDED:
		return ICMP4_TIME_EXCEEDED << 24;
	case REPLY_TOO_BIG:
		return ICMP4_UNREACHABLE << 24 | 4 << 16; /* RFC 1191 4 */
	case REPLY_NO_ROUTE:
		return ICMP4_UNREACHABLE << 24;
	case REPLY_PORT:
		return ICMP4_UNREACHABLE << 24 | 3 << 16;
	case REPLY_SOURCE_ROUTE:
		return ICMP4_UNREACHABLE << 24 | 5 << 16; /* RFC 7915 4.1 */
	default:
		return ICMP4_UNREACHABLE << 24 | 13 << 16; /* administratively prohibited, RFC 1812 5.2.7.1 */
	}
}

static __always_inline __u32 icmp6_kind(const struct packet *p)
{
	switch (p->reply) {
	case REPLY_TIME_EXCEEDED:
		return ICMP6_TIME_EXCEEDED << 24;
	case REPLY_TOO_BIG:
		return ICMP6_TOO_BIG << 24;
	case REPLY_NO_ROUTE:
		return ICMP6_UNREACHABLE << 24;
	case REPLY_PORT:
		return ICMP6_UNREACHABLE << 24 | 4 << 16;
	case REPLY_SOURCE_ROUTE:
		return ICMP6_PARAMETER << 24; /* RFC 7915 5.1: the pointer stands where an MTU would */
	default:
		return ICMP6_UNREACHABLE << 24 | 1 << 16;
	}
}

static __noinline int reply_icmp4(hook_ctx *ctx, struct packet *p)
{
	if (!p)
		return 0;
	struct unit *unit = unit_at(p->unit_slot);
	__u32 l3 = p->l3 & 0x1f, quote = (p->ip_len > QUOTE4_MAX ? QUOTE4_MAX : p->ip_len) & ~3u;

	if (!unit || !unit->be_addr4)
		return 0;
	__u32 be_saddr = unit->be_addr4, icmp = l3 + sizeof(struct iphdr);
	__u32 field = partial_field(p);

	if (!hook_reshape(ctx, ICMP4_ROOM, l3 + quote) || !reply_ethernet(ctx, ICMP4_ROOM, l3))
		return 0;
	if (field && !settle_quote(ctx, icmp + 8 + p->ip_header_len, field, icmp + 8 + quote))
		return 0;
	struct iphdr *ip = hook_data(ctx) + l3;
	__u32 *header = (void *)(ip + 1);

	if ((void *)(header + 2) > hook_end(ctx))
		return 0;
	reply_ipv4(ip, sizeof(*ip) + 8 + quote, IPPROTO_ICMP, be_saddr, p->key4.be_saddr);
	header[0] = bpf_htonl(icmp4_kind(p));
	header[1] = p->reply == REPLY_TOO_BIG ? bpf_htonl(p->reply_mtu) : 0;
	__u16 check = ~sum_range(ctx, icmp, 8 + quote);

	header = hook_data(ctx) + icmp;
	if ((void *)(header + 2) > hook_end(ctx))
		return 0;
	((__u16 *)header)[1] = check;
	return 1;
}

static __noinline int reply_icmp6(hook_ctx *ctx, struct packet *p)
{
	if (!p)
		return 0;
	struct unit *unit = unit_at(p->unit_slot);
	__u32 l3 = p->l3 & 0x1f, quote = (p->ip_len > QUOTE6_MAX ? QUOTE6_MAX : p->ip_len) & ~3u;

	if (!unit || !(unit->be_addr6[0] | unit->be_addr6[1] | unit->be_addr6[2] | unit->be_addr6[3]))
		return 0;
	__u32 icmp = l3 + sizeof(struct ipv6hdr);
	__u32 field = partial_field(p);

	if (!hook_reshape(ctx, ICMP6_ROOM, l3 + quote) || !reply_ethernet(ctx, ICMP6_ROOM, l3))
		return 0;
	if (field && !settle_quote(ctx, icmp + 8 + p->ip_header_len, field, icmp + 8 + quote))
		return 0;
	struct ipv6hdr *ip = hook_data(ctx) + l3;
	__u32 *header = (void *)(ip + 1);

	if ((void *)(header + 2) > hook_end(ctx))
		return 0;
	reply_ipv6(ip, 8 + quote, IPPROTO_ICMPV6, unit->be_addr6, p->key6.be_saddr);
	header[0] = bpf_htonl(icmp6_kind(p));
	header[1] = p->reply == REPLY_TOO_BIG || p->reply == REPLY_SOURCE_ROUTE ? bpf_htonl(p->reply_mtu) : 0;
	__u32 sum = csum_pseudo6(unit->be_addr6, p->key6.be_saddr, IPPROTO_ICMPV6, 8 + quote);
	__u16 check = csum_fold(csum_fold_only(sum) + (__u16)sum_range(ctx, icmp, 8 + quote));

	header = hook_data(ctx) + icmp;
	if ((void *)(header + 2) > hook_end(ctx))
		return 0;
	((__u16 *)header)[1] = check;
	return 1;
}

/* The reset's numbers: from the segment's acknowledgement if it has one, else acknowledging all of it. */
static __always_inline void reply_tcp(struct tcphdr *tcp, const struct packet *p, __be16 be_sport, __be16 be_dport)
{
	bool acked = p->tcp_flags & TCP_ACK;
	__u32 end = p->tcp_seq + p->payload + !!(p->tcp_flags & TCP_SYN) + !!(p->tcp_flags & TCP_FIN);
	__u32 *words = (void *)tcp;

	tcp->source = be_sport;
	tcp->dest = be_dport;
	words[4] = 0;
	if (p->reply == REPLY_COOKIE) {
		/* no window: what the client says now would be lost */
		words[1] = bpf_htonl(p->cookie);
		words[2] = bpf_htonl(p->tcp_seq + 1);
		words[3] = bpf_htonl(5u << 28 | (TCP_SYN | TCP_ACK) << 16);
		return;
	}
	words[1] = acked ? bpf_htonl(p->tcp_ack) : 0;
	words[2] = acked ? 0 : bpf_htonl(end);
	words[3] = bpf_htonl(5u << 28 | (TCP_RST | (acked ? 0 : TCP_ACK)) << 16);
}

/*
 * Checksum of the reset. Where a device may still complete the field of the packet this was made from, the field gets
 * the pseudo-header's sum and the urgent pointer (meaningless without URG) what makes that right either way.
 */
static __always_inline void reply_tcp_check(struct tcphdr *tcp, __u32 pseudo, bool partial)
{
	__u16 folded = csum_fold_only(pseudo);
	__u32 sum = 0;

	for (int i = 0; i < 10; i++)
		sum += ((__u16 *)tcp)[i];
	if (partial) {
		/* sum + urgent + folded = ~folded, so urgent = -2 folded - sum */
		tcp->check = folded;
		tcp->urg_ptr = csum_fold(sum + folded + folded);
		return;
	}
	tcp->check = csum_fold(sum + folded);
}

static __noinline int reply_reset(hook_ctx *ctx, struct packet *p)
{
	if (!p)
		return 0;
	__u32 l3 = p->l3 & 0x1f;
	__u32 header = p->wire == 4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	bool partial = partial_field(p) != 0;

	/* a reset carries no options; a segment with RST is never answered */
	if ((p->flags & P_OPTIONS) || (p->tcp_flags & TCP_RST))
		return 0;
	if (!hook_reshape(ctx, 0, l3 + header + sizeof(struct tcphdr)) || !reply_ethernet(ctx, 0, l3))
		return 0;
	struct tcphdr *tcp = hook_data(ctx) + l3 + header;

	if ((void *)(tcp + 1) > hook_end(ctx))
		return 0;
	reply_tcp(tcp, p, p->key6.be_dport, p->key6.be_sport);
	if (p->wire == 4) {
		reply_tcp_check(tcp, csum_pseudo4(p->key4.be_daddr, p->key4.be_saddr, IPPROTO_TCP, sizeof(*tcp)),
				partial);
		struct iphdr *ip = hook_data(ctx) + l3;

		if ((void *)(ip + 1) > hook_end(ctx))
			return 0;
		reply_ipv4(ip, sizeof(*ip) + sizeof(*tcp), IPPROTO_TCP, p->key4.be_daddr, p->key4.be_saddr);
		return 1;
	}
	reply_tcp_check(tcp, csum_pseudo6(p->key6.be_daddr, p->key6.be_saddr, IPPROTO_TCP, sizeof(*tcp)), partial);
	struct ipv6hdr *ip = hook_data(ctx) + l3;

	if ((void *)(ip + 1) > hook_end(ctx))
		return 0;
	reply_ipv6(ip, sizeof(*tcp), IPPROTO_TCP, p->key6.be_daddr, p->key6.be_saddr);
	return 1;
}

/*
 * RFC 1812 4.3.2.7, RFC 4443 2.4 (e): never about an ICMP error, never to a source that names no single host, never
 * about a fragment but the first, unless an IPv6 sender must learn of the path's MTU by it (RFC 8201 4).
 */
static __always_inline bool reply_forbidden(const struct packet *p)
{
	if (p->flags & (P_ICMP_ERROR | P_MULTICAST))
		return true;
	if ((p->flags & P_LATER) && (p->wire == 4 || p->reply != REPLY_TOO_BIG))
		return true;
	if (p->wire == 4)
		return p->key4.be_saddr == 0;
	return !(p->key6.be_saddr[0] | p->key6.be_saddr[1] | p->key6.be_saddr[2] | p->key6.be_saddr[3]);
}

/* The answer, in the place of the packet at hand; false where none may be made, or could not be. */
static __always_inline bool reply_make(hook_ctx *ctx, struct packet *p, struct unit_counters *count)
{
	/*
	 * RFC 1812 5.2.6 would divide an IPv4 packet without DF. Nothing here can, so its sender is told the size as if
	 * DF stood there (RFC 1191 4): senders that keep path MTUs then divide it themselves.
	 */
	if (reply_forbidden(p))
		return false;
	/* what belongs to a cookie answers nobody else, and its sender pays as much */
	if (!p->cookie && !reply_allowed(p)) {
		count->replies_withheld += 1;
		return false;
	}
	return p->reply == REPLY_RESET || p->reply == REPLY_COOKIE ? reply_reset(ctx, p)
	       : p->wire == 4                                      ? reply_icmp4(ctx, p)
								   : reply_icmp6(ctx, p);
}

static __always_inline int reply_send(hook_ctx *ctx, struct packet *p)
{
	struct unit_counters *count = counters_of(p->unit_index);
	struct unit *unit = unit_at(p->unit_slot);

	if (!count || !unit)
		return HOOK_DROP;
	__u32 ifindex = unit->phys_ifindex;

	if (!reply_make(ctx, p, count))
		return HOOK_DROP;
	count->replies += 1;
	return hook_redirect(ctx, ifindex);
}

#endif
