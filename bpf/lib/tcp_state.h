/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* TCP seen from the middle: two directions, each SYN -> ESTABLISHED -> FIN -> CLOSED (RFC 9293 3.3.2, 3.5, 3.6). */
#ifndef SLUICE_LIB_TCP_STATE_H
#define SLUICE_LIB_TCP_STATE_H

#include "lib/tcp_window.h"

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

/* What a direction had said before a reset. */
static __always_inline __u8 tcp_stage(const struct flow_state *state)
{
	return state->tcp_state & ~TCP_DIR_RESET;
}

/*
 * A SYN inside a live session may be forged. It passes, its number is remembered, and nothing else: a receiver that
 * knows the connection challenges it (RFC 5961 4.2). Only one that does not acknowledges exactly this SYN, by a SYN of
 * its own or by a reset with number 0 (RFC 9293 3.10.7.1, 3.10.7.2).
 */
static __always_inline void tcp_note_call(const struct packet *p)
{
	struct flow_shared *shared = flow_shared_at(p->family, p->line);

	if (shared && (p->tcp_flags & (TCP_SYN | TCP_ACK | TCP_FIN)) == TCP_SYN)
		shared->syn_end[p->line & 1] = p->tcp_seq + 1;
}

static __always_inline bool tcp_answers_call(const struct packet *p, const struct flow_state *peer)
{
	struct flow_shared *shared = flow_shared_at(p->family, p->line);

	return shared && tcp_stage(peer) > TCP_DIR_SYN && p->tcp_ack == shared->syn_end[(p->line & 1) ^ 1];
}

static __always_inline bool tcp_refuses_call(const struct packet *p, const struct flow_state *peer)
{
	return (p->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == (TCP_ACK | TCP_RST) && !p->tcp_seq &&
	       tcp_answers_call(p, peer);
}

/* With another number than in the handshake of the session, of which this may be a copy that comes late. */
static __always_inline bool tcp_takes_call(const struct packet *p, const struct flow_state *own,
					   const struct flow_state *peer)
{
	struct flow_shared *shared = flow_shared_at(p->family, p->line);

	return (p->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == (TCP_SYN | TCP_ACK) &&
	       tcp_stage(own) > TCP_DIR_SYN && tcp_answers_call(p, peer) && shared &&
	       p->tcp_seq + 1 != shared->syn_end[p->line & 1];
}

/*
 * The window scale option of a SYN (RFC 7323 2.2): TCP_SCALE_OFFERED and the shift, or 0. A shift above 14 counts as 14
 * (2.3).
 */
__noinline int tcp_scale_of(hook_ctx *ctx, const struct packet *p)
{
	if (!p)
		return 0;
	void *end = hook_end(ctx);
	__u32 l4 = p->l4 & 0x3fff, at = sizeof(struct tcphdr), i;
	__u8 *tcp = hook_data(ctx) + l4;

	if ((void *)(tcp + sizeof(struct tcphdr)) > end)
		return 0;
	__u32 header = (tcp[12] >> 4) * 4;

	bpf_for (i, 0, 40) {
		at &= 0x3f;
		__u8 *option = hook_data(ctx) + l4 + at;

		if (at + 1 > header || (void *)(option + 3) > hook_end(ctx) || option[0] == 0)
			return 0;
		if (option[0] == 1) {
			at++;
			continue;
		}
		if (option[0] == 3 && option[1] == 3 && at + 3 <= header)
			return TCP_SCALE_OFFERED | (option[2] > TCP_SCALE_MAX ? TCP_SCALE_MAX : option[2]);
		if (option[1] < 2)
			return 0;
		at += option[1];
		if (at >= 60)
			return 0;
	}
	return 0;
}

static __always_inline void tcp_set_scale(struct flow_state *state, __u8 scale)
{
	state->marks = (state->marks & ~TCP_SCALE_BITS) | scale;
}

/* The window of a SYN itself is never scaled (RFC 7323 2.2). */
static __always_inline void tcp_note_window(struct flow_state *own, const struct packet *p)
{
	tcp_set_scale(own, p->tcp_scale);
	own->window = (p->tcp_window >> (p->tcp_scale & TCP_SCALE_SHIFT)) + (p->tcp_scale & TCP_SCALE_SHIFT ? 1 : 0);
}

static __always_inline void tcp_unscale(struct flow_state *state)
{
	__u32 bytes = (__u32)state->window << (state->marks & TCP_SCALE_SHIFT);

	state->window = bytes > 0xffff ? 0xffff : bytes;
	tcp_set_scale(state, 0);
}

/* Windows are scaled when both SYNs say so. */
static __always_inline void tcp_settle_scale(struct flow_state *own, struct flow_state *peer)
{
	if (peer->tcp_state == TCP_DIR_NONE || (own->marks & peer->marks & TCP_SCALE_OFFERED))
		return;
	tcp_unscale(own);
	tcp_unscale(peer);
}

/*
 * May the receiver see this segment at all? A SYN is its to challenge (RFC 5961 4.2), a reset is judged by its sequence
 * number alone (RFC 9293 3.10.7.4), and before both SYNs there are no windows.
 */
static __always_inline bool tcp_packet_fits(const struct packet *p, const struct flow_state *own,
					    const struct flow_state *peer)
{
	if ((p->tcp_flags & TCP_SYN) || tcp_stage(own) == TCP_DIR_NONE || tcp_stage(peer) == TCP_DIR_NONE ||
	    tcp_refuses_call(p, peer))
		return true;
	return tcp_segment_fits(tcp_segment_end(p), p->tcp_ack, (p->tcp_flags & (TCP_ACK | TCP_RST)) == TCP_ACK, own,
				peer);
}

static __always_inline void tcp_note_syn(const struct packet *p, struct flow_state *own)
{
	struct flow_shared *shared = flow_shared_at(p->family, p->line);

	own->tcp_state = TCP_DIR_SYN;
	own->tcp_end = tcp_segment_end(p);
	tcp_note_window(own, p);
	if (shared)
		shared->syn_end[p->line & 1] = p->tcp_seq + 1;
}

/*
 * A reset counts only where the receiver must believe it (RFC 5961 3.2: the sequence number is exactly the
 * next one expected; RFC 9293 3.5.2: while its SYN is unanswered, an acknowledgement of it). Others are forwarded and
 * change nothing.
 */
static __always_inline bool tcp_reset_is_valid(const struct packet *p, const struct flow_state *own,
					       const struct flow_state *peer)
{
	if (tcp_stage(own) == TCP_DIR_NONE)
		return (p->tcp_flags & TCP_ACK) && tcp_acknowledges_syn(p, peer);
	return p->tcp_seq == own->tcp_end || tcp_refuses_call(p, peer);
}

static __always_inline void tcp_mark_reset(struct flow_state *own, struct flow_state *peer)
{
	own->tcp_state |= TCP_DIR_RESET;
	peer->tcp_state |= TCP_DIR_RESET;
	flow_clear_flags(own, FLOW_PLAIN);
	flow_clear_flags(peer, FLOW_PLAIN);
}

/*
 * A new connection on the ports of a live session is answered: the session counts as reset, and the answer is dropped,
 * so that the caller sends its SYN again. That one opens a session of its own, and policy judges it.
 */
static __always_inline bool tcp_reopening(const struct packet *p, struct flow_state *own, struct flow_state *peer)
{
	if ((generation.flags & GENERATION_NO_SEQUENCE_CHECK) || !tcp_takes_call(p, own, peer))
		return false;
	tcp_mark_reset(own, peer);
	return true;
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
static __always_inline void tcp_set_plain(const struct packet *p, struct flow_state *own, struct flow_state *peer)
{
	if (own->tcp_state == TCP_DIR_ESTABLISHED && peer->tcp_state == TCP_DIR_ESTABLISHED) {
		if (!(own->flags & FLOW_PLAIN) || !(peer->flags & FLOW_PLAIN)) {
			flow_answered(p->family, p->line & 1 ? own : peer);
			flow_set_flags(own, FLOW_PLAIN);
			flow_set_flags(peer, FLOW_PLAIN);
		}
	}
}

/*
 * Whoever goes on was not reset: its receiver may never have got the reset (its TTL was too small), or not taken it
 * (its checksum was wrong). A SYN proves nothing where it is not awaited.
 */
static __always_inline void tcp_revive(const struct packet *p, struct flow_state *own, struct flow_state *peer)
{
	if ((p->tcp_flags & TCP_SYN) && tcp_stage(own) > TCP_DIR_SYN)
		return;
	if (!(own->tcp_state & peer->tcp_state & TCP_DIR_RESET))
		return;
	own->tcp_state = tcp_stage(own);
	peer->tcp_state = tcp_stage(peer);
}

static __always_inline void tcp_follow(hook_ctx *ctx, struct packet *p, struct flow_state *own, struct flow_state *peer)
{
	__u32 end = tcp_segment_end(p);

	if (p->tcp_flags & TCP_RST) {
		if (tcp_reset_is_valid(p, own, peer))
			tcp_mark_reset(own, peer);
		return;
	}
	tcp_revive(p, own, peer);
	if (p->tcp_flags & TCP_SYN) {
		if (own->tcp_state > TCP_DIR_SYN) {
			tcp_note_call(p);
			return;
		}
		p->tcp_scale = tcp_scale_of(ctx, p);
		tcp_note_syn(p, own);
		tcp_settle_scale(own, peer);
		if ((p->tcp_flags & TCP_ACK) && tcp_answers_call(p, peer))
			peer->tcp_end = p->tcp_ack; /* its handshake goes on with the later SYN */
	} else if ((__s32)(end - own->tcp_end) > 0) {
		own->tcp_end = end;
	}
	if (!(p->tcp_flags & TCP_SYN))
		tcp_grow_window(own, p->tcp_window);
	if (p->tcp_flags & TCP_ACK)
		tcp_acknowledge(p, peer);
	if ((p->tcp_flags & TCP_FIN) && own->tcp_state == TCP_DIR_ESTABLISHED && end == own->tcp_end) {
		own->tcp_state = TCP_DIR_FIN;
		flow_clear_flags(own, FLOW_PLAIN);
		flow_clear_flags(peer, FLOW_PLAIN);
	}
	tcp_set_plain(p, own, peer);
}

/* A SYN that finds its tuple's last session over opens a new one (RFC 9293 3.6.1). */
static __always_inline bool tcp_reopens(const struct packet *p, const struct flow_state *own,
					const struct flow_state *peer)
{
	return (p->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_SYN &&
	       own->tcp_state >= TCP_DIR_CLOSED && peer->tcp_state >= TCP_DIR_CLOSED;
}

#endif
