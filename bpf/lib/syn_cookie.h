/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SYN cookies (RFC 4987 3.6) that prove an address and nothing else: the sequence number of our SYN-ACK is a keyed hash
 * of the connection and the time, so nothing is kept for a SYN. Whoever acknowledges it receives what is sent to its
 * address. The connection itself is then reset: it was made with us, and its server does not know of it.
 */
#ifndef SLUICE_LIB_SYN_COOKIE_H
#define SLUICE_LIB_SYN_COOKIE_H

#include "lib/rate.h"

static __always_inline __u64 rotate_left(__u64 value, __u32 bits)
{
	return value << bits | value >> (64 - bits);
}

static __always_inline void sip_round(__u64 v[4])
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = rotate_left(v[1], 13) ^ v[0];
	v[3] = rotate_left(v[3], 16) ^ v[2];
	v[0] = rotate_left(v[0], 32);
	v[2] += v[1];
	v[0] += v[3];
	v[1] = rotate_left(v[1], 17) ^ v[2];
	v[3] = rotate_left(v[3], 21) ^ v[0];
	v[2] = rotate_left(v[2], 32);
}

static __always_inline void sip_word(__u64 v[4], __u64 word)
{
	v[3] ^= word;
	sip_round(v);
	sip_round(v);
	v[0] ^= word;
}

/* SipHash-2-4 (Aumasson and Bernstein, 2012) of the packet's tuple and a number: five or two words and the length. */
__noinline __u32 syn_cookie(const struct packet *p, __u32 period)
{
	if (!p)
		return 0;
	__u64 v[4] = {
		generation.cookie_key[0] ^ 0x736f6d6570736575ull,
		generation.cookie_key[1] ^ 0x646f72616e646f6dull,
		generation.cookie_key[0] ^ 0x6c7967656e657261ull,
		generation.cookie_key[1] ^ 0x7465646279746573ull,
	};
	const __u64 *words = p->family == 4 ? (const __u64 *)&p->key4 : (const __u64 *)&p->key6;
	__u32 be_ports = p->key6.be_sport | (__u32)p->key6.be_dport << 16;

	sip_word(v, words[0]);
	if (p->family == 6) {
		sip_word(v, words[1]);
		sip_word(v, words[2]);
		sip_word(v, words[3]);
	}
	sip_word(v, be_ports | (__u64)period << 32);
	sip_word(v, p->family == 4 ? 16ull << 56 : 40ull << 56);
	v[2] ^= 0xff;
	for (int i = 0; i < 4; i++)
		sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static __always_inline __u32 cookie_period(const struct packet *p, const struct screen_limits *limits)
{
	__u32 jiffies = limits->syn_timeout_s * config.hz;

	return jiffies ? p->now / jiffies : 0;
}

/* Answer this SYN with a cookie. */
static __always_inline int cookie_send(struct packet *p, const struct screen_limits *limits)
{
	__u32 zone = p->from_zone;
	struct cookie_times *times = bpf_map_lookup_elem(&cookie_times, &zone);

	/* written rarely: all CPUs read it */
	if (times && (!times->sent || !is_recent(times->sent, p->now, config.hz)))
		times->sent = p->now ? p->now : ~0u;
	screen_count(p, REASON_SYN_FLOOD, 0);
	/* zero would mean none; the next number is as good */
	p->cookie = syn_cookie(p, cookie_period(p, limits));
	p->cookie += !p->cookie;
	p->reply = REPLY_COOKIE;
	return DROP_AND_REPLY(SYN_FLOOD);
}

/* Cookies are about in this zone: one was sent not longer ago than it may take to come back. */
static __always_inline bool cookies_about(const struct packet *p, const struct screen_limits *limits)
{
	__u32 zone = p->from_zone;
	struct cookie_times *times = bpf_map_lookup_elem(&cookie_times, &zone);

	return times && times->sent && is_recent(times->sent, p->now, (2 * limits->syn_timeout_s + 1) * config.hz);
}

static __always_inline bool cookie_returned(const struct packet *p, const struct screen_limits *limits)
{
	__u32 period = cookie_period(p, limits), cookie = p->tcp_ack - 1;
	__u32 now = syn_cookie(p, period), before = syn_cookie(p, period - 1);

	return cookie == now + !now || cookie == before + !before;
}

#endif
