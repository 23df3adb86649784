/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Datagrams for a listener go to one of its receivers, whatever policies say: who configures a listener has decided.
 * Only a zone that demands grants lets nobody past without one. Most take the short path in fast.h; here come the first
 * ones towards each receiver, fragments, packets with options, and what is wrong with the rest.
 */
#ifndef SLUICE_STAGE_FANOUT_H
#define SLUICE_STAGE_FANOUT_H

#include "fanout/listener.h"
#include "stage/gate.h"
#include "stage/nexthop.h"
#include "stage/route.h"

/* RFC 768: the length counts the header; the checksum is the receiver's to judge. */
static __always_inline bool fanout_length_fits(hook_ctx *ctx, const struct packet *p)
{
	struct udphdr *udp = hook_data(ctx) + (p->l4 & 0x3fff);

	if ((void *)(udp + 1) > hook_end(ctx))
		return false;
	__u32 length = bpf_ntohs(udp->len);

	/* of a datagram in pieces the first does not hold all */
	return length >= sizeof(*udp) && ((p->flags & P_FRAGMENT) || length <= (__u32)p->ip_len - p->ip_header_len);
}

static __always_inline struct fanout_listener *fanout_listener_of(const struct packet *p)
{
	__u32 place;

	return p->family == 4 ? fanout_find(4, &p->key4.be_daddr, p->key4.be_dport, p->unit_index, &place)
			      : fanout_find(6, p->key6.be_daddr, p->key6.be_dport, p->unit_index, &place);
}

static __always_inline struct fanout_receiver *fanout_receiver_of(const struct packet *p,
								  const struct fanout_listener *listener,
								  const struct fanout_listener_counters *count)
{
	/* the pieces of a datagram have its identification in common, and arrive on whatever CPU */
	bool by_turns = listener->balance == FANOUT_ROUND_ROBIN;
	__u32 word = by_turns ? p->be_fragment_id : 0;

	if (listener->balance == FANOUT_FLOW)
		word = p->key6.be_sport;
	__u64 hash = p->family == 4 ? fanout_hash(4, &p->key4.be_saddr, word) : fanout_hash(6, p->key6.be_saddr, word);

	return fanout_pick(listener, hash, by_turns && !(p->flags & P_FRAGMENT), count);
}

/* The route to the receiver; the packet's key says for whom it came again afterwards. */
static __always_inline int fanout_route(hook_ctx *ctx, struct packet *p, struct fanout_receiver *to)
{
	__u32 zero = 0, be_daddr4 = p->key4.be_daddr, be_daddr6[4];
	__u64 ports = ((__u64 *)&p->key4)[1];
	struct watermarks *marks = bpf_map_lookup_elem(&watermarks, &zero);

	if (!marks)
		return DROP(NO_ROUTE);
	__u64 retired = *(volatile __u32 *)&marks->nexthops_retired;

	for (int i = 0; i < 4; i++) {
		be_daddr6[i] = p->key6.be_daddr[i];
		p->key6.be_daddr[i] = to->be_addr[i];
	}
	p->key4.be_daddr = to->be_addr[0];
	p->key4.be_dport = p->key6.be_dport = to->be_port;
	int verdict = find_route(ctx, p, false);

	if (verdict == CONTINUE) {
		p->nexthop = nexthop_for(p);
		verdict = p->nexthop == NEXTHOP_NONE ? nexthop_refused(p) : CONTINUE;
	}

	for (int i = 0; i < 4; i++)
		p->key6.be_daddr[i] = be_daddr6[i];
	p->key4.be_daddr = be_daddr4;
	((__u64 *)&p->key4)[1] = ((__u64 *)&p->key6)[4] = ports;
	if (verdict == CONTINUE)
		*(volatile __u64 *)&to->hop = retired << 32 | (__u64)ACTIVE_STAMP(p->active) << 16 | p->nexthop;
	return verdict;
}

static __noinline int fanout_send(hook_ctx *ctx, struct packet *p)
{
	if (!p)
		return DROP(FANOUT_NO_RECEIVER);
	struct fanout_listener *listener = fanout_listener_of(p);
	struct fanout_listener_counters *count = fanout_counters_of(p->fanout_listener);

	if (!listener || !count)
		return DROP(FANOUT_NO_RECEIVER);
	if (!(p->flags & P_LATER) && !fanout_length_fits(ctx, p))
		return DROP(FANOUT_LENGTH);
	struct fanout_receiver *to = fanout_receiver_of(p, listener, count);

	if (!to)
		return DROP(FANOUT_NO_RECEIVER);
	/* also where nothing gets there: the next packet is another receiver's */
	if (!(p->flags & P_FRAGMENT))
		fanout_turn(listener, count);
	int verdict = fanout_route(ctx, p, to);

	if (verdict != CONTINUE)
		return verdict;
	if (!fanout_rewrite(ctx, p->family, p->l3 & 0x1f, p->flags & P_LATER ? 0 : p->l4 & 0x3fff, to))
		return DROP(REWRITE_FAILED);
	p->fanout_receiver = to->index;
	return VERDICT_FORWARD;
}

static __noinline int stage_fanout(hook_ctx *ctx, struct packet *p)
{
	if (!p)
		return DROP(TRUNCATED);
	if (p->proto != IPPROTO_UDP || (p->flags & P_MULTICAST))
		return CONTINUE;
	struct fanout_listener *listener = fanout_listener_of(p);

	if (!listener)
		return CONTINUE;
	p->fanout_listener = listener->index;
	struct fanout_listener_counters *count = fanout_counters_of(listener->index);

	if (!count)
		return DROP(FANOUT_NO_RECEIVER);
	count->received += p->segments;
	count->received_bytes += p->ip_len;
	int verdict = CONTINUE;

	if ((config.stage_mask & STAGE_BIT(GATE)) && demands_grants(p->from_zone))
		verdict = gate_datagram(p);
	if (verdict == CONTINUE)
		verdict = fanout_send(ctx, p);
	if (verdict != VERDICT_FORWARD)
		count_reason(&count->drops, REASON_OF(verdict), p->segments);
	return verdict;
}

/* The exit drops a packet that had a receiver. */
static __always_inline void fanout_dropped(const struct packet *p, __u32 reason)
{
	struct fanout_listener_counters *count = fanout_counters_of(p->fanout_listener);

	if (count)
		count_reason(&count->drops, reason, p->segments);
}

/* Behind the exit: what became of a packet that had a receiver. */
static __always_inline int fanout_sent(const struct packet *p, int action)
{
	if (action != HOOK_DROP)
		fanout_account(p->fanout_receiver, p->segments, p->ip_len);
	else
		fanout_dropped(p, REASON_NEIGHBOUR_PENDING);
	return action;
}

#endif
