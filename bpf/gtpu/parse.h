/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The header of a message and its chain of extension headers. Lengths are checked against each other, the inner ones
 * against the outer ones: what stands behind a message's end is no part of it. Nothing is changed here.
 */
#ifndef SLUICE_GTPU_PARSE_H
#define SLUICE_GTPU_PARSE_H

#include "gtpu/work.h"

/* Offsets into the linear part, said so that every verifier sees it. */
#define GTPU_LINEAR 0x7ff

/* What packets of one flow have in common. Their first header is there; pieces, and longer ones, go by addresses. */
static __always_inline __u32 gtpu_flow_word4(hook_ctx *ctx, const struct iphdr *ip)
{
	const __u32 *be_ports = (const void *)(ip + 1);
	bool plain = *(const __u8 *)ip == 0x45 && !(ip->frag_off & bpf_htons(0x3fff));
	__u32 x = ip->saddr ^ ip->daddr ^ ip->protocol;

	if (plain && has_ports(ip->protocol) && (void *)(be_ports + 1) <= hook_end(ctx))
		x ^= *be_ports;
	return x;
}

static __always_inline __u32 gtpu_flow_word6(hook_ctx *ctx, const struct ipv6hdr *ip6)
{
	const __u32 *be_ports = (const void *)(ip6 + 1);
	__u32 x = 0;

	for (int i = 0; i < 8; i++)
		x ^= ((const __u32 *)&ip6->saddr)[i];
	if (has_ports(ip6->nexthdr) && (void *)(be_ports + 1) <= hook_end(ctx))
		x ^= *be_ports;
	return x;
}

static __always_inline void gtpu_note_extension(struct gtpu_work *work, __u8 type)
{
	if (!(type & GTPU_EXTENSION_MUST) || type == GTPU_EXTENSION_CONTAINER)
		return;
	work->unknown |= GTPU_UNKNOWN_HERE;
	if ((type & GTPU_EXTENSION_ALL) && type != GTPU_EXTENSION_PDCP)
		work->unknown |= GTPU_UNKNOWN_ANYWHERE;
}

/* TS 29.281 5.2.1: each header says how long it is, in units of four octets, and in its last one what follows. */
static __always_inline int gtpu_parse_extensions(hook_ctx *ctx, struct gtpu_work *work, __u8 next, __u32 at, __u32 left)
{
	for (int i = 0; i < GTPU_EXTENSIONS_MAX && next; i++) {
		__u8 *header = hook_data(ctx) + (at & GTPU_LINEAR);

		if (at > GTPU_LINEAR || (void *)(header + 1) > hook_end(ctx))
			return DROP(GTPU_MALFORMED);
		__u32 length = header[0] * 4;

		if (!length || length > left)
			return DROP(GTPU_MALFORMED);
		gtpu_note_extension(work, next);
		at += length;
		left -= length;
		__u8 *last = hook_data(ctx) + ((at - 1) & GTPU_LINEAR);

		if (at - 1 > GTPU_LINEAR || (void *)(last + 1) > hook_end(ctx))
			return DROP(GTPU_MALFORMED);
		next = *last;
	}
	if (next)
		return DROP(GTPU_EXTENSION);
	work->body = at;
	work->body_len = left;
	return CONTINUE;
}

/* Behind an outer header whose length is good. */
static __always_inline int gtpu_parse(hook_ctx *ctx, const struct handover *h, struct gtpu_work *work)
{
	__u32 l4 = h->l4 & 0x3ff, room = h->is.ip_len - (h->l4 - h->l3);
	struct udphdr *udp = hook_data(ctx) + l4;
	__u8 *gtp = (void *)(udp + 1);

	work->unknown = work->answer = 0;
	/* behind headers that are longer than those that are looked into */
	if (l4 != h->l4 || (void *)(gtp + GTPU_HEADER) > hook_end(ctx))
		return DROP(GTPU_MALFORMED);
	__u32 udp_len = bpf_ntohs(udp->len), length = bpf_ntohs(*(__be16 *)(gtp + 2));

	if (udp_len < sizeof(*udp) + GTPU_HEADER || udp_len > room)
		return DROP(GTPU_MALFORMED);
	work->flags = gtp[0];
	work->type = gtp[1];
	work->gtp = l4 + sizeof(*udp);
	work->be_sport = udp->source;
	work->checked = udp->check;
	work->teid = bpf_ntohl(*(__be32 *)(gtp + 4));
	if ((work->flags & 0xe0) != GTPU_VERSION_1) {
		/* nobody answers an answer */
		work->answer = work->type == GTPU_VERSION_NOT_SUPPORTED ? GTPU_ANSWER_NONE : GTPU_ANSWER_VERSION;
		return DROP(GTPU_VERSION);
	}
	if (!(work->flags & GTPU_FLAG_PT))
		return DROP(GTPU_VERSION);
	if (length > udp_len - sizeof(*udp) - GTPU_HEADER)
		return DROP(GTPU_MALFORMED);
	work->length = length;
	work->be_sequence = 0;
	work->body = work->gtp + GTPU_HEADER;
	work->body_len = length;
	if (!(work->flags & GTPU_FLAG_OPTIONS))
		return CONTINUE;
	if (length < GTPU_OPTIONS || (void *)(gtp + GTPU_HEADER + GTPU_OPTIONS) > hook_end(ctx))
		return DROP(GTPU_MALFORMED);
	/* each of them means something only where its flag says so (TS 29.281 5.1) */
	if (work->flags & GTPU_FLAG_S)
		work->be_sequence = *(__be16 *)(gtp + 8);
	return gtpu_parse_extensions(ctx, work, work->flags & GTPU_FLAG_E ? gtp[11] : 0, work->body + GTPU_OPTIONS,
				     length - GTPU_OPTIONS);
}

#endif
