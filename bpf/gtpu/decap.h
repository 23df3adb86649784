/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A message to a tunnel address of this gateway. What it says is checked first, and who may send it; only then is the
 * frame changed: what was in the tunnel goes on as if it had arrived on the session's mobile interface.
 *
 * The outer UDP checksum is not looked at, whether there is one or not (RFC 6935 5, RFC 6936 4): what is in the tunnel
 * has its own, and a TEID or length that came wrong finds no session, or no subscriber's address. Outer packets that
 * are made here say Not-ECT, since their other end may not hand on what routers mark (RFC 6040 4.3, compatibility
 * mode).
 */
#ifndef SLUICE_GTPU_DECAP_H
#define SLUICE_GTPU_DECAP_H

#include "gtpu/account.h"
#include "gtpu/duplicate.h"
#include "gtpu/inner.h"
#include "gtpu/parse.h"
#include "gtpu/spread.h"

/* The inner packet's family and length, and whether its source is the subscriber (TS 23.501 5.8.2.2: no other one). */
static __always_inline int gtpu_check_inner(hook_ctx *ctx, struct gtpu_work *work, const struct gtpu_line *line,
					    __u32 *ip_len)
{
	__u32 at = work->body & 0xfff;
	struct iphdr *ip = hook_data(ctx) + at;
	struct ipv6hdr *ip6 = hook_data(ctx) + at;

	if ((void *)(ip + 1) > hook_end(ctx) || work->body_len < sizeof(*ip))
		return DROP(GTPU_INNER);
	__u8 first = *(__u8 *)ip;

	if (first >> 4 == 4) {
		*ip_len = bpf_ntohs(ip->tot_len);
		work->inner_wire = 4;
		if ((first & 0x0f) < 5 || *ip_len < (first & 0x0f) * 4u || *ip_len > work->body_len)
			return DROP(GTPU_INNER);
		return ip->saddr && ip->saddr == line->be_addr4 ? CONTINUE : DROP(GTPU_SPOOFED);
	}
	if (first >> 4 != 6 || (void *)(ip6 + 1) > hook_end(ctx))
		return DROP(GTPU_INNER);
	*ip_len = bpf_ntohs(ip6->payload_len) + sizeof(*ip6);
	work->inner_wire = 6;
	if (*ip_len > work->body_len)
		return DROP(GTPU_INNER);
	__u64 prefix = *(const __u64 *)&ip6->saddr;

	return prefix && prefix == line->be_prefix6 ? CONTINUE : DROP(GTPU_SPOOFED);
}

/* The frame ends where the inner packet does. */
static __always_inline bool gtpu_trim(hook_ctx *ctx, __u32 end)
{
	return hook_ends_at(ctx, end) || hook_trim(ctx, end);
}

/* Outer headers off; the frame is the mobile interface's own. */
static __always_inline bool gtpu_take_out(hook_ctx *ctx, const struct handover *h, const struct gtpu_work *work,
					  const struct unit *unit)
{
	struct frame frame = {.l3 = h->l3 & 0x1f, .vlan = h->vlan, .tagged = h->tagged};

	if (!hook_take_out(ctx, &frame, work->body & 0xfff, work->inner_wire))
		return false;
	return gtpu_write_mobile_link(ctx, unit, work->inner_wire);
}

/* Of the packet at `at`. */
static __always_inline __u8 class_at(hook_ctx *ctx, __u32 at, __u8 wire)
{
	__u8 *ip = hook_data(ctx) + at;

	if ((void *)(ip + 2) > hook_end(ctx))
		return 0;
	return wire == 4 ? ip[1] : (__u8)(bpf_ntohs(*(__be16 *)ip) >> 4);
}

static __always_inline __u8 outer_class(hook_ctx *ctx, const struct handover *h)
{
	return class_at(ctx, h->l3 & 0x1f, h->is.wire);
}

/* The outer header says CE or ECT(1), as few do. */
__noinline int gtpu_tell_congestion(hook_ctx *ctx, __u32 outer)
{
	struct gtpu_work *work = gtpu_work_here();

	if (!work)
		return DROP(REWRITE_FAILED);
	__u32 at = work->body & 0xfff;
	__u8 wire = work->inner_wire == 4 ? 4 : 6, inner = class_at(ctx, at, wire) & ECN_BITS;

	if (outer == ECN_CE && !inner)
		return DROP(GTPU_CONGESTED);
	if (outer == ECN_CE ? inner == ECN_CE : inner != ECN_ECT0)
		return CONTINUE;
	return gtpu_set_class(ctx, at, wire, 0xff & ~ECN_BITS, outer) ? CONTINUE : DROP(REWRITE_FAILED);
}

/*
 * RFC 6040 4.2: what the outer header tells of congestion goes on with the packet, to its ends. To those that do not
 * know of ECN loss tells it.
 */
static __always_inline int gtpu_congestion(hook_ctx *ctx, const struct handover *h)
{
	__u8 outer = outer_class(ctx, h) & ECN_BITS;

	return outer & ECN_ECT1 ? gtpu_tell_congestion(ctx, outer) : CONTINUE;
}

static __always_inline int gtpu_inward(hook_ctx *ctx, struct handover *h, struct gtpu_work *work,
				       struct gtpu_line *line, const struct gtpu_rules *rules, __u64 decision)
{
	__u32 ip_len = 0, slot, flow;
	int verdict = gtpu_check_inner(ctx, work, line, &ip_len);

	if (verdict != CONTINUE)
		return verdict;
	if (hook_is_joined(ctx))
		return DROP(GTPU_GSO);
	verdict = gtpu_congestion(ctx, h);
	if (verdict != CONTINUE)
		return verdict;
	struct unit *unit = unit_find(rules->ifindex, 0, &slot);
	struct unit_counters *count = counters_of(h->unit_index);

	if (!unit || !count)
		return DROP(GTPU_INTERFACE);
	const struct gtpu_rules *met = gtpu_met(ctx, rules, work->body & 0xfff, work->inner_wire, GTPU_UPLINK, &flow);

	if (rules->filters)
		verdict = gtpu_permits(met, GTPU_UPLINK);
	if (verdict == CONTINUE)
		verdict = gtpu_pass(line, rules, met, flow, GTPU_UPLINK, ip_len);
	if (verdict != CONTINUE)
		return verdict;
	if (!gtpu_trim(ctx, (work->body & 0xfff) + ip_len) || !gtpu_take_out(ctx, h, work, unit))
		return DROP(REWRITE_FAILED);
	__u32 class = met->flags & GTPU_MARK_UPLINK ? GTPU_INNER_DSCP | (met->dscp_uplink & 0x3f) : 0;
	__u32 copy = gtpu_copy_mark(rules, met, flow, GTPU_UPLINK, decision);

	/* a copy is as the packet came */
	if (copy)
		verdict = gtpu_duplicate(ctx, h, rules->ifindex, copy, GTPU_INNER_MARK | class);
	if (verdict == CONTINUE && class && !gtpu_mark(ctx, work->inner_wire, class & 0x3f))
		return DROP(REWRITE_FAILED);
	count->decapsulated += 1;
	work->inner = rules->ifindex;
	return verdict == CONTINUE ? gtpu_replay_inner(ctx, work, unit) : verdict;
}

/* N9: the message goes on through another tunnel as it is, but for its TEID (TS 23.501 5.8.2.3). */
static __always_inline int gtpu_onward(hook_ctx *ctx, struct handover *h, struct gtpu_work *work,
				       struct gtpu_line *line, const struct gtpu_rules *rules, __u64 decision)
{
	if (hook_is_joined(ctx))
		return DROP(GTPU_GSO);
	if (work->type == GTPU_G_PDU) {
		int verdict = gtpu_account(line, rules, GTPU_UPLINK, work->body_len);

		if (verdict != CONTINUE)
			return verdict;
	}
	h->entry = ENTRY_RELAY;
	work->teid = GTPU_DECISION_TEID(decision);
	work->peer = GTPU_DECISION_PEER(decision);
	/* of both tunnels congestion is told behind the second (RFC 6040 4.2) */
	work->tos = outer_class(ctx, h);
	if (rules->flags & GTPU_MARK_UPLINK)
		work->tos = rules->dscp_uplink << 2 | (work->tos & ECN_BITS);
	return GO(GTPU_ENCAP);
}

/* A G-PDU, or an End Marker, which a session's end of the tunnel takes note of (TS 29.281 7.3.2). */
static __always_inline int gtpu_of_session(hook_ctx *ctx, struct handover *h, struct gtpu_work *work)
{
	bool data = work->type == GTPU_G_PDU;

	/* first: the memory of its session comes while that of the line does */
	if (data)
		gtpu_find_inner(ctx);
	struct gtpu_line *line = uplink_of(work->teid);
	__u64 decision = line ? gtpu_decision_of(line) : 0;
	struct gtpu_rules *rules = gtpu_rules_of(decision);

	if (!line || !GTPU_DECISION_RULES(decision) || !rules) {
		/* 7.3.1: of a TEID that is not all zeros */
		work->answer = data && work->teid ? GTPU_ANSWER_ERROR : GTPU_ANSWER_NONE;
		return DROP(GTPU_TEID);
	}
	bool relay = rules->flags & GTPU_TO_PEER;

	if (work->unknown & (relay ? GTPU_UNKNOWN_ANYWHERE : GTPU_UNKNOWN_HERE)) {
		work->answer = GTPU_ANSWER_EXTENSIONS;
		return DROP(GTPU_EXTENSION);
	}
	/* else its flow is known later */
	int verdict = data && rules->filters && !relay ? CONTINUE : gtpu_permits(rules, GTPU_UPLINK);

	if (verdict != CONTINUE)
		return verdict;
	if (relay)
		return gtpu_onward(ctx, h, work, line, rules, decision);
	if (!data)
		return GO(GTPU_SIGNAL);
	struct gtpu_peer *peer = gtpu_peer_at(GTPU_DECISION_PEER(decision));

	if (peer)
		gtpu_heard(peer);
	return gtpu_inward(ctx, h, work, line, rules, decision);
}

/*
 * Straight from the fast program: sources that no host has (RFC 1122 3.2.1.3, RFC 4291 2.7), and those near them, are
 * the slow one's to judge.
 */
static __always_inline bool gtpu_source_is_odd(const struct handover *h, const struct iphdr *ip)
{
	const struct ipv6hdr *ip6 = (const void *)ip;
	bool v4 = h->is.wire == 4;
	__u32 first = bpf_ntohl(v4 ? ip->saddr : ip6->saddr.in6_u.u6_addr32[0]) >> 24;

	return !h->l4 && (!first || first == 0xff || (v4 && (first == 127 || first >= 0xe0)));
}

/* Whether the message is for a tunnel address of its unit, and where its outer UDP header is. */
static __always_inline bool gtpu_ends_here(hook_ctx *ctx, struct handover *h)
{
	__u32 slot, l3 = h->l3 & 0x1f;
	const struct unit *unit = unit_find(hook_ifindex(ctx), h->vlan, &slot);
	struct iphdr *ip = hook_data(ctx) + l3;
	struct ipv6hdr *ip6 = hook_data(ctx) + l3;

	if (!unit || (void *)(ip + 1) > hook_end(ctx))
		return false;
	if (gtpu_source_is_odd(h, ip))
		return false;
	if (h->is.wire == 4) {
		h->l4 = h->l4 ? h->l4 : h->l3 + sizeof(*ip);
		return is_tunnel_address4(unit, ip->daddr);
	}
	h->l4 = h->l4 ? h->l4 : h->l3 + sizeof(*ip6);
	return (void *)(ip6 + 1) <= hook_end(ctx) && is_tunnel_address6(unit, ip6->daddr.in6_u.u6_addr32);
}

static __always_inline int gtpu_decap_path(hook_ctx *ctx)
{
	struct handover *h = handover_here();
	struct gtpu_work *work = gtpu_work_here();

	if (!h || !work)
		return HOOK_DROP;
	struct unit_counters *count = counters_of(h->unit_index);

	if (!count)
		return HOOK_DROP;
	hook_pull_headers(ctx);
	work->inner = 0;
	/* passing through: the slow path's, which looks at the address itself */
	if (!gtpu_ends_here(ctx, h))
		return GO(ADMIT);
	int verdict = gtpu_parse(ctx, h, work);

	if (verdict == CONTINUE)
		verdict = gtpu_spread(ctx, work);
	if (HOOK_SPREADS && verdict == HOOK_LEFT)
		return verdict;
	count->received += hook_segments(ctx);
	count->received_bytes += h->is.ip_len;
	if (verdict == CONTINUE) {
		if (work->type == GTPU_G_PDU || work->type == GTPU_END_MARKER) {
			verdict = gtpu_of_session(ctx, h, work);
		} else if (work->unknown) {
			work->answer = GTPU_ANSWER_EXTENSIONS;
			verdict = DROP(GTPU_EXTENSION);
		} else {
			verdict = GO(GTPU_SIGNAL);
		}
	}
	if (!(verdict > 0 && (verdict & VERDICT_DROP)))
		return verdict;
	gtpu_drop(ctx, h, REASON_OF(verdict));
	return work->answer ? GO(GTPU_SIGNAL) : HOOK_DROP;
}

#endif
