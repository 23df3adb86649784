/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Screens of packets that open a session: does the source belong where it comes from, and is it looking around? */
#ifndef SLUICE_STAGE_SCREEN_FIRST_H
#define SLUICE_STAGE_SCREEN_FIRST_H

#include "lib/rate.h"
#include "stage/local.h"

/*
 * Strict reverse path (RFC 3704 2.2): the kernel's route to the source must leave through the unit, or its zone. A
 * source without a route is spoofed, and so is an address of this host.
 */
static __noinline int is_spoofed(hook_ctx *ctx, struct packet *p, __u32 by_zone)
{
	struct bpf_fib_lookup fib ALIGNED_KEY = {};
	__u32 slot;

	if (!p)
		return 0;
	struct unit *unit = unit_at(p->unit_slot);

	if (!unit)
		return 0;
	__u32 host_ifindex = unit->host_ifindex, zone = unit->zone;

	fib.ifindex = host_ifindex;
	fib.l4_protocol = p->proto;
	if (p->family == 4) {
		fib.family = AF_INET;
		fib.ipv4_src = p->key4.be_daddr;
		fib.ipv4_dst = p->key4.be_saddr;
	} else {
		fib.family = AF_INET6;
		__builtin_memcpy(fib.ipv6_src, p->key6.be_daddr, 16);
		__builtin_memcpy(fib.ipv6_dst, p->key6.be_saddr, 16);
	}
	long code = bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);

	if (code != BPF_FIB_LKUP_RET_SUCCESS && code != BPF_FIB_LKUP_RET_NO_NEIGH)
		return 1;
	if (fib.ifindex == host_ifindex)
		return 0;
	unit = by_zone ? unit_find(fib.ifindex, 0, &slot) : NULL;
	return !unit || unit->zone != zone;
}

/* Sources of the link alone, and of hosts that have no address yet: nothing routes to them (RFC 4291 2.5.2, 2.5.6). */
static __always_inline bool has_route_back(const struct packet *p)
{
	if (p->family == 4)
		return p->key4.be_saddr != 0;
	return !is_link_local(p) &&
	       (p->key6.be_saddr[0] | p->key6.be_saddr[1] | p->key6.be_saddr[2] | p->key6.be_saddr[3]);
}

static __always_inline bool is_sweeping(const struct packet *p, __u32 kind, __u32 interval_us)
{
	return interval_us &&
	       scan_found(p, SCREEN_OF_SOURCE, kind, screen_hash(p, SCREEN_OF_DESTINATION, 0), interval_us);
}

static __always_inline bool scans(const struct packet *p, __u32 kind, __u32 interval_us)
{
	return interval_us && scan_found(p, SCREEN_OF_BOTH, kind, p->key6.be_dport, interval_us);
}

static __noinline int screen_sweeps(struct packet *p)
{
	struct screen_limits *limits = p ? limits_of(p) : NULL;

	if (!limits)
		return CONTINUE;
	__u32 alarm_only = limits->flags & LIMIT_ALARM_ONLY;
	int verdict = CONTINUE;

	if (p->proto == IPPROTO_TCP) {
		if (is_sweeping(p, SCAN_TCP_HOSTS, limits->tcp_sweep_us))
			verdict = limit_passed(p, REASON_TCP_SWEEP, alarm_only);
		if (verdict == CONTINUE && scans(p, SCAN_TCP_PORTS, limits->port_scan_us))
			verdict = limit_passed(p, REASON_PORT_SCAN, alarm_only);
	} else if (p->proto == IPPROTO_UDP) {
		if (is_sweeping(p, SCAN_UDP_HOSTS, limits->udp_sweep_us))
			verdict = limit_passed(p, REASON_UDP_SWEEP, alarm_only);
		if (verdict == CONTINUE && scans(p, SCAN_UDP_PORTS, limits->udp_port_scan_us))
			verdict = limit_passed(p, REASON_UDP_PORT_SCAN, alarm_only);
	} else if (p->proto == IPPROTO_ICMP || p->proto == IPPROTO_ICMPV6) {
		if (is_sweeping(p, SCAN_ICMP_HOSTS, limits->ip_sweep_us))
			verdict = limit_passed(p, REASON_IP_SWEEP, alarm_only);
	}
	return verdict;
}

static __noinline int stage_screen_first(hook_ctx *ctx, struct packet *p)
{
	struct screen_limits *limits = p ? limits_of(p) : NULL;

	if (!p)
		return DROP(TRUNCATED);
	if (!limits || !(p->flags & P_NEW))
		return CONTINUE;
	__u32 flags = limits->flags;

	if ((flags & (LIMIT_SPOOFING | LIMIT_SPOOFING_ZONE)) && has_route_back(p) &&
	    is_spoofed(ctx, p, flags & LIMIT_SPOOFING_ZONE)) {
		int verdict = limit_passed(p, REASON_SPOOFING, flags & LIMIT_ALARM_ONLY);

		if (verdict != CONTINUE)
			return verdict;
	}
	return screen_sweeps(p);
}

#endif
