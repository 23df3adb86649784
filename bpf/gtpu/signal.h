/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Messages that are no user data (TS 29.281 7), and answers to what cannot be delivered. An answer is made of the
 * message at hand and leaves where that came from; the zone's bucket of answers bounds how many there are.
 */
#ifndef SLUICE_GTPU_SIGNAL_H
#define SLUICE_GTPU_SIGNAL_H

#include "gtpu/decap.h"
#include "gtpu/too_long.h"
#include "lib/events.h"
#include "lib/reply.h"

#define GTPU_IE_RECOVERY 14 /* TS 29.281 8.1 */
#define GTPU_IE_TEID 16
#define GTPU_IE_ADDRESS 133
#define GTPU_IE_EXTENSIONS 141
#define GTPU_MESSAGE_BYTES 48
#define GTPU_PEERS_LOOKED_AT 4096 /* where an Echo Response looks for whom it is from */

_Static_assert(sizeof(((struct gtpu_work *)0)->message) == GTPU_MESSAGE_BYTES, "an answer is summed up as a whole");

/* Messages of version 1 with their optional fields, which these have (TS 29.281 5.1). */
static __always_inline void gtpu_begin(struct gtpu_work *work, __u8 flags, __u8 type, __u32 length, __u16 be_sequence,
				       __u8 next)
{
	__builtin_memset(work->message, 0, sizeof(work->message));
	work->message[0] = bpf_htonl((__u32)(GTPU_VERSION_1 | GTPU_FLAG_PT | flags) << 24 | (__u32)type << 16 | length);
	work->message[2] = be_sequence | bpf_htonl(next);
	work->message_len = GTPU_HEADER + length;
}

/* 7.2.2: with the request's sequence number; the restart counter means nothing here (8.2). */
static __always_inline void gtpu_echo_response(struct gtpu_work *work)
{
	gtpu_begin(work, GTPU_FLAG_S, GTPU_ECHO_RESPONSE, GTPU_OPTIONS + 2, work->be_sequence, 0);
	work->message[3] = bpf_htonl(GTPU_IE_RECOVERY << 24);
}

/* TS 29.060 7.2.3: just a header, of the version that is supported. */
static __always_inline void gtpu_version_not_supported(struct gtpu_work *work)
{
	gtpu_begin(work, GTPU_FLAG_S, GTPU_VERSION_NOT_SUPPORTED, GTPU_OPTIONS, 0, 0);
}

/* 7.2.3: the types that are understood. */
static __always_inline void gtpu_extensions_notification(struct gtpu_work *work)
{
	gtpu_begin(work, GTPU_FLAG_S, GTPU_EXTENSIONS_NOTIFICATION, GTPU_OPTIONS + 4, 0, 0);
	work->message[3] =
		bpf_htonl(GTPU_IE_EXTENSIONS << 24 | 2 << 16 | GTPU_EXTENSION_UDP_PORT << 8 | GTPU_EXTENSION_CONTAINER);
}

/* 7.3.1: the TEID, the address that it was sent to, and in a UDP Port header (5.2.2.1) the port that it came from. */
static __always_inline void gtpu_error_indication(struct gtpu_work *work, const __u32 *be_addr, __u8 family)
{
	__u32 address = family == 4 ? 4 : 16, teid = work->teid;
	__u8 *at = (__u8 *)work->message + 16;

	gtpu_begin(work, GTPU_FLAG_S | GTPU_FLAG_E, GTPU_ERROR_INDICATION, GTPU_OPTIONS + 4 + 5 + 3 + address, 0,
		   GTPU_EXTENSION_UDP_PORT);
	work->message[3] = bpf_htonl(1u << 24 | (__u32)bpf_ntohs(work->be_sport) << 8);
	at[0] = GTPU_IE_TEID;
	at[1] = teid >> 24;
	at[2] = teid >> 16;
	at[3] = teid >> 8;
	at[4] = teid;
	at[5] = GTPU_IE_ADDRESS;
	at[6] = 0;
	at[7] = address;
	for (int i = 0; i < 4; i++)
		if (family != 4 || !i)
			work->message[6 + i] = be_addr[i];
}

/* Source and destination of the message at hand; IPv4 stands in the first word. */
struct gtpu_ends {
	__u32 be_saddr[4];
	__u32 be_daddr[4];
};

static __always_inline bool gtpu_ends_of(hook_ctx *ctx, const struct handover *h, struct gtpu_ends *ends)
{
	__u32 l3 = h->l3 & 0x1f;
	struct iphdr *ip = hook_data(ctx) + l3;
	struct ipv6hdr *ip6 = hook_data(ctx) + l3;

	__builtin_memset(ends, 0, sizeof(*ends));
	if (h->is.wire == 4) {
		if ((void *)(ip + 1) > hook_end(ctx))
			return false;
		ends->be_saddr[0] = ip->saddr;
		ends->be_daddr[0] = ip->daddr;
		return ip->saddr && (bpf_ntohl(ip->saddr) >> 28) < 0xe && ip->saddr != ip->daddr;
	}
	if ((void *)(ip6 + 1) > hook_end(ctx))
		return false;
	for (int i = 0; i < 4; i++) {
		ends->be_saddr[i] = ip6->saddr.in6_u.u6_addr32[i];
		ends->be_daddr[i] = ip6->daddr.in6_u.u6_addr32[i];
	}
	return *(const __u64 *)ends->be_saddr && (bpf_ntohl(ends->be_saddr[0]) >> 24) != 0xff;
}

static __always_inline __u32 gtpu_sum(const struct gtpu_work *work)
{
	__u32 sum = 0;

	for (int i = 0; i < GTPU_MESSAGE_BYTES / 4; i++)
		sum = csum_add32(sum, work->message[i]);
	return sum;
}

static __always_inline bool gtpu_write_udp(hook_ctx *ctx, const struct gtpu_work *work, __u32 at, __u32 pseudo,
					   __be16 be_dport, bool partial)
{
	__be16 *udp = hook_data(ctx) + (at & 0x7f);
	__u32 udp_len = sizeof(struct udphdr) + work->message_len;

	if ((void *)(udp + 4) > hook_end(ctx))
		return false;
	udp[0] = bpf_htons(GTPU_PORT);
	udp[1] = be_dport;
	udp[2] = bpf_htons(udp_len);
	__u32 sum = pseudo + udp[0] + udp[1] + udp[2];
	__u16 check = csum_fold(csum_fold_only(sum) + csum_fold_only(gtpu_sum(work)));

	/* the device completes it, from the same place on */
	udp[3] = partial ? csum_fold_only(pseudo) : check ? check : 0xffff;
	return true;
}

/* The message at hand becomes the answer. */
static __noinline int gtpu_answer_with(hook_ctx *ctx, struct gtpu_work *work, const struct handover *h, __u32 be_dport)
{
	struct gtpu_ends ends;
	__u32 l3 = h->l3 & 0x1f, v4 = h->is.wire == 4, header = v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	__u32 len = work->message_len, l4 = l3 + header;
	bool partial = work->checked && hook_is_unsummed(ctx);

	if (!len || len > GTPU_MESSAGE_BYTES || !gtpu_ends_of(ctx, h, &ends) || (partial && h->l4 != l4))
		return 0;
	__u32 udp_len = sizeof(struct udphdr) + len;

	/* the kernel forgets the sum of a packet's bytes where its length changes */
	if (!hook_resize(ctx, l4 + udp_len + 1) || !hook_resize(ctx, l4 + udp_len) || !reply_ethernet(ctx, 0, l3))
		return 0;
	struct iphdr *ip = hook_data(ctx) + l3;
	__u32 pseudo;

	if (v4) {
		if ((void *)(ip + 1) > hook_end(ctx))
			return 0;
		reply_ipv4(ip, sizeof(*ip) + udp_len, IPPROTO_UDP, ends.be_daddr[0], ends.be_saddr[0]);
		pseudo = csum_pseudo4(ends.be_daddr[0], ends.be_saddr[0], IPPROTO_UDP, udp_len);
	} else {
		if ((void *)ip + sizeof(struct ipv6hdr) > hook_end(ctx))
			return 0;
		reply_ipv6((void *)ip, udp_len, IPPROTO_UDP, ends.be_daddr, ends.be_saddr);
		pseudo = csum_pseudo6(ends.be_daddr, ends.be_saddr, IPPROTO_UDP, udp_len);
	}
	if (!gtpu_write_udp(ctx, work, l4, pseudo, be_dport, partial))
		return 0;
	return hook_store(ctx, l4 + sizeof(struct udphdr), work->message, len);
}

/*
 * Paths live by answers to Echo (TS 29.281 7.2.1) and sessions end by Error Indications, so no other message takes
 * anything of what they may have: `of` is a REPLY_BUCKET_*, 0 = of all others.
 */
static __always_inline bool gtpu_may_answer(__u32 zone, __u32 of)
{
	__u32 number = zone + of;
	struct token_bucket *bucket = bpf_map_lookup_elem(&reply_tokens, &number);

	return bucket && tokens_take(bucket, jiffies_now(), REPLY_RATE_PER_ZONE);
}

/* An answer is counted where the message came in. */
static __always_inline int gtpu_send(hook_ctx *ctx, const struct handover *h, struct gtpu_work *work,
				     struct unit_counters *count, __be16 be_dport)
{
	__u32 slot;
	struct unit *unit = unit_find(hook_ifindex(ctx), h->vlan, &slot);

	if (!unit)
		return HOOK_DROP;
	__u32 ifindex = unit->phys_ifindex;

	bool is_echo = work->type == GTPU_ECHO_REQUEST && !work->answer;

	if (!gtpu_may_answer(h->zone, is_echo ? REPLY_BUCKET_ECHO : 0)) {
		count->replies_withheld += 1;
		return HOOK_DROP;
	}
	if (!gtpu_answer_with(ctx, work, h, be_dport))
		return HOOK_DROP;
	count->replies += 1;
	return hook_redirect(ctx, ifindex);
}

/* What was dropped before, and whose sender is told (4.4.2: an Echo Response alone goes to another port than 2152). */
static __always_inline int gtpu_refused(hook_ctx *ctx, const struct handover *h, struct gtpu_work *work,
					struct unit_counters *count)
{
	struct gtpu_ends ends;

	if (work->answer == GTPU_ANSWER_VERSION) {
		gtpu_version_not_supported(work);
		return gtpu_send(ctx, h, work, count, work->be_sport);
	}
	if (work->answer == GTPU_ANSWER_EXTENSIONS) {
		gtpu_extensions_notification(work);
	} else {
		if (!gtpu_ends_of(ctx, h, &ends))
			return HOOK_DROP;
		gtpu_error_indication(work, ends.be_daddr, h->is.wire);
	}
	return gtpu_send(ctx, h, work, count, bpf_htons(GTPU_PORT));
}

/* 7.2.2: the path is there. Entries that nobody uses any more may say the same, so all that do are told. */
static __noinline int gtpu_path_is_there(hook_ctx *ctx, const struct handover *h)
{
	struct gtpu_ends ends;
	__u32 i, family = h->is.wire;

	if (!gtpu_ends_of(ctx, h, &ends))
		return 0;
	bpf_for (i, 1, GTPU_PEERS_LOOKED_AT) {
		struct gtpu_peer *peer = gtpu_peer_at(i);

		if (!peer)
			break;
		if (peer->family != family)
			continue;
		__u32 other = 0;

		for (int word = 0; word < 4; word++) {
			other |= peer->be_remote[word] ^ ends.be_saddr[word];
			other |= peer->be_local[word] ^ ends.be_daddr[word];
		}
		if (other)
			continue;
		peer->received++;
		gtpu_heard(peer);
	}
	return 0;
}

/* 7.3.1: the daemon is told, who knows which sessions have that TEID there. */
static __always_inline int gtpu_error_received(hook_ctx *ctx, const struct handover *h, const struct gtpu_work *work,
					       struct unit_counters *count)
{
	struct gtpu_ends ends;
	__u8 *ie = hook_data(ctx) + (work->body & GTPU_LINEAR);

	if (work->body_len < 5 + 3 + 4 || work->body > GTPU_LINEAR || (void *)(ie + 12) > hook_end(ctx))
		return DROP(GTPU_MALFORMED);
	__u32 length = ie[6] << 8 | ie[7], teid = (__u32)ie[1] << 24 | ie[2] << 16 | ie[3] << 8 | ie[4];

	if (ie[0] != GTPU_IE_TEID || ie[5] != GTPU_IE_ADDRESS || (length != 4 && length != 16) ||
	    work->body_len < 8 + length || !gtpu_ends_of(ctx, h, &ends))
		return DROP(GTPU_MALFORMED);
	if (!gtpu_may_answer(h->zone, REPLY_BUCKET_ERROR)) {
		count->events_lost++;
		return CONTINUE;
	}
	struct event *event = event_begin(h->unit_index);

	if (!event)
		return CONTINUE;
	__builtin_memset(event, 0, sizeof(*event));
	event->kind = EVENT_GTPU_ERROR;
	event->family = h->is.wire;
	event->ingress_unit = h->unit_index;
	event->from_zone = h->zone;
	event->policy = teid;
	event->key.be_sport = work->be_sport;
	event->key.be_dport = bpf_htons(GTPU_PORT);
	event->key.proto = IPPROTO_UDP;
	for (int i = 0; i < 4; i++)
		event->key.be_saddr[i] = ends.be_saddr[i];
	if (hook_load(ctx, (work->body & GTPU_LINEAR) + 8, event->key.be_daddr, 4))
		event->key.routing_instance = 0;
	if (length == 16)
		hook_load(ctx, (work->body & GTPU_LINEAR) + 8, event->key.be_daddr, 16);
	bpf_ringbuf_submit(event, 0);
	return CONTINUE;
}

static __always_inline int gtpu_signal_path(hook_ctx *ctx)
{
	struct handover *h = handover_here();
	struct gtpu_work *work = gtpu_work_here();

	if (!h || !work)
		return HOOK_DROP;
	struct unit_counters *count = counters_of(h->unit_index);

	if (!count)
		return HOOK_DROP;
	if (work->answer == GTPU_ANSWER_LENGTH)
		return gtpu_tell_length(ctx, h, work);
	if (work->answer)
		return gtpu_refused(ctx, h, work, count);
	__u32 segments = hook_segments(ctx);

	switch (work->type) {
	case GTPU_ECHO_REQUEST:
		count->gtpu_signals += segments;
		gtpu_echo_response(work);
		return gtpu_send(ctx, h, work, count, work->be_sport);
	case GTPU_ECHO_RESPONSE:
		/* that search takes its time */
		if (gtpu_may_answer(h->zone, 0))
			gtpu_path_is_there(ctx, h);
		break;
	case GTPU_ERROR_INDICATION:
		if (gtpu_error_received(ctx, h, work, count) != CONTINUE)
			return gtpu_drop(ctx, h, REASON_GTPU_MALFORMED);
		break;
	case GTPU_END_MARKER:
	case GTPU_EXTENSIONS_NOTIFICATION:
	case GTPU_VERSION_NOT_SUPPORTED:
	case GTPU_TUNNEL_STATUS:
		break;
	default:
		return gtpu_drop(ctx, h, REASON_GTPU_MESSAGE);
	}
	count->gtpu_signals += segments;
	return HOOK_DROP;
}

#endif
