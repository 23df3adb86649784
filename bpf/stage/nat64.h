/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets of sessions between two families: headers without a translation end here (RFC 7915 4.1, 5.1). */
#ifndef SLUICE_STAGE_NAT64_H
#define SLUICE_STAGE_NAT64_H

#include "nat64/size.h"

#define OPTION_LOOSE_SOURCE_ROUTE 131
#define OPTION_STRICT_SOURCE_ROUTE 137

/* RFC 7915 4.1: options are left out, but a source route that is not used up cannot be. */
__noinline int nat64_options(hook_ctx *ctx, struct packet *p)
{
	__u32 i;

	if (!p)
		return CONTINUE;
	p->option_at = sizeof(struct iphdr);
	bpf_for (i, 0, 40) {
		__u32 at = p->option_at & 0x3f;
		__u8 *option = hook_data(ctx) + (p->l3 & 0x1f) + at;

		if (at >= p->ip_header_len || (void *)(option + 3) > hook_end(ctx) || !option[0])
			return CONTINUE;
		if (option[0] == 1) {
			p->option_at = at + 1;
			continue;
		}
		if ((option[0] == OPTION_LOOSE_SOURCE_ROUTE || option[0] == OPTION_STRICT_SOURCE_ROUTE) &&
		    option[2] <= option[1]) {
			p->reply = REPLY_SOURCE_ROUTE;
			return DROP_AND_REPLY(NAT64_SOURCE_ROUTE);
		}
		if (option[1] < 2)
			return CONTINUE;
		p->option_at = at + option[1];
	}
	return CONTINUE;
}

/* RFC 7915 5.1: extension headers are left out but fragment headers; not what routes further, nor what authenticates.
 */
__noinline int nat64_extensions(hook_ctx *ctx, struct packet *p)
{
	__u32 i, next = IPPROTO_MAX;

	if (!p)
		return CONTINUE;
	struct ipv6hdr *ip = hook_data(ctx) + (p->l3 & 0x1f);

	if ((void *)(ip + 1) > hook_end(ctx))
		return DROP(TRUNCATED);
	next = ip->nexthdr;
	p->option_at = sizeof(*ip);
	bpf_for (i, 0, EXTENSION_HEADERS_MAX) {
		__u32 at = p->option_at & HEADERS_LINEAR;
		__u8 *header = hook_data(ctx) + (p->l3 & 0x1f) + at;

		if (next == IPPROTO_AH)
			return DROP(NAT64_PROTOCOL);
		if (!is_extension(next) || at >= p->ip_header_len || (void *)(header + 8) > hook_end(ctx))
			return CONTINUE;
		/* RFC 7915 5.1.1: the other fragments' offsets would count what is left out of this one */
		if (next == IPPROTO_FRAGMENT && is_extension(header[0]))
			return DROP(NAT64_EXTENSION);
		if (next == IPPROTO_ROUTING && header[3]) {
			p->reply = REPLY_SOURCE_ROUTE;
			p->reply_mtu = at + 3;
			return DROP_AND_REPLY(NAT64_SOURCE_ROUTE);
		}
		p->option_at = at + (next == IPPROTO_FRAGMENT ? 8 : (header[1] + 1) * 8);
		next = header[0];
	}
	return CONTINUE;
}

static __noinline int stage_nat64(hook_ctx *ctx, struct packet *p)
{
	if (!p)
		return DROP(NAT64_PROTOCOL);
	if (!p->nat64)
		return CONTINUE;
	/* RFC 6146 3.4: TCP, UDP and ICMP */
	if (p->proto != IPPROTO_TCP && p->proto != IPPROTO_UDP &&
	    p->proto != (p->wire == 4 ? IPPROTO_ICMP : IPPROTO_ICMPV6))
		return DROP(NAT64_PROTOCOL);
	/* ICMPv6 sums the length of the whole message, which no fragment knows */
	if ((p->flags & P_FRAGMENT) && (p->proto == IPPROTO_ICMP || p->proto == IPPROTO_ICMPV6))
		return DROP(NAT64_ICMP_FRAGMENT);
	if (!(p->flags & P_OPTIONS))
		return CONTINUE;
	__u32 quoted = p->option_at; /* an ICMP error's walk ended there */
	int verdict = p->wire == 4 ? nat64_options(ctx, p) : nat64_extensions(ctx, p);

	p->option_at = quoted;
	return verdict;
}

#endif
