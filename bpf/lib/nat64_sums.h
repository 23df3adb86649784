/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sums that NAT64 needs: of addresses, of what is rewritten, of what is cut off. */
#ifndef SLUICE_LIB_NAT64_SUMS_H
#define SLUICE_LIB_NAT64_SUMS_H

#include "lib/nat64.h"
#include "maps.h"

#define NAT64_WORDS 64       /* more than is needed of an ICMP error: a power of two keeps places inside */
#define NAT64_OLD_WORDS 40   /* its header, the quoted IP header, and what is changed behind it */
#define NAT64_NEW_WORDS 44   /* IP header and the same */
#define NAT64_INNER_WORDS 26 /* of a quoted IPv6 header with its extension headers; longer ones are not translated */

/* A packet between the families, on its way through the slow line. */
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
};

/* Folded sum of a pair of IPv6 addresses. */
static __always_inline __u16 nat64_sum6(const __u32 *be_saddr, const __u32 *be_daddr)
{
	__u64 sum = 0;

	for (int i = 0; i < 4; i++)
		sum += (__u64)be_saddr[i] + be_daddr[i];
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	return csum_fold_only(sum);
}

static __always_inline __u16 nat64_sum4(__u32 be_saddr, __u32 be_daddr)
{
	return csum_fold_only(csum_add32(csum_add32(0, be_saddr), be_daddr));
}

/* What a sum grows by when a part of it changes. */
static __always_inline __u16 nat64_growth(__u16 before, __u16 after)
{
	return csum_fold_only((__u32)(__u16)~before + after);
}

static __always_inline __u16 nat64_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	return csum_fold_only(sum);
}

/* Of the first words of `be_old`. */
__noinline int nat64_sum_old(const struct nat64_work *w, __u32 words)
{
	__u64 sum = 0;
	__u32 i;

	if (!w)
		return 0;
	bpf_for (i, 0, words)
		sum += w->be_old[i & (NAT64_WORDS - 1)];
	return nat64_fold(sum);
}

/* Of words of `be_new`, from `first` on. */
__noinline int nat64_sum_new(const struct nat64_work *w, __u32 first, __u32 words)
{
	__u64 sum = 0;
	__u32 i;

	if (!w)
		return 0;
	bpf_for (i, 0, words)
		sum += w->be_new[(first + i) & (NAT64_WORDS - 1)];
	return nat64_fold(sum);
}

#define NAT64_SUM_MAX 16000

/* Of `len` bytes of the frame, -1 if they do not all stand in its linear part. An odd last one is padded (RFC 1071 1).
 */
__noinline int nat64_sum_frame(hook_ctx *ctx, __u32 offset, __u32 len)
{
	__u64 sum = 0;
	__u32 i;

	if (len > NAT64_SUM_MAX || !hook_pull(ctx, offset + len))
		return -1;
	bpf_for (i, 0, len / 2) {
		__u16 *word = hook_data(ctx) + ((offset + i * 2) & 0x7fff);

		if ((void *)(word + 1) > hook_end(ctx))
			return -1;
		sum += *word;
	}
	if (len & 1) {
		__u8 *last = hook_data(ctx) + ((offset + len - 1) & 0x7fff);

		if ((void *)(last + 1) > hook_end(ctx))
			return -1;
		sum += *last;
	}
	return nat64_fold(sum);
}

#endif
