/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* IPv4 packets that leave as several IPv6 fragments (RFC 7915 4): a bounded way to the daemon, which cuts them. */
#ifndef SLUICE_NAT64_CUT_H
#define SLUICE_NAT64_CUT_H

#include "nat64/size.h"
#include "lib/tokens.h"

/* How much may wait before packets that the link takes whole are not cut any more: the daemon is busy, or gone. */
#define CUT_PATIENCE (OVERSIZE_BUFFER_BYTES / 4)

/*
 * CONTINUE with `cut` as it is, or 0 where the packet fits the link and cutting would only be kind to what lies behind
 * (RFC 7915 4 says SHOULD); else the named drop.
 */
__noinline int cut_or_whole(struct packet *p)
{
	if (!p)
		return DROP(NAT64_CUT_LIMIT);
	struct nexthop *nexthop = nexthop_at(p->nexthop);
	__u32 zone = p->from_zone;
	struct token_bucket *bucket = bpf_map_lookup_elem(&cut_tokens, &zone);
	__u32 length = p->ip_len - p->ip_header_len + (p->flags & P_FRAGMENT ? 48 : 40);
	bool fits = nexthop && length <= nexthop->mtu;

	if (fits && bpf_ringbuf_query(&oversize, BPF_RB_AVAIL_DATA) > CUT_PATIENCE)
		p->cut = 0;
	else if (bucket && tokens_take(bucket, p->now, CUT_RATE_PER_ZONE))
		return CONTINUE;
	else if (fits)
		p->cut = 0;
	return p->cut ? DROP(NAT64_CUT_LIMIT) : CONTINUE;
}

/* In a record of this size; false if the daemon has left no room. */
static __always_inline bool cut_submit(hook_ctx *ctx, const struct packet *p, __u32 ifindex, __u32 length,
				       const __u32 room)
{
	struct oversize *record = bpf_ringbuf_reserve(&oversize, sizeof(*record) + room, 0);

	if (!record)
		return false;
	record->ifindex = ifindex;
	record->when = p->now;
	record->limit = p->cut;
	record->length = length;
	record->unsummed = hook_is_unsummed(ctx);
	/* it is within 1 and the most; said so that kernels before 6.18 see it, whatever copy they look at */
	barrier_var(length);
	length = ((length - 1) & (room - 1)) + 1;
	if (!hook_load(ctx, p->l3 & 0x1f, record + 1, length)) {
		bpf_ringbuf_discard(record, 0);
		return false;
	}
	bpf_ringbuf_submit(record, 0);
	return true;
}

/* The translated packet, with its Fragment header; DROP() if there is no room. */
__noinline int cut_hand_over(hook_ctx *ctx, const struct packet *p, __u32 ifindex)
{
	if (!p)
		return DROP(NAT64_CUT_LIMIT);
	__u32 length = p->ip_len - p->ip_header_len + sizeof(struct ipv6hdr) + FRAGMENT_HEADER;
	bool sent = length <= OVERSIZE_USUAL ? cut_submit(ctx, p, ifindex, length, OVERSIZE_USUAL)
					     : cut_submit(ctx, p, ifindex, length, OVERSIZE_LARGE);

	return sent ? CONTINUE : DROP(NAT64_CUT_LIMIT);
}

#endif
