/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A packet to a subscriber goes into its tunnel: the line of its destination's address says whether it may, and where
 * the tunnel's other end is. It comes with its hop taken off and everything else decided, but for the link header.
 */
#ifndef SLUICE_GTPU_ENCAP_H
#define SLUICE_GTPU_ENCAP_H

#include "fast.h"
#include "gtpu/account.h"
#include "gtpu/decap.h"
#include "gtpu/duplicate.h"
#include "gtpu/peer.h"

#define GTPU_TTL 64
#define GTPU_PORT_FIRST 49152 /* RFC 6335 6: of nobody */

/* RFC 7510 3.1 and the like: the source port varies by flow, so that ways and queues can be shared out by it. */
static __always_inline __u16 gtpu_sport(__u32 x)
{
	return bpf_htons(GTPU_PORT_FIRST + (x * 0x9e3779b1u >> 18));
}

/* What the inner header says, and the line of whom it is for. */
static __always_inline struct gtpu_line *gtpu_line_of(hook_ctx *ctx, const struct handover *h, struct gtpu_work *work,
						      __u32 *ip_len)
{
	__u32 l3 = h->l3 & 0x1f;
	struct iphdr *ip = hook_data(ctx) + l3;
	struct ipv6hdr *ip6 = hook_data(ctx) + l3;

	if ((void *)(ip + 1) > hook_end(ctx))
		return NULL;
	if (h->is.wire == 4) {
		*ip_len = bpf_ntohs(ip->tot_len);
		work->tos = ip->tos;
		work->be_sport = gtpu_sport(gtpu_flow_word4(ctx, ip));
		return downlink_of4(ip->daddr);
	}
	if ((void *)(ip6 + 1) > hook_end(ctx))
		return NULL;
	*ip_len = bpf_ntohs(ip6->payload_len) + sizeof(*ip6);
	work->tos = bpf_ntohs(*(__be16 *)ip6) >> 4;
	work->be_sport = gtpu_sport(*(__u32 *)ip6 ^ gtpu_flow_word6(ctx, ip6));
	return downlink_of6(*(const __u64 *)&ip6->daddr);
}

/* The way to the other end. */
struct gtpu_way {
	struct gtpu_peer *peer;
	struct nexthop *nexthop;
	__u32 copy; /* mark of the packet's copy, 0 = there is none */
};

/* What stays of the frame: from there on so many bytes. */
static __always_inline __u32 gtpu_from(const struct handover *h, const struct gtpu_work *work)
{
	return (h->entry == ENTRY_RELAY ? work->gtp + GTPU_HEADER : h->l3) & 0xfff;
}

static __always_inline __u32 gtpu_payload(const struct handover *h, const struct gtpu_work *work)
{
	return h->entry == ENTRY_RELAY ? work->length : work->body_len;
}

/* Bytes of the headers that are written before it, but for the link header. */
static __always_inline __u32 gtpu_head(const struct handover *h, const struct gtpu_work *work,
				       const struct gtpu_peer *peer)
{
	bool container = h->entry != ENTRY_RELAY && (work->flags & GTPU_FLAG_E);

	return (peer->family == 4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)) + sizeof(struct udphdr) +
	       GTPU_HEADER + (container ? GTPU_OPTIONS + GTPU_CONTAINER_BYTES : 0);
}

/* Before anything is counted or changed: whether there is a way, and it takes packets of this length. */
static __always_inline int gtpu_find_way(hook_ctx *ctx, const struct handover *h, struct gtpu_work *work,
					 struct gtpu_way *way)
{
	bool relay = h->entry == ENTRY_RELAY;

	way->peer = gtpu_peer_at(work->peer);
	way->nexthop = way->peer ? gtpu_nexthop(ctx, way->peer, work->peer, h->zone) : NULL;
	if (!way->nexthop || !(way->nexthop->flags & NEXTHOP_VALID))
		return DROP(GTPU_PEER);
	__u32 mtu = way->nexthop->mtu, head = gtpu_head(h, work, way->peer);

	if (head + gtpu_payload(h, work) <= mtu)
		return CONTINUE;
	/* of a message that goes on, its sender knows the headers that it has */
	__s32 most = (__s32)(mtu - head) + (relay ? work->gtp + GTPU_HEADER - h->l3 : 0);

	work->mtu = most > 0 && most <= 0xffff ? most : 0;
	return DROP(GTPU_MTU);
}

/* A user's packet as it stands behind the link header; container: with room for a PDU Session Container. */
static __always_inline void gtpu_data(struct gtpu_work *work, const struct handover *h, __u32 teid, __u32 peer,
				      bool container, __u32 ip_len)
{
	work->teid = teid;
	work->peer = peer;
	work->type = GTPU_G_PDU;
	work->flags = GTPU_VERSION_1 | GTPU_FLAG_PT | (container ? GTPU_FLAG_E : 0);
	work->body = h->l3 & 0x1f;
	work->body_len = ip_len;
	work->length = ip_len + (container ? GTPU_OPTIONS + GTPU_CONTAINER_BYTES : 0);
}

/* A copy's tunnel; what it was copied from has met everything else. */
static __always_inline bool gtpu_copy_out(const struct handover *h, struct gtpu_work *work, __u32 ip_len)
{
	const struct gtpu_rules *rules = gtpu_copy_rules(h->place);
	__u32 direction = GTPU_COPY_DIRECTION(h->place);

	if (!rules || !ip_len)
		return false;
	gtpu_data(work, h, rules->copy_teid[direction], rules->copy_peer[direction], false, ip_len);
	work->tos &= ~ECN_BITS;
	return true;
}

/* The way of what was permitted before. Nobody is told that a copy is too long. */
static __always_inline int gtpu_permitted(hook_ctx *ctx, const struct handover *h, struct gtpu_work *work,
					  struct gtpu_way *way, __u32 ip_len)
{
	bool copy = h->entry == ENTRY_COPY;
	int verdict = !copy || gtpu_copy_out(h, work, ip_len) ? gtpu_find_way(ctx, h, work, way) : DROP(GTPU_PEER);

	return copy && verdict != CONTINUE ? DROP(GTPU_DUPLICATE) : verdict;
}

/* Copies the packet that goes into its tunnel, without the tags that it came with. */
static __noinline int gtpu_copy_down(hook_ctx *ctx, struct handover *h, __u32 ifindex, __u32 mark)
{
	if (!h)
		return DROP(REWRITE_FAILED);
	struct unit_counters *count = counters_of(h->unit_index);
	struct frame frame = {.l3 = h->l3 & 0x1f, .vlan = h->vlan, .tagged = h->tagged};

	if (!count || !hook_pop_vlan(ctx, &frame))
		return DROP(REWRITE_FAILED);
	h->tagged = 0;
	h->l3 = ETH_HLEN;
	int verdict = gtpu_duplicate(ctx, h, ifindex, mark, GTPU_COPIED_MARK);

	if (verdict != CONTINUE) {
		count->redirected += 1;
		count->redirected_bytes += h->is.ip_len;
	}
	return verdict;
}

/* Whether the packet may pass, and by which tunnel: the decision is read once. */
static __always_inline int gtpu_outward(hook_ctx *ctx, const struct handover *h, struct gtpu_work *work,
					struct gtpu_way *way)
{
	__u32 ip_len = 0, place, flow;
	bool relay = h->entry == ENTRY_RELAY;
	struct gtpu_line *line = relay ? NULL : gtpu_line_of(ctx, h, work, &ip_len), *counting = line;

	if (relay || h->entry == ENTRY_COPY)
		return gtpu_permitted(ctx, h, work, way, ip_len);
	__u64 decision = line ? gtpu_decision_of(line) : 0;
	struct gtpu_rules *rules = gtpu_rules_of(decision);

	if (!line || !GTPU_DECISION_RULES(decision) || !rules)
		return DROP(GTPU_NO_SESSION);
	if (hook_is_joined(ctx))
		return DROP(GTPU_GSO);
	place = line->teid;
	if (place)
		counting = downlink_at(place - 1);
	const struct gtpu_rules *met = gtpu_met(ctx, rules, h->l3 & 0x1f, h->is.wire, GTPU_DOWNLINK, &flow);
	int verdict = gtpu_permits(met, GTPU_DOWNLINK);

	if (verdict != CONTINUE)
		return verdict;
	if (!counting || !ip_len)
		return DROP(GTPU_NO_SESSION);
	bool container = met->flags & GTPU_CONTAINER;

	gtpu_data(work, h, GTPU_DECISION_TEID(decision), GTPU_DECISION_PEER(decision), container, ip_len);
	/* TS 38.415 5.5.2.1: paging policy 0, reflective QoS, QFI */
	work->container = (met->flags & GTPU_REFLECTIVE ? 0x40 : 0) | (met->qfi & 0x3f);
	work->tos = met->flags & GTPU_MARK_DOWNLINK ? met->dscp_downlink << 2 : work->tos & ~ECN_BITS;
	work->mobile = rules->ifindex;
	verdict = gtpu_find_way(ctx, h, work, way);
	if (verdict != CONTINUE || h->entry == ENTRY_COPIED)
		return verdict;
	way->copy = gtpu_copy_mark(rules, met, flow, GTPU_DOWNLINK, decision);
	return gtpu_pass(counting, rules, met, flow, GTPU_DOWNLINK, ip_len);
}

/* The GTP-U header behind the UDP one; of a message that goes on, what follows is there. */
static __always_inline bool gtpu_write(hook_ctx *ctx, const struct gtpu_work *work, bool relay, __u32 at,
				       __u16 be_check, __u32 *sum)
{
	__u32 *word = hook_data(ctx) + (at & 0x7f);

	if ((void *)(word + 4) > hook_end(ctx))
		return false;
	__u32 udp_len = sizeof(struct udphdr) + GTPU_HEADER + work->length;
	__u32 words[4] = {
		bpf_htonl((__u32)bpf_ntohs(work->be_sport) << 16 | GTPU_PORT),
		bpf_htonl(udp_len << 16) | (__u32)be_check << 16,
		bpf_htonl((__u32)work->flags << 24 | (__u32)work->type << 16 | work->length),
		bpf_htonl(work->teid),
	};

	for (int i = 0; i < 4; i++) {
		word[i] = words[i];
		*sum = csum_add32(*sum, words[i]);
	}
	if (relay || !(work->flags & GTPU_FLAG_E))
		return true;
	if ((void *)(word + 6) > hook_end(ctx))
		return false;
	word[4] = bpf_htonl(GTPU_EXTENSION_CONTAINER);
	word[5] = bpf_htonl(1u << 24 | (__u32)work->container << 8);
	*sum = csum_add32(csum_add32(*sum, word[4]), word[5]);
	return true;
}

/* Outer headers: IPv4 with DF, IPv6 with no UDP checksum (RFC 6935, RFC 6936 4: what is in the tunnel has its own). */
static __always_inline bool gtpu_write_outer(hook_ctx *ctx, const struct gtpu_work *work, bool relay,
					     const struct gtpu_peer *peer, __u32 l3)
{
	__u32 udp_len = sizeof(struct udphdr) + GTPU_HEADER + work->length, sum = 0, pseudo;
	/* a message that goes on from a socket here: the device completes its checksum, from the same place on */
	bool completed = relay && work->checked && hook_is_unsummed(ctx);
	struct iphdr *ip = hook_data(ctx) + (l3 & 0x1f);
	__u32 *word = (void *)ip;

	if (peer->family == 4) {
		if ((void *)(ip + 1) > hook_end(ctx))
			return false;
		word[0] = bpf_htonl(0x45000000 | (__u32)work->tos << 16 | (sizeof(*ip) + udp_len));
		word[1] = bpf_htonl(0x4000);
		word[2] = bpf_htonl(GTPU_TTL << 24 | IPPROTO_UDP << 16);
		word[3] = peer->be_local[0];
		word[4] = peer->be_remote[0];
		__u64 total = (__u64)word[0] + word[1] + word[2] + word[3] + word[4];

		ip->check = ~csum_fold_sum(total);
		pseudo = csum_pseudo4(peer->be_local[0], peer->be_remote[0], IPPROTO_UDP, udp_len);
		if (!gtpu_write(ctx, work, relay, l3 + sizeof(*ip), completed ? csum_fold_only(pseudo) : 0, &sum))
			return false;
	} else {
		if ((void *)(word + 10) > hook_end(ctx))
			return false;
		word[0] = bpf_htonl(6u << 28 | (__u32)work->tos << 20);
		word[1] = bpf_htonl(udp_len << 16 | IPPROTO_UDP << 8 | GTPU_TTL);
		for (int i = 0; i < 4; i++) {
			word[2 + i] = peer->be_local[i];
			word[6 + i] = peer->be_remote[i];
		}
		for (int i = 0; i < 10; i++)
			sum = csum_add32(sum, word[i]);
		pseudo = csum_pseudo6(peer->be_local, peer->be_remote, IPPROTO_UDP, udp_len);
		if (!gtpu_write(ctx, work, relay, l3 + sizeof(struct ipv6hdr), completed ? csum_fold_only(pseudo) : 0,
				&sum))
			return false;
	}
	hook_sum_grows(ctx, sum);
	return true;
}

/* MAC addresses and type; `nexthop` may not know the one, then the kernel writes both. */
static __always_inline bool gtpu_write_link(hook_ctx *ctx, const struct nexthop *nexthop, __u32 vlan, __u8 family)
{
	void *data = hook_data(ctx);

	if (data + ETH_HLEN > hook_end(ctx))
		return false;
	*(__u64 *)data = *(const volatile __u64 *)nexthop->dmac;
	*(__u32 *)(data + 8) = *(const volatile __u32 *)(nexthop->smac + 2);
	return hook_finish_link(ctx, vlan, family == 4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6));
}

/* All that comes here is verified once, whatever it is. */
__noinline int gtpu_put_in(hook_ctx *ctx, struct gtpu_peer *peer, struct nexthop *nexthop, struct unit_counters *count)
{
	__u32 zero = 0;
	struct cpu_memory *memory = bpf_map_lookup_elem(&scratch, &zero);

	if (!memory || !peer || !nexthop || !count)
		return DROP(REWRITE_FAILED);
	struct handover *h = &memory->handover;
	struct gtpu_work *work = &memory->gtpu;
	bool relay = h->entry == ENTRY_RELAY, resolved = nexthop->flags & NEXTHOP_RESOLVED;
	__u32 vlan = resolved ? nexthop->vlan : 0, host_ifindex = nexthop->host_ifindex, ifindex = nexthop->ifindex;
	__u32 from = gtpu_from(h, work), head = gtpu_head(h, work, peer);
	struct frame frame = {.l3 = h->l3 & 0x1f, .vlan = h->vlan, .tagged = h->tagged};

	if (!gtpu_trim(ctx, from + gtpu_payload(h, work)))
		return DROP(REWRITE_FAILED);
	__u32 l3 = hook_put_in(ctx, &frame, from, head, vlan, peer->family == 4 ? 4 : 6);

	if (!l3 || !gtpu_write_outer(ctx, work, relay, peer, l3) || !gtpu_write_link(ctx, nexthop, vlan, peer->family))
		return DROP(REWRITE_FAILED);
	count->encapsulated += 1;
	if (resolved) {
		count->redirected += 1;
		count->redirected_bytes += h->is.ip_len;
		return hook_redirect(ctx, ifindex);
	}
	struct frame plain = {.l3 = ETH_HLEN};
	int action = hook_hand_off(ctx, &plain, host_ifindex, gtpu_neighbour(ctx, work->peer, h->zone));

	if (action == HOOK_DROP)
		return DROP(NEIGHBOUR_PENDING);
	count->handed_off += 1;
	count->queued += 1;
	return action;
}

/* An established packet, of which the fast program has found the session; not GSO. */
static __always_inline bool gtpu_replay(hook_ctx *ctx, const struct handover *h, struct unit_counters *count)
{
	struct replay r = {
		.is = h->is,
		.frame = {.l3 = h->l3 & 0x1f, .ethertype = h->is.wire == 4 ? ETH_P_IP : ETH_P_IPV6},
		.line = h->place,
		.family = h->is.wire == 4 ? 4 : 6,
	};

	r.state = flow_state_at(r.family, r.line);
	count->received += 1;
	count->received_bytes += r.is.ip_len;
	if (!r.state)
		return false;
	trace_session(r.family, r.line);
	replay_account(&r, 1);
	return replay_headers(ctx, &r, true);
}

static __always_inline int gtpu_encap_path(hook_ctx *ctx)
{
	struct handover *h = handover_here();
	struct gtpu_work *work = gtpu_work_here();

	if (!h || !work)
		return HOOK_DROP;
	struct unit_counters *count = counters_of(h->unit_index);

	if (!count)
		return HOOK_DROP;
	struct gtpu_way way = {};
	int verdict = h->entry == ENTRY_REPLAY && !gtpu_replay(ctx, h, count) ? DROP(REWRITE_FAILED) : CONTINUE;

	if (verdict == CONTINUE)
		verdict = gtpu_outward(ctx, h, work, &way);
	if (verdict == CONTINUE && way.copy)
		verdict = gtpu_copy_down(ctx, h, work->mobile, way.copy);
	if (verdict == CONTINUE)
		verdict = gtpu_put_in(ctx, way.peer, way.nexthop, count);
	if (!(verdict > 0 && (verdict & VERDICT_DROP)))
		return verdict;
	gtpu_drop(ctx, h, REASON_OF(verdict));
	if (verdict != DROP(GTPU_MTU))
		return HOOK_DROP;
	work->answer = GTPU_ANSWER_LENGTH;
	return GO(GTPU_SIGNAL);
}

#endif
