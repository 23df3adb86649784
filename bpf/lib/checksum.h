/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The Internet checksum (RFC 1071) and its incremental update (RFC 1624). */
#ifndef SLUICE_LIB_CHECKSUM_H
#define SLUICE_LIB_CHECKSUM_H

#include "lib/bpf.h"

static __always_inline __u16 csum_fold_only(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)sum;
}

static __always_inline __u16 csum_fold(__u32 sum)
{
	return ~csum_fold_only(sum);
}

/* Of up to 40 bits, as a few words of 32 add up to. */
static __always_inline __u16 csum_fold_sum(__u64 sum)
{
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	return csum_fold_only(sum);
}

/* RFC 1624 equation 3 for a sum of many words. */
static __always_inline __u16 csum_add_sum(__u16 be_check, __u32 sum)
{
	return csum_fold((__u16)~be_check + csum_fold_only(sum));
}

static __always_inline __u32 csum_add32(__u32 sum, __u32 be_word)
{
	return sum + (be_word & 0xffff) + (be_word >> 16);
}

/* RFC 1624 equation 3 for one 16-bit word that grew by `delta` in network order. */
static __always_inline __u16 csum_add_word(__u16 be_check, __u16 be_old, __u16 be_new)
{
	return csum_fold((__u16)~be_check + (__u16)~be_old + be_new);
}

/* The 20 bytes of an IPv4 header without options, by 64-bit words: one's complement sums do not mind the width. */
static __always_inline bool csum_ipv4_valid(const void *header)
{
	const __u64 *words = header;
	__u64 sum = words[0] + words[1];

	sum += sum < words[1];
	sum = (sum & 0xffffffff) + (sum >> 32) + ((const __u32 *)header)[4];
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff;
}

/* Sum of a pseudo-header (RFC 9293 3.1, RFC 8200 8.1), not folded. */
static __always_inline __u32 csum_pseudo4(__u32 be_saddr, __u32 be_daddr, __u8 proto, __u16 len)
{
	__u32 sum = bpf_htons(proto) + bpf_htons(len);

	sum = csum_add32(sum, be_saddr);
	return csum_add32(sum, be_daddr);
}

static __always_inline __u32 csum_pseudo6(const __u32 *be_saddr, const __u32 *be_daddr, __u8 proto, __u32 len)
{
	__u32 sum = csum_add32(bpf_htons(proto), bpf_htonl(len));

	for (int i = 0; i < 4; i++) {
		sum = csum_add32(sum, be_saddr[i]);
		sum = csum_add32(sum, be_daddr[i]);
	}
	return sum;
}

/*
 * A value f for a checksum field so that summing `rest` and f and complementing yields f again: f = -rest/2 modulo
 * 0xffff (2 has the inverse 0x8000 there). Such a field is right whether or not a device completes it.
 */
static __always_inline __u16 csum_fixed_point(__u32 rest)
{
	__u32 sum = csum_fold_only(rest);
	__u32 field = ((0xffffu - sum) * 0x8000u) % 0xffffu;

	return field ? field : 0xffff;
}

#endif
