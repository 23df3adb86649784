/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * TCP windows seen from the middle. Of each direction: `tcp_end`, the end of what it has sent, and the largest window
 * it has advertised. A receiver accepts what lies in its window (RFC 9293 3.10.7.4), and that window begins at or
 * before what it was sent last; so nothing it accepts ends more than a window after `tcp_end` of the sender, and what
 * it still answers to ends less than a window before. An acknowledgement is of data sent, and not older than a window
 * (RFC 5961 5.2).
 */
#ifndef SLUICE_LIB_TCP_WINDOW_H
#define SLUICE_LIB_TCP_WINDOW_H

#include "flow_table.h"

/* Without scaling a window has less than 65,536 bytes; a little more lets late acknowledgements pass. */
#define TCP_OLDEST_ACK 66000

static __always_inline __u32 tcp_window_of(const struct flow_state *state)
{
	__u32 bytes = (__u32)state->window << (state->marks & TCP_SCALE_SHIFT);

	return bytes ? bytes : 1; /* a closed window is probed with one byte (RFC 9293 3.8.6.1) */
}

/* `end` is the sequence number after the segment; `acks` whether `ack` means something. Both SYNs were seen. */
static __always_inline bool tcp_segment_fits(__u32 end, __u32 ack, bool acks, const struct flow_state *own,
					     const struct flow_state *peer)
{
	__u32 window = tcp_window_of(peer), mine = tcp_window_of(own);
	__s32 ahead = end - own->tcp_end, unacked = peer->tcp_end - ack;

	if (mine < TCP_OLDEST_ACK)
		mine = TCP_OLDEST_ACK;
	if (ahead > (__s32)window || ahead < -(__s32)window)
		return false;
	return !acks || (unacked >= 0 && unacked <= (__s32)mine);
}

/* The windows of this direction grow as it says so. */
static __always_inline void tcp_grow_window(struct flow_state *own, __u16 window)
{
	if (window > own->window)
		own->window = window;
}

#endif
