/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sums that NAT64 needs: of addresses, of what is rewritten, of what is cut off. */
#ifndef SLUICE_NAT64_SUMS_H
#define SLUICE_NAT64_SUMS_H

#include "nat64/mapping.h"
#include "maps.h"

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

/* Of a whole IPv6 header. */
static __always_inline __u16 header_sum6(const __u32 *header)
{
	__u64 sum = 0;

	for (int i = 0; i < 10; i++)
		sum += header[i];
	return csum_fold_sum(sum);
}

/* Of the 20 bytes of an IPv6 header that stand behind the first 20. */
static __always_inline __u16 behind_sum6(const struct flow_key6 *key)
{
	return csum_fold_sum((__u64)key->be_saddr[3] + key->be_daddr[0] + key->be_daddr[1] + key->be_daddr[2] +
			     key->be_daddr[3]);
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
