/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Between IPv4 and IPv6: addresses (RFC 6052), and the tables of types, codes, pointers and MTUs of RFC 7915. */
#ifndef SLUICE_NAT64_MAPPING_H
#define SLUICE_NAT64_MAPPING_H

#include "lib/packet.h"

static __always_inline bool nat64_is_mapped(const __u32 *be_addr)
{
	return !(be_addr[0] | be_addr[1]) && be_addr[2] == bpf_htonl(NAT64_MAPPED_WORD);
}

static __always_inline void nat64_map(__u32 be_addr4, __u32 *be_addr)
{
	be_addr[0] = be_addr[1] = 0;
	be_addr[2] = bpf_htonl(NAT64_MAPPED_WORD);
	be_addr[3] = be_addr4;
}

/* The tuple of an IPv4 packet as the index of IPv6 knows it. */
static __always_inline void nat64_map_key(const struct flow_key4 *key, struct flow_key6 *mapped)
{
	__u64 *words = (__u64 *)mapped;
	__u64 ports = ((const __u64 *)key)[1];

	words[0] = words[2] = 0;
	words[1] = (__u64)key->be_saddr << 32 | bpf_htonl(NAT64_MAPPED_WORD);
	words[3] = (__u64)key->be_daddr << 32 | bpf_htonl(NAT64_MAPPED_WORD);
	words[4] = ports;
}

/*
 * RFC 6052 2.2: behind a prefix of `length` bits stands the IPv4 address, but bits 64 to 71 are left out; what follows
 * is zero. Of 32 + n bits, n stand behind that octet.
 */
static __always_inline void nat64_embed(const __u32 *be_prefix, __u32 length, __u32 be_addr4, __u32 *be_addr)
{
	__u64 high = (__u64)bpf_ntohl(be_prefix[0]) << 32 | bpf_ntohl(be_prefix[1]), low = 0;
	__u32 addr = bpf_ntohl(be_addr4), behind = (length - 32) & 63;

	if (length == 96) {
		low = (__u64)bpf_ntohl(be_prefix[2]) << 32 | addr;
	} else {
		behind = behind > 32 ? 32 : behind;
		high &= ~0ull << (32 - behind);
		high |= (__u64)addr >> behind;
		low = ((__u64)addr & ((1ull << behind) - 1)) << (56 - behind);
	}
	be_addr[0] = bpf_htonl(high >> 32);
	be_addr[1] = bpf_htonl((__u32)high);
	be_addr[2] = bpf_htonl(low >> 32);
	be_addr[3] = bpf_htonl((__u32)low);
}

/* RFC 6052 2.3: the other way round; what stands outside of prefix and address is ignored. */
static __always_inline __u32 nat64_extract(const __u32 *be_addr, __u32 length)
{
	__u64 high = (__u64)bpf_ntohl(be_addr[0]) << 32 | bpf_ntohl(be_addr[1]);
	__u64 low = (__u64)bpf_ntohl(be_addr[2]) << 32 | bpf_ntohl(be_addr[3]);
	__u32 behind = (length - 32) & 63;

	if (length == 96)
		return be_addr[3];
	behind = behind > 32 ? 32 : behind;
	return bpf_htonl((__u32)(high << behind) | (__u32)(low >> (56 - behind) & ((1ull << behind) - 1)));
}

/*
 * RFC 6052 3.1: with the Well-Known Prefix no address may be translated that is not global. With any prefix, those
 * that no router forwards (RFC 1812 5.3.7, RFC 3927 2.7, RFC 6890) are refused.
 */
static __always_inline bool nat64_bad_address(__u32 be_addr4, const __u32 *be_prefix, __u32 length)
{
	__u32 addr = bpf_ntohl(be_addr4);

	if ((addr >> 24) == 0 || (addr >> 24) == 127 || (addr >> 28) >= 0xe || (addr >> 16) == 0xa9fe ||
	    is_unassigned4(addr))
		return true;
	if (length != 96 || be_prefix[0] != bpf_htonl(0x0064ff9b) || be_prefix[1] || be_prefix[2])
		return false;
	return (addr >> 24) == 10 || (addr >> 20) == 0xac1 || (addr >> 16) == 0xc0a8 ||
	       (addr >> 22) == (0x64400000u >> 22);
}

/* Type and code as they stand in the header; 0 is the answer to an echo in IPv4, so "none" is another value. */
#define NAT64_NO_MESSAGE 0xffffffffu
#define ICMP_KIND(type, code) ((__u32)(type) << 24 | (__u32)(code) << 16)

#define ICMP4_ADMINISTRATIVE (1 << 9 | 1 << 10 | 1 << 13 | 1 << 15) /* codes of type 3 */

/* RFC 7915 4.2: an ICMP message as ICMPv6. */
static __always_inline __u32 nat64_kind6(__u8 type, __u8 code)
{
	switch (type) {
	case ICMP4_ECHO:
		return ICMP_KIND(ICMP6_ECHO, 0);
	case ICMP4_ECHO_REPLY:
		return ICMP_KIND(ICMP6_ECHO_REPLY, 0);
	case ICMP4_TIME_EXCEEDED:
		return ICMP_KIND(ICMP6_TIME_EXCEEDED, code);
	case ICMP4_PARAMETER:
		return code == 0 || code == 2 ? ICMP_KIND(ICMP6_PARAMETER, 0) : NAT64_NO_MESSAGE;
	case ICMP4_UNREACHABLE:
		break;
	default:
		return NAT64_NO_MESSAGE;
	}
	if (code == 2)
		return ICMP_KIND(ICMP6_PARAMETER, 1);
	if (code == 3)
		return ICMP_KIND(ICMP6_UNREACHABLE, 4);
	if (code == 4)
		return ICMP_KIND(ICMP6_TOO_BIG, 0);
	if (code == 14 || code > 15)
		return NAT64_NO_MESSAGE;
	return ICMP_KIND(ICMP6_UNREACHABLE, ICMP4_ADMINISTRATIVE >> code & 1);
}

/* RFC 7915 5.2: an ICMPv6 message as ICMP. */
static __always_inline __u32 nat64_kind4(__u8 type, __u8 code)
{
	switch (type) {
	case ICMP6_ECHO:
		return ICMP_KIND(ICMP4_ECHO, 0);
	case ICMP6_ECHO_REPLY:
		return ICMP_KIND(ICMP4_ECHO_REPLY, 0);
	case ICMP6_TOO_BIG:
		return ICMP_KIND(ICMP4_UNREACHABLE, 4);
	case ICMP6_TIME_EXCEEDED:
		return ICMP_KIND(ICMP4_TIME_EXCEEDED, code);
	case ICMP6_PARAMETER:
		return code == 0   ? ICMP_KIND(ICMP4_PARAMETER, 0)
		       : code == 1 ? ICMP_KIND(ICMP4_UNREACHABLE, 2)
				   : NAT64_NO_MESSAGE;
	case ICMP6_UNREACHABLE:
		break;
	default:
		return NAT64_NO_MESSAGE;
	}
	if (code > 4)
		return NAT64_NO_MESSAGE;
	return ICMP_KIND(ICMP4_UNREACHABLE, code == 1 ? 10 : code == 4 ? 3 : 1);
}

#define NAT64_NO_POINTER 0xff

/* RFC 7915 4.2, figure 3: which field of an IPv6 header is meant by a pointer into an IPv4 header. */
static __always_inline __u32 nat64_pointer6(__u32 pointer)
{
	if (pointer <= 1)
		return pointer;
	if (pointer <= 3)
		return 4;
	if (pointer == 8)
		return 7;
	if (pointer == 9)
		return 6;
	if (pointer >= 12 && pointer <= 19)
		return pointer < 16 ? 8 : 24;
	return NAT64_NO_POINTER;
}

/* RFC 7915 5.2, figure 6: and the other way round. */
static __always_inline __u32 nat64_pointer4(__u32 pointer)
{
	if (pointer <= 1)
		return pointer;
	if (pointer == 4 || pointer == 5)
		return 2;
	if (pointer == 6)
		return 9;
	if (pointer == 7)
		return 8;
	if (pointer >= 8 && pointer <= 39)
		return pointer < 24 ? 12 : 16;
	return NAT64_NO_POINTER;
}

static __always_inline __u32 least(__u32 a, __u32 b)
{
	return a < b ? a : b;
}

/* RFC 1191 7.1: the next lower plateau, of an error that names no MTU. */
static __always_inline __u32 nat64_plateau(__u32 total_len)
{
	return total_len > 32000   ? 32000
	       : total_len > 17914 ? 17914
	       : total_len > 8166  ? 8166
	       : total_len > 4352  ? 4352
	       : total_len > 2002  ? 2002
	       : total_len > 1492  ? 1492
	       : total_len > 1006  ? 1006
	       : total_len > 508   ? 508
	       : total_len > 296   ? 296
				   : 68;
}

/* RFC 7915 4.2: `quoted_len` is the total length of the packet that was too big. */
static __always_inline __u32 nat64_mtu6(__u32 mtu, __u32 quoted_len, __u32 mtu_in, __u32 mtu_out)
{
	if (!mtu)
		mtu = nat64_plateau(quoted_len);
	mtu = least(least(mtu, mtu_in) + 20, mtu_out);
	return mtu < NAT64_IPV6_MTU_MIN ? NAT64_IPV6_MTU_MIN : mtu;
}

/* RFC 7915 5.2 */
static __always_inline __u32 nat64_mtu4(__u32 mtu, __u32 mtu_in, __u32 mtu_out)
{
	mtu = least(least(mtu, mtu_in), mtu_out + 20);
	return mtu < 88 ? 68 : mtu - 20;
}

#define NAT64_WORDS 64       /* more than is needed of an ICMP error: a power of two keeps places inside */
#define NAT64_OLD_WORDS 40   /* its header, the quoted IP header, and what is changed behind it */
#define NAT64_NEW_WORDS 44   /* IP header and the same */
#define NAT64_INNER_WORDS 26 /* of a quoted IPv6 header with its extension headers; longer ones are not translated */

/* Of an ICMP error with extensions: what it quotes at least (RFC 4884 5.1), and how much padding may be missing. */
#define NAT64_QUOTE_MIN 128
#define NAT64_PADDING_MAX 128
#define NAT64_EXTENSION_MAX 512 /* with its padding; a power of two */

/* A packet between the families, on its way through the slow path. */
struct nat64_work {
	__u32 be_outer[10]; /* IP header as it came */
	__u32 be_old[NAT64_WORDS];
	__u32 be_new[NAT64_WORDS];
	__u32 be_saddr[4]; /* of the packet as it leaves; IPv4 stands in the last word */
	__u32 be_daddr[4];
	__u16 be_sport;
	__u16 be_dport;
	__u16 inner_words;  /* of the quoted IP header */
	__u16 quoted_words; /* behind it, that are changed: 2, or 5 of TCP */
	__u16 old_len;      /* bytes from the IP header on that `be_new` replaces */
	__u16 new_len;
	__u16 message_len; /* of an ICMP message as it leaves, without IP header */
	__u16 prefix_length;
	__u32 rest;    /* of an ICMP error: the word behind its checksum */
	__u32 be_peer; /* IPv4 source of this direction, as the session has it */
	__u32 walk;    /* through quoted extension headers: words of the message, above them the protocol */
	__u32 quoted_fragment;
	int growth;                                                          /* of the quoted IP header */
	__u8 extension[NAT64_PADDING_MAX + NAT64_EXTENSION_MAX] ALIGNED_KEY; /* of an ICMP error, behind its padding */
};

#endif
