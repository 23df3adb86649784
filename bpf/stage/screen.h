/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Screens of every packet (Junos `security screen ids-option`): what a packet looks like, as a set of bits, is compared
 * with what its zone has asked for. The lowest bit that is in both is the reason to drop.
 */
#ifndef SLUICE_STAGE_SCREEN_H
#define SLUICE_STAGE_SCREEN_H

#include "lib/fragment.h"
#include "lib/screen.h"

#define LARGE_ICMP 1024
#define FIRST_UNASSIGNED_PROTOCOL 146 /* IANA has assigned what is below */
#define NETBIOS_SESSION 139
#define TCP_ALL_FLAGS 0x3f

/* IPv4 option types (RFC 791 3.1). */
#define OPTION_END 0
#define OPTION_NOTHING 1
#define OPTION_RECORD_ROUTE 7
#define OPTION_TIMESTAMP 68
#define OPTION_SECURITY 130
#define OPTION_LOOSE_SOURCE_ROUTE 131
#define OPTION_STREAM 136
#define OPTION_STRICT_SOURCE_ROUTE 137

static __always_inline __u32 option_screens(__u8 type, __u8 length)
{
	switch (type) {
	case OPTION_RECORD_ROUTE:
		return SCREEN_BIT(RECORD_ROUTE_OPTION) | (length < 3 ? SCREEN_BIT(BAD_OPTION) : 0);
	case OPTION_TIMESTAMP:
		return SCREEN_BIT(TIMESTAMP_OPTION) | (length < 4 ? SCREEN_BIT(BAD_OPTION) : 0);
	case OPTION_SECURITY:
		return SCREEN_BIT(SECURITY_OPTION);
	case OPTION_STREAM:
		return SCREEN_BIT(STREAM_OPTION) | (length != 4 ? SCREEN_BIT(BAD_OPTION) : 0);
	case OPTION_LOOSE_SOURCE_ROUTE:
		return SCREEN_BIT(LOOSE_SOURCE_ROUTE_OPTION) | SCREEN_BIT(SOURCE_ROUTE_OPTION) |
		       (length < 3 ? SCREEN_BIT(BAD_OPTION) : 0);
	case OPTION_STRICT_SOURCE_ROUTE:
		return SCREEN_BIT(STRICT_SOURCE_ROUTE_OPTION) | SCREEN_BIT(SOURCE_ROUTE_OPTION) |
		       (length < 3 ? SCREEN_BIT(BAD_OPTION) : 0);
	default:
		return 0;
	}
}

/*
 * Walks the options of an IPv4 header; the entry stage has seen to it that the header is there. What is found and where
 * the walk stands is kept in the packet's record: the verifier follows every value it knows, and knows none of these.
 */
static __noinline int screen_options(hook_ctx *ctx, struct packet *p)
{
	__u32 i;

	if (!p)
		return 0;
	p->option_at = sizeof(struct iphdr);
	bpf_for (i, 0, 40) {
		__u32 at = p->option_at, end = p->ip_header_len;
		__u8 *option = hook_data(ctx) + (p->l3 & 0x1f) + (at & 0x3f);

		if (at >= end || (void *)(option + 1) > hook_end(ctx) || option[0] == OPTION_END)
			break;
		if (option[0] == OPTION_NOTHING) {
			p->option_at = at + 1;
			continue;
		}
		__u32 length = 0;

		if (at + 1 < end && (void *)(option + 2) <= hook_end(ctx))
			length = option[1];
		if (length < 2 || at + length > end) {
			p->screens |= SCREEN_BIT(BAD_OPTION);
			break;
		}
		p->screens |= option_screens(option[0], length);
		p->option_at = at + length;
	}
	return 0;
}

/* Overlaps the fragment of its datagram that came before? The very same one again is a copy, no attack. */
static __noinline int fragment_overlaps(struct packet *p, __u32 be_id, __u32 first, __u32 end)
{
	if (!p)
		return 0;
	__u64 tag = screen_hash(p, SCREEN_OF_BOTH, (__u64)be_id << 8 | p->proto) | 1;
	__u32 slot = tag >> 52;
	struct fragment_memory *memory = bpf_map_lookup_elem(&fragment_memory, &slot);

	if (!memory)
		return 0;
	bool known = memory->tag == tag && p->now - memory->seen < FRAGMENT_TIMEOUT_S * config.hz;
	bool overlaps =
		known && first < memory->end && memory->first < end && !(first == memory->first && end == memory->end);

	memory->tag = tag;
	memory->seen = p->now;
	memory->first = first;
	memory->end = end;
	return overlaps;
}

static __noinline int screen_fragment(hook_ctx *ctx, struct packet *p, __u32 enabled)
{
	if (!p)
		return 0;
	__u32 offset = p->fragment_offset, length = p->fragment_length, end = offset + length;
	__u32 whole = fragment_whole(p);

	p->screens |= SCREEN_BIT(BLOCK_FRAG);
	if (p->proto == IPPROTO_ICMP || p->proto == IPPROTO_ICMPV6)
		p->screens |= SCREEN_BIT(ICMP_FRAGMENT) | (whole > 0xffff ? SCREEN_BIT(PING_DEATH) : 0);
	/* RFC 791 3.2: all but the last hold multiples of eight bytes; RFC 3128: the second must not rewrite flags */
	if (fragment_malformed(p) || (p->proto == IPPROTO_TCP && offset == 8))
		p->screens |= SCREEN_BIT(TEAR_DROP);
	else if ((enabled & SCREEN_BIT(TEAR_DROP)) && fragment_overlaps(p, p->be_fragment_id, offset, end))
		p->screens |= SCREEN_BIT(TEAR_DROP);
	if (p->proto == IPPROTO_TCP && !offset && length >= 14) {
		__u8 *flags = hook_data(ctx) + (p->l4 & HEADERS_LINEAR) + 13;

		if ((void *)(flags + 1) <= hook_end(ctx) && (*flags & TCP_SYN))
			p->screens |= SCREEN_BIT(SYN_FRAG);
	}
	return 0;
}

static __always_inline void screen_tcp(struct packet *p)
{
	__u8 flags = p->tcp_flags;

	if ((flags & (TCP_SYN | TCP_FIN)) == (TCP_SYN | TCP_FIN))
		p->screens |= SCREEN_BIT(SYN_FIN);
	if (!(flags & TCP_ALL_FLAGS))
		p->screens |= SCREEN_BIT(TCP_NO_FLAG);
	if ((flags & (TCP_FIN | TCP_ACK)) == TCP_FIN)
		p->screens |= SCREEN_BIT(FIN_NO_ACK);
	if ((flags & TCP_URG) && p->key4.be_dport == bpf_htons(NETBIOS_SESSION))
		p->screens |= SCREEN_BIT(WINNUKE);
}

/* RFC 4443 2.1 and 2.4 (c): reserved types, errors that quote no whole header. RFC 4861 6.1, 7.1, 8.1: neighbour
 * discovery is of the link, has code 0 and its fixed part. */
static __always_inline bool icmpv6_malformed(const struct packet *p)
{
	__u32 length = p->ip_len - p->ip_header_len;
	__u8 type = p->icmp_type;

	if (type == 0 || type == 127 || type == 255)
		return true;
	if (type < 128)
		return length < 8 + sizeof(struct ipv6hdr);
	if (type == ICMP6_ECHO || type == ICMP6_ECHO_REPLY)
		return p->icmp_code;
	if (type < ICMP6_ND_FIRST || type > ICMP6_ND_LAST)
		return false;
	__u32 least = type == 133 ? 8 : type == 134 ? 16 : type == 137 ? 40 : 24;

	return p->ttl != 255 || p->icmp_code || length < least;
}

static __always_inline bool is_land(const struct packet *p)
{
	if (p->family == 4)
		return p->key4.be_saddr == p->key4.be_daddr;
	const __u64 *from = (const __u64 *)p->key6.be_saddr, *to = (const __u64 *)p->key6.be_daddr;

	return from[0] == to[0] && from[1] == to[1];
}

static __always_inline void screen_plain(struct packet *p)
{
	bool icmp = p->proto == IPPROTO_ICMP || p->proto == IPPROTO_ICMPV6;

	if (is_land(p))
		p->screens |= SCREEN_BIT(LAND);
	if (p->proto >= FIRST_UNASSIGNED_PROTOCOL)
		p->screens |= SCREEN_BIT(UNKNOWN_PROTOCOL);
	if (icmp && p->ip_len > LARGE_ICMP)
		p->screens |= SCREEN_BIT(ICMP_LARGE);
	if (p->flags & (P_LATER | P_TINY))
		return;
	if (p->proto == IPPROTO_TCP)
		screen_tcp(p);
	else if (p->proto == IPPROTO_ICMPV6 && icmpv6_malformed(p))
		p->screens |= SCREEN_BIT(ICMPV6_MALFORMED);
}

static __always_inline int stage_screen(hook_ctx *ctx, struct packet *p)
{
	struct unit *unit = unit_at(p->unit_slot);
	__u32 enabled = unit ? unit->screens : 0;

	if (!enabled)
		return CONTINUE;
	screen_plain(p);
	if (p->family == 4 && (p->flags & P_OPTIONS))
		screen_options(ctx, p);
	if (p->flags & P_FRAGMENT)
		screen_fragment(ctx, p, enabled);
	__u32 found = p->screens & enabled;

	return found ? screens_found(p, found, enabled) : CONTINUE;
}

#endif
