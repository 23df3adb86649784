/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* TCP seen from the middle: two directions, each SYN -> ESTABLISHED -> FIN -> CLOSED (RFC 9293 3.3.2, 3.5, 3.6). */
#ifndef SLUICE_LIB_TCP_STATE_H
#define SLUICE_LIB_TCP_STATE_H

#include "flow_table.h"

/* Sequence number after this segment: SYN and FIN take one each. */
static __always_inline __u32 tcp_segment_end(const struct packet *p)
{
	return p->tcp_seq + p->payload + !!(p->tcp_flags & TCP_SYN) + !!(p->tcp_flags & TCP_FIN);
}

/*
 * Does this packet acknowledge the peer's SYN (RFC 9293 3.10.7.3)? All of it, or without the data in it, which a
 * receiver may ignore (RFC 7413 4.1.3).
 */
static __always_inline bool tcp_acknowledges_syn(const struct packet *p, const struct flow_state *peer)
{
	struct flow_shared *shared = flow_shared_at(p->family, p->line);

	return shared && (__s32)(p->tcp_ack - shared->syn_end[(p->line & 1) ^ 1]) >= 0 &&
	       (__s32)(peer->tcp_end - p->tcp_ack) >= 0;
}

static __always_inline void tcp_note_syn(const struct packet *p, struct flow_state *own)
{
	struct flow_shared *shared = flow_shared_at(p->family, p->line);

	own->tcp_state = TCP_DIR_SYN;
	own->tcp_end = tcp_segment_end(p);
	if (shared)
		shared->syn_end[p->line & 1] = p->tcp_seq + 1;
}

/*
 * A reset ends the session only where the receiver must believe it (RFC 5961 3.2: the sequence number is exactly the
 * next one expected; RFC 9293 3.5.2: while its SYN is unanswered, an acknowledgement of it). Others are forwarded and
 * change nothing.
 */
static __always_inline bool tcp_reset_is_valid(const struct packet *p, const struct flow_state *own,
					       const struct flow_state *peer)
{
	if (own->tcp_state == TCP_DIR_NONE)
		return (p->tcp_flags & TCP_ACK) && tcp_acknowledges_syn(p, peer);
	return p->tcp_seq == own->tcp_end;
}

static __always_inline void tcp_acknowledge(const struct packet *p, struct flow_state *peer)
{
	if (peer->tcp_state == TCP_DIR_SYN && tcp_acknowledges_syn(p, peer)) {
		peer->tcp_state = TCP_DIR_ESTABLISHED;
		peer->tcp_end = p->tcp_ack; /* what was not taken is sent again */
	} else if (peer->tcp_state == TCP_DIR_FIN && p->tcp_ack == peer->tcp_end) {
		peer->tcp_state = TCP_DIR_CLOSED;
	}
}

/* Replay may resume when both sides are established and nobody is leaving. */
static __always_inline void tcp_set_plain(struct flow_state *own, struct flow_state *peer)
{
	if (own->tcp_state == TCP_DIR_ESTABLISHED && peer->tcp_state == TCP_DIR_ESTABLISHED) {
		if (!(own->flags & FLOW_PLAIN) || !(peer->flags & FLOW_PLAIN)) {
			flow_set_flags(own, FLOW_PLAIN);
			flow_set_flags(peer, FLOW_PLAIN);
		}
	}
}

static __always_inline void tcp_follow(const struct packet *p, struct flow_state *own, struct flow_state *peer)
{
	__u32 end = tcp_segment_end(p);

	if (p->tcp_flags & TCP_RST) {
		if (!tcp_reset_is_valid(p, own, peer))
			return;
		own->tcp_state = TCP_DIR_CLOSED;
		peer->tcp_state = TCP_DIR_CLOSED;
		flow_clear_flags(own, FLOW_PLAIN);
		flow_clear_flags(peer, FLOW_PLAIN);
		return;
	}
	if (p->tcp_flags & TCP_SYN) {
		/* a SYN inside a live session is the end hosts' to challenge (RFC 5961 4.2) */
		if (own->tcp_state > TCP_DIR_SYN)
			return;
		tcp_note_syn(p, own);
	} else if ((__s32)(end - own->tcp_end) > 0) {
		own->tcp_end = end;
	}
	if (p->tcp_flags & TCP_ACK)
		tcp_acknowledge(p, peer);
	if ((p->tcp_flags & TCP_FIN) && own->tcp_state == TCP_DIR_ESTABLISHED && end == own->tcp_end) {
		own->tcp_state = TCP_DIR_FIN;
		flow_clear_flags(own, FLOW_PLAIN);
		flow_clear_flags(peer, FLOW_PLAIN);
	}
	tcp_set_plain(own, peer);
}

/* A SYN that finds its tuple's last session over opens a new one (RFC 9293 3.6.1). */
static __always_inline bool tcp_reopens(const struct packet *p, const struct flow_state *own,
					const struct flow_state *peer)
{
	return (p->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_SYN &&
	       own->tcp_state == TCP_DIR_CLOSED && peer->tcp_state == TCP_DIR_CLOSED;
}

#endif
