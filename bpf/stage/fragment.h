/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Only the first fragment of a datagram has ports. It is judged as any packet, and the exit remembers what became of
 * it; the others find that here and go the same way. Nothing is put together.
 */
#ifndef SLUICE_STAGE_FRAGMENT_H
#define SLUICE_STAGE_FRAGMENT_H

#include "lib/fragment.h"

/* What the transport header in the first fragment said. */
static __always_inline void fragment_inherit(struct packet *p, const struct fragment_datagram *datagram)
{
	__u32 be_ports = datagram->be_sport | (__u32)datagram->be_dport << 16;

	p->proto = datagram->proto;
	p->icmp_type = datagram->icmp_type;
	p->icmp_code = datagram->icmp_code;
	p->family = datagram->session_family;
	p->line = datagram->line;
	p->line_tag = datagram->line_tag;
	p->tcp_seq = datagram->tcp_seq;
	p->fragment_follow = datagram->follow;
	((__u64 *)&p->key4)[1] = ((__u64 *)&p->key6)[4] =
		key_last_word(be_ports, p->key4.routing_instance, datagram->proto);
}

/* Notes what has come; a complete datagram gives its place back. */
static __always_inline void fragment_arrived(struct fragment_datagram *datagram, const struct packet *p, __u64 tag)
{
	__u64 ends = fragment_end_hash(p->fragment_offset);

	if (p->fragment_more)
		ends ^= fragment_end_hash(p->fragment_offset + p->fragment_length);
	if (__sync_fetch_and_xor(&datagram->open_ends, ends) == ends)
		__sync_val_compare_and_swap(&datagram->tag, tag, FRAGMENT_FREE);
}

static __noinline int fragment_follow(struct packet *p)
{
	const struct fragment_key *key = fragment_key_here();

	if (!p || !key)
		return DROP(FRAGMENT_NO_FIRST);
	__u64 tag = fragment_tag(key);
	struct fragment_datagram *datagram = fragment_at(fragment_find(tag, p->now));

	if (!datagram)
		return DROP(FRAGMENT_NO_FIRST);
	ordered();
	fragment_inherit(p, datagram);
	__u32 first_end = datagram->first_end, reason = datagram->reason;

	ordered();
	if (*(volatile __u64 *)&datagram->tag != tag)
		return DROP(FRAGMENT_NO_FIRST); /* its place was taken meanwhile */
	if (p->fragment_offset < first_end)
		return DROP(FRAGMENT_OVERLAP);
	fragment_arrived(datagram, p, tag);
	if (p->fragment_follow == FRAGMENT_REFUSED)
		return VERDICT_DROP | REASON_OF(reason);
	return p->fragment_follow == FRAGMENT_LOCAL ? VERDICT_LOCAL : CONTINUE;
}

static __noinline int fragment_judge(struct packet *p)
{
	if (!p)
		return DROP(FRAGMENT_MALFORMED);
	if (p->flags & P_MULTICAST)
		return CONTINUE; /* the host's, as the whole datagram is */
	if (fragment_malformed(p))
		return DROP(FRAGMENT_MALFORMED);
	/* RFC 3128: at offset 8 would stand the second half of a TCP header */
	if ((p->flags & P_TINY) || (p->proto == IPPROTO_TCP && p->fragment_offset == 8))
		return DROP(FRAGMENT_TINY);
	struct fragment_key *key = fragment_key_here();

	if (!key)
		return DROP(FRAGMENT_TABLE_FULL);
	fragment_key_of(p, key);
	if (p->flags & P_LATER)
		return fragment_follow(p);
	p->flags |= P_FIRST;
	return CONTINUE;
}

static __always_inline int stage_fragment(hook_ctx *ctx, struct packet *p)
{
	return p->flags & P_FRAGMENT ? fragment_judge(p) : CONTINUE;
}

#endif
