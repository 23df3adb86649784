/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Screens that count every packet of a second: floods of ICMP, UDP and SYNs, and what answers the last. */
#ifndef SLUICE_STAGE_SCREEN_RATE_H
#define SLUICE_STAGE_SCREEN_RATE_H

#include "lib/syn_cookie.h"
#include "stage/session.h"

static __always_inline bool in_prefix(const __u32 *be_addr, const __u32 *be_net, const __u32 *be_mask, bool six)
{
	__u32 other = (be_addr[0] ^ be_net[0]) & be_mask[0];

	if (six)
		for (int i = 1; i < 4; i++)
			other |= (be_addr[i] ^ be_net[i]) & be_mask[i];
	return !other;
}

/* Is the SYN of a source and for a destination that know no threshold? Asked only of those that pass one. */
__noinline int white_listed(const struct packet *p)
{
	struct screen_limits *limits = p ? limits_of(p) : NULL;
	__u32 i;

	if (!limits)
		return 0;
	__u32 first = limits->white_first, count = limits->white_count;

	bpf_for (i, 0, MAX_WHITE_TERMS_PER_ZONE) {
		__u32 at = first + i;
		const struct white_term *term = i < count ? white_terms_at(at) : NULL;
		const struct white_family *of = term ? table_at(TABLE_WHITE_TERMS, sizeof(*term), at, 1) : NULL;

		if (!of)
			break;
		bool six = p->family == 6;
		const __u32 *from = six ? p->key6.be_saddr : &p->key4.be_saddr;
		const __u32 *to = six ? p->key6.be_daddr : &p->key4.be_daddr;

		if (of->family == p->family && in_prefix(from, term->be_saddr, term->be_smask, six) &&
		    in_prefix(to, term->be_daddr, term->be_dmask, six))
			return 1;
	}
	return 0;
}

/* Only what goes on counts for the destination: a flood that cookies hold back does not use up its allowance. */
static __noinline int screen_syn(struct packet *p)
{
	struct screen_limits *limits = p ? limits_of(p) : NULL;

	if (!limits)
		return CONTINUE;
	__u32 alarm_only = limits->flags & LIMIT_ALARM_ONLY;

	if (rate_count(p, SCREEN_OF_SOURCE, RATE_SYN_SOURCE) > limits->syn_source && !white_listed(p)) {
		if (limit_passed(p, REASON_SYN_FLOOD_SOURCE, alarm_only) != CONTINUE)
			return DROP(SYN_FLOOD_SOURCE);
	}
	__u32 syns = rate_count(p, SCREEN_OF_DESTINATION, rate_about(RATE_SYN_PORT, p->key6.be_dport));

	if (syns > limits->syn_alarm)
		screen_count(p, REASON_SYN_FLOOD_ALARM, 1);
	if (syns > limits->syn_attack && !source_known(p) && !white_listed(p)) {
		if (!alarm_only)
			return cookie_send(p, limits);
		screen_count(p, REASON_SYN_FLOOD, 1);
	}
	if (rate_count(p, SCREEN_OF_DESTINATION, RATE_SYN_DESTINATION) > limits->syn_destination && !white_listed(p))
		return limit_passed(p, REASON_SYN_FLOOD_DESTINATION, alarm_only);
	return CONTINUE;
}

/* An acknowledgement of a cookie. That of a session can look like one by chance, so the session is asked for first. */
static __noinline int screen_ack(struct packet *p)
{
	struct screen_limits *limits = p ? limits_of(p) : NULL;

	if (!limits || !cookies_about(p, limits) || !cookie_returned(p, limits) || find_session(p))
		return CONTINUE;
	source_learn(p);
	screen_count(p, REASON_SYN_COOKIE, 0);
	p->cookie = 1;
	p->reply = REPLY_RESET;
	return DROP_AND_REPLY(SYN_COOKIE);
}

/* Neighbour discovery keeps the link alive and cannot come from beyond it (RFC 4861 7.1). */
static __always_inline bool is_neighbour_discovery(const struct packet *p)
{
	return p->proto == IPPROTO_ICMPV6 && p->icmp_type >= ICMP6_ND_FIRST && p->icmp_type <= ICMP6_ND_LAST &&
	       p->ttl == 255;
}

static __always_inline int screen_tcp_rate(struct packet *p, const struct screen_limits *limits)
{
	if (!limits->syn_attack || (p->flags & (P_LATER | P_TINY | P_MULTICAST)))
		return CONTINUE;
	__u8 flags = p->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN);

	if (flags == TCP_SYN)
		return screen_syn(p);
	return flags == TCP_ACK || flags == (TCP_ACK | TCP_FIN) ? screen_ack(p) : CONTINUE;
}

static __always_inline int stage_screen_rate(hook_ctx *ctx, struct packet *p)
{
	struct screen_limits *limits = limits_of(p);

	/* the device's stages are those that one of its zones asks for */
	if (!limits)
		return CONTINUE;
	__u32 alarm_only = limits->flags & LIMIT_ALARM_ONLY;

	if (p->proto == IPPROTO_TCP)
		return screen_tcp_rate(p, limits);
	if (p->proto == IPPROTO_UDP) {
		/* a later piece belongs to whom its first counts for, which may not be known yet */
		if (limits->udp_flood && !(p->flags & P_LATER) &&
		    rate_count(p, SCREEN_OF_DESTINATION, rate_about(RATE_UDP, p->key6.be_dport)) > limits->udp_flood)
			return limit_passed(p, REASON_UDP_FLOOD, alarm_only);
		return CONTINUE;
	}
	if (!limits->icmp_flood || (p->proto != IPPROTO_ICMP && p->proto != IPPROTO_ICMPV6) ||
	    is_neighbour_discovery(p))
		return CONTINUE;
	if (rate_count(p, SCREEN_OF_DESTINATION, RATE_ICMP) > limits->icmp_flood)
		return limit_passed(p, REASON_ICMP_FLOOD, alarm_only);
	return CONTINUE;
}

#endif
