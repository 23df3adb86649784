/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ICMP messages as ICMPv6 and the other way round, with the packets they quote: RFC 7915 4.2, 4.3, 5.2, 5.3. */
#ifndef SLUICE_NAT64_ICMP_H
#define SLUICE_NAT64_ICMP_H

#include "nat64/headers.h"

/* ICMPv6 sums a pseudo-header, ICMP does not: of the IPv6 side, whichever that is. */
static __always_inline __u16 nat64_icmp_pseudo(const __u32 *be_saddr, const __u32 *be_daddr, __u32 len)
{
	return csum_fold_only((__u32)nat64_sum6(be_saddr, be_daddr) + bpf_htons(len) + bpf_htons(IPPROTO_ICMPV6));
}

/* Type and code the message leaves with. Global functions are looked at once, whatever they return. */
__noinline __u32 nat64_kind(const struct packet *p)
{
	if (!p)
		return NAT64_NO_MESSAGE;
	return p->wire == 4 ? nat64_kind6(p->icmp_type, p->icmp_code) : nat64_kind4(p->icmp_type, p->icmp_code);
}

/* Echo messages carry an identifier, and are otherwise alike. `at` is the word behind the new IP header. */
static __always_inline int nat64_echo(hook_ctx *ctx, struct packet *p, struct nat64_work *w, __u32 at)
{
	bool to6 = p->wire == 4;
	__u32 len = p->ip_len - p->ip_header_len;
	bool request = p->icmp_type == (to6 ? ICMP4_ECHO : ICMP6_ECHO);
	__u32 kind = nat64_kind(p);

	if (kind == NAT64_NO_MESSAGE || !hook_load(ctx, p->l4 & 0x3fff, w->be_old, 8))
		return DROP(NAT64_ICMP);
	__u16 be_old_check = w->be_old[0] >> 16;
	__u32 be_first = w->be_old[0] & 0xffff, be_second = w->be_old[1];
	__u16 before = csum_fold_only(csum_add32(be_first, be_second)), after;
	__u16 pseudo = to6 ? nat64_icmp_pseudo(w->be_saddr, w->be_daddr, len)
			   : nat64_icmp_pseudo(w->be_outer + 2, w->be_outer + 6, len);

	be_first = bpf_htonl(kind);
	be_second = (be_second & 0xffff0000) | (request ? w->be_sport : w->be_dport);
	after = csum_fold_only(csum_add32(be_first, be_second));
	__u32 sum = (__u32)(__u16)~be_old_check + (__u16)~before + after + (to6 ? pseudo : (__u16)~pseudo);

	w->be_new[at] = be_first | (__u32)csum_fold(sum) << 16;
	w->be_new[at + 1] = be_second;
	w->old_len += 8;
	w->new_len += 8;
	return CONTINUE;
}

/* The word behind the checksum of an error, to `rest`: MTU, pointer or nothing. */
__noinline int nat64_error_rest(const struct packet *p, struct nat64_work *w, __u32 kind)
{
	if (!p || !w)
		return false;
	struct unit *unit = unit_at(p->unit_slot);
	struct nexthop *nexthop = nexthop_at(p->nexthop);
	__u32 was = bpf_ntohl(w->be_old[1]);

	w->rest = 0;
	if (!unit || !nexthop)
		return false;
	if (p->wire == 4) {
		if (kind == ICMP_KIND(ICMP6_TOO_BIG, 0))
			w->rest = nat64_mtu6(was & 0xffff, bpf_ntohl(w->be_old[2]) & 0xffff, unit->mtu, nexthop->mtu);
		else if (kind == ICMP_KIND(ICMP6_PARAMETER, 1))
			w->rest = offsetof(struct ipv6hdr, nexthdr);
		else if (kind == ICMP_KIND(ICMP6_PARAMETER, 0))
			w->rest = nat64_pointer6(was >> 24);
		return w->rest != NAT64_NO_POINTER || kind != ICMP_KIND(ICMP6_PARAMETER, 0);
	}
	if (p->icmp_type == ICMP6_TOO_BIG) {
		w->rest = nat64_mtu4(was, unit->mtu, nexthop->mtu);
	} else if (kind == ICMP_KIND(ICMP4_PARAMETER, 0)) {
		__u32 pointer = nat64_pointer4(was);

		w->rest = pointer << 24;
		return pointer != NAT64_NO_POINTER;
	}
	return true;
}

/*
 * Where the Fragment header of a quoted IPv6 packet stands, in words of the message; 0 = it has none. Where the walk is
 * stands in the record, which the verifier does not follow.
 */
__noinline __u32 nat64_quoted_fragment(struct nat64_work *w)
{
	__u32 i;

	if (!w)
		return 0;
	w->walk = 12 | (bpf_ntohl(w->be_old[3]) & 0xff00);
	bpf_for (i, 0, EXTENSION_HEADERS_MAX) {
		__u32 at = *(volatile __u32 *)&w->walk & 0xff, next = *(volatile __u32 *)&w->walk >> 8 & 0xff;

		if (at + 2 > 2u + w->inner_words || !is_extension(next) || next == IPPROTO_AH)
			return 0;
		if (next == IPPROTO_FRAGMENT)
			return at;
		__u32 word = bpf_ntohl(w->be_old[at & (NAT64_WORDS - 1)]);

		at += ((word >> 16 & 0xff) + 1) * 2;
		w->walk = (at < 0xff ? at : 0xff) | word >> 24 << 8;
	}
	return 0;
}

/* The quoted header, turned around as the quoted packet is: its source is this direction's destination. */
static __always_inline __u32 nat64_quoted_header(const struct packet *p, struct nat64_work *w, __u32 at)
{
	const __u32 *inner = w->be_old + 2;
	struct nat64_ip ip = {.quoted = true};

	if (p->wire == 4) {
		__u32 first = bpf_ntohl(inner[0]), second = bpf_ntohl(inner[1]), third = bpf_ntohl(inner[2]);

		ip.traffic_class = first >> 16;
		ip.payload = (first & 0xffff) - least(w->inner_words * 4, first & 0xffff);
		ip.fragmented = second & IPV4_MF;
		ip.fragment = 1;
		ip.id = second >> 16;
		ip.hops = third >> 24;
		ip.proto = third >> 16;
		return nat64_header6(w->be_new + at, &ip, w->be_daddr, w->be_saddr);
	}
	__u32 second = bpf_ntohl(inner[1]), extensions = w->inner_words * 4 - sizeof(struct ipv6hdr);

	ip.traffic_class = bpf_ntohl(inner[0]) >> 20;
	ip.payload = (second >> 16) - least(extensions, second >> 16);
	ip.segment_total = ip.payload + 20;
	ip.hops = second;
	ip.proto = nat64_proto4(p->key6.proto);
	__u32 fragment = w->quoted_fragment;

	if (fragment) {
		ip.fragmented = true;
		ip.fragment = bpf_ntohl(w->be_old[fragment & (NAT64_WORDS - 1)]) & 0xfff9;
		ip.id = bpf_ntohl(w->be_old[(fragment + 1) & (NAT64_WORDS - 1)]);
	}
	nat64_header4(w->be_new + at, &ip, w->be_daddr[3], w->be_saddr[3]);
	return 5;
}

/* Sum of the addresses the quoted packet had, and of those it gets. */
static __always_inline __u16 nat64_quoted_growth(const struct packet *p, const struct nat64_work *w)
{
	const __u32 *inner = w->be_old + 2;

	if (p->wire == 4)
		return nat64_growth(nat64_sum4(inner[3], inner[4]), nat64_sum6(w->be_saddr, w->be_daddr));
	return nat64_growth(nat64_sum6(inner + 2, inner + 6), nat64_sum4(w->be_saddr[3], w->be_daddr[3]));
}

/* Adds to the checksum in one half of a word. */
static __always_inline __u32 nat64_grow_check(__u32 word, bool upper, __u32 growth)
{
	__u16 be_check = upper ? word >> 16 : word & 0xffff;
	__u16 sum = csum_fold((__u16)~be_check + growth);

	return upper ? (word & 0xffff) | (__u32)sum << 16 : (word & 0xffff0000) | sum;
}

/* Ports, or type and identifier, of the quoted packet, and its checksum where it is there. */
static __always_inline void nat64_quoted_l4(const struct packet *p, struct nat64_work *w, __u32 *l4, __u8 proto,
					    __u32 inner_len)
{
	__u16 addresses = nat64_quoted_growth(p, w);
	__u32 be_old = l4[0], be_old_check = l4[1] >> 16;

	if (proto == IPPROTO_TCP || proto == IPPROTO_UDP) {
		l4[0] = w->be_dport | (__u32)w->be_sport << 16;
		__u16 ports = nat64_growth(csum_fold_only(csum_add32(0, be_old)), csum_fold_only(csum_add32(0, l4[0])));

		if (proto == IPPROTO_TCP && w->quoted_words == 5)
			l4[4] = nat64_grow_check(l4[4], false, (__u32)addresses + ports);
		else if (proto == IPPROTO_UDP && l4[1] >> 16)
			l4[1] = nat64_grow_check(l4[1], true, (__u32)addresses + ports);
		if (proto == IPPROTO_UDP && be_old_check && !(l4[1] >> 16))
			l4[1] |= 0xffff0000; /* 0 would say that there is none (RFC 768) */
		return;
	}
	__u8 type = be_old;
	bool to6 = p->wire == 4, request = type == (to6 ? ICMP4_ECHO : ICMP6_ECHO);
	__u8 turned = to6 ? (request ? ICMP6_ECHO : ICMP6_ECHO_REPLY) : (request ? ICMP4_ECHO : ICMP4_ECHO_REPLY);
	__u16 be_id = request ? w->be_dport : w->be_sport;
	__u16 pseudo = to6 ? nat64_icmp_pseudo(w->be_saddr, w->be_daddr, inner_len)
			   : nat64_icmp_pseudo(w->be_old + 4, w->be_old + 8, inner_len);
	__u32 growth = nat64_growth(be_old & 0xff, turned) + (__u32)nat64_growth(l4[1] & 0xffff, be_id) +
		       (to6 ? pseudo : (__u16)~pseudo);

	l4[0] = nat64_grow_check((be_old & ~0xffu) | turned, true, growth);
	l4[1] = (l4[1] & 0xffff0000) | be_id;
}

/* RFC 4884 4: how many bytes the message says it quotes; 0 = all there are. What stands behind them is its extension.
 */
static __always_inline __u32 nat64_quoted_length(const struct packet *p, const struct nat64_work *w)
{
	__u32 type = p->icmp_type;

	if (p->wire == 4)
		return (w->be_old[1] >> 8 & 0xff) * 4;
	return type == ICMP6_UNREACHABLE || type == ICMP6_TIME_EXCEEDED ? (w->be_old[1] & 0xff) * 8 : 0;
}

/* How much of the message stays: its quote without the extension, and in IPv6 1,280 bytes. */
__noinline __u32 nat64_error_keep(const struct packet *p, const struct nat64_work *w, __u32 len)
{
	if (!p || !w)
		return 0;
	__u32 quoted = nat64_quoted_length(p, w);
	int growth = w->growth;

	if (quoted && 8 + quoted < len)
		len = 8 + quoted;
	if (p->wire == 4 && len + growth + sizeof(struct ipv6hdr) > NAT64_IPV6_MTU_MIN)
		len = NAT64_IPV6_MTU_MIN - sizeof(struct ipv6hdr) - growth;
	return len;
}

/*
 * RFC 7915 4.2, 5.2: the extension goes along. The quote in front of it is padded to what its length can say, words of
 * 32 bits or of 64, and to 128 bytes at least (RFC 4884 4.1, 4.2, 5.1); the padding is returned, and the length stands
 * in `rest`. -1 = it cannot: the message has none, the other family's has no place for it, or it is too long.
 */
__noinline int nat64_keep_extension(hook_ctx *ctx, const struct packet *p, struct nat64_work *w, __u32 len)
{
	if (!p || !w)
		return -1;
	__u32 quoted = nat64_quoted_length(p, w), at = (p->l4 & 0x3fff) + 8 + quoted, extension = len - 8 - quoted;
	int growth = w->growth;
	__u32 unit = p->wire == 4 ? 8 : 4, type = nat64_kind(p) >> 24;

	if (!quoted || len <= 8 + quoted || quoted < (w->inner_words + w->quoted_words) * 4u)
		return -1;
	if (p->wire == 4 && type != ICMP6_UNREACHABLE && type != ICMP6_TIME_EXCEEDED)
		return -1;
	__u32 padded = (quoted + growth + unit - 1) & -unit;

	padded = padded < NAT64_QUOTE_MIN ? NAT64_QUOTE_MIN : padded;
	__u32 padding = padded - quoted - growth;

	if (p->wire == 4 && sizeof(struct ipv6hdr) + 8 + padded + extension > NAT64_IPV6_MTU_MIN)
		return -1;
	if (!extension || extension > NAT64_EXTENSION_MAX || padding > NAT64_PADDING_MAX)
		return -1;
	w->rest = padded / unit << (p->wire == 4 ? 24 : 16);
	if (!padding)
		return 0;
	for (int i = 0; i < NAT64_PADDING_MAX / 4; i++)
		((__u32 *)w->extension)[i] = 0;
	__u32 from = (NAT64_PADDING_MAX - padding) & (NAT64_PADDING_MAX - 1), length = extension + padding;

	if (length > NAT64_EXTENSION_MAX)
		return -1;
	/* both are within 1 and the most; said so that kernels before 6.18 see it, whatever copy they look at */
	barrier_var(extension);
	barrier_var(length);
	extension = ((extension - 1) & (NAT64_EXTENSION_MAX - 1)) + 1;
	length = ((length - 1) & (NAT64_EXTENSION_MAX - 1)) + 1;
	if (!hook_load(ctx, at, w->extension + NAT64_PADDING_MAX, extension) ||
	    !hook_resize(ctx, at + extension + padding) || !hook_store(ctx, at, w->extension + from, length))
		return -1;
	return padding;
}

/* Where the quoted packet's transport header stands, in words from its IP header; false = too far away. */
__noinline int nat64_quoted_words(const struct packet *p, struct nat64_work *w, __u32 len)
{
	if (!p || !w)
		return false;
	__u8 proto = p->wire == 4 ? p->key4.proto : p->key6.proto;
	__u32 words;

	if (p->wire == 4)
		words = w->be_old[2] & 0x0f;
	else
		words = ((p->option_at & 0x3fff) - (p->l4 & 0x3fff) - 8) / 4;
	if (words < 5 || words > NAT64_INNER_WORDS || (p->wire != 4 && words < 10))
		return false;
	w->inner_words = words;
	/* behind the quoted packet may stand padding (RFC 4884 5.4) */
	__u32 total = p->wire == 4 ? bpf_ntohl(w->be_old[2]) & 0xffff : (bpf_ntohl(w->be_old[3]) >> 16) + 40;

	w->quoted_words = proto == IPPROTO_TCP && least(len - 8, total) >= words * 4 + 20 ? 5 : 2;
	return len >= 8 + words * 4 + 8;
}

__noinline int nat64_quote(struct packet *p, struct nat64_work *w, __u32 at)
{
	if (!p || !w)
		return 0;
	at &= 0xf;
	__u32 inner = w->inner_words, i;
	__u32 words = nat64_quoted_header(p, w, at + 2);
	__u32 behind = at + 2 + words;
	__u8 proto = nat64_proto4(p->wire == 4 ? p->key4.proto : p->key6.proto);
	__u32 l4[5];

	for (i = 0; i < 5; i++)
		l4[i] = w->be_old[(2 + inner + i) & (NAT64_WORDS - 1)];
	__u32 total = bpf_ntohl(w->be_old[p->wire == 4 ? 2 : 3]);
	__u32 inner_len = p->wire == 4 ? (total & 0xffff) - inner * 4 : (total >> 16) + 40 - inner * 4;

	nat64_quoted_l4(p, w, l4, proto, inner_len);
	for (i = 0; i < 5; i++)
		w->be_new[(behind + i) & (NAT64_WORDS - 1)] = l4[i];
	return words;
}

__noinline int nat64_error(hook_ctx *ctx, struct packet *p, struct nat64_work *w, __u32 at)
{
	if (!p || !w)
		return DROP(NAT64_ICMP);
	at &= 0xf;
	bool to6 = p->wire == 4;
	__u32 len = p->ip_len - p->ip_header_len, l4 = p->l4 & 0x3fff;
	__u32 loaded = least(len, NAT64_OLD_WORDS * 4) & ~3u;
	__u32 kind = nat64_kind(p);

	barrier_var(loaded);
	if (kind == NAT64_NO_MESSAGE || loaded < 36)
		return DROP(NAT64_ICMP);
	barrier_var(loaded); /* one comparison of a difference would tell the verifier nothing */
	if (loaded > NAT64_OLD_WORDS * 4 || !hook_load(ctx, l4, w->be_old, loaded))
		return DROP(NAT64_ICMP);
	if (!nat64_quoted_words(p, w, len) || !nat64_error_rest(p, w, kind))
		return DROP(NAT64_ICMP);
	w->quoted_fragment = to6 ? 0 : nat64_quoted_fragment(w);
	__u32 words = nat64_quote(p, w, at) & 0xf, old_words = 2 + w->inner_words + w->quoted_words;
	w->growth = ((int)words - (int)w->inner_words) * 4;
	int padding = nat64_keep_extension(ctx, p, w, len);
	__u32 keep = padding < 0 ? nat64_error_keep(p, w, len) : len + padding, cut_sum = 0;

	if (keep < len) {
		int sum = nat64_sum_frame(ctx, l4 + keep, len - keep);

		if (sum < 0 || keep < old_words * 4 || !hook_reshape(ctx, 0, l4 + keep))
			return DROP(NAT64_ICMP);
		cut_sum = sum;
	}
	w->message_len = keep + w->growth;
	/* a router on the way speaks as the address its own has behind the prefix; RFC 6146 3.5 has none for IPv6 ones
	 */
	if (to6 && w->be_outer[3] != w->be_peer)
		nat64_embed(w->be_saddr, w->prefix_length, w->be_outer[3], w->be_saddr);
	__u16 be_old_check = w->be_old[0] >> 16;
	__u16 pseudo = to6 ? nat64_icmp_pseudo(w->be_saddr, w->be_daddr, w->message_len)
			   : nat64_icmp_pseudo(w->be_outer + 2, w->be_outer + 6, len);

	w->be_old[0] &= 0xffff;
	w->be_new[at] = bpf_htonl(nat64_kind(p));
	w->be_new[at + 1] = bpf_htonl(w->rest);
	__u32 new_words = 2 + words + w->quoted_words;
	__u32 sum = (__u32)(__u16)~be_old_check + (__u16)~nat64_sum_old(w, old_words) +
		    (__u16)nat64_sum_new(w, at, new_words) + (__u16)~cut_sum + (to6 ? pseudo : (__u16)~pseudo);

	w->be_new[at] |= (__u32)csum_fold(sum) << 16;
	w->old_len += old_words * 4;
	w->new_len += new_words * 4;
	return CONTINUE;
}

#endif
