/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Traffic to an address of this host: host-inbound-traffic of the zone or the interface it arrived on. */
#ifndef SLUICE_STAGE_LOCAL_H
#define SLUICE_STAGE_LOCAL_H

#include "lib/host_inbound.h"
#include "nat/rules.h"

/* The IPv4 address behind a NAT64 prefix is this host's: nobody is there whom a client could mean (RFC 6146 3.8). */
static __always_inline bool nat64_means_this_host(const struct packet *p)
{
	if (!p->nat64 || p->wire != 6)
		return false;
	struct local_key key = {.routing_instance = p->key6.routing_instance, .family = 4};

	key.be_addr[0] = p->out6.be_daddr[3];
	return bpf_map_lookup_elem(&local_addresses, &key) != NULL;
}

/*
 * What an address is to this host where the packet's way is looked up. Its own addresses in other instances are not
 * reached from here: a host of a tenant may have the same.
 */
static __always_inline __u32 destination_kind(const struct packet *p)
{
	if (p->route_instance != p->key4.routing_instance)
		return 0;
	return local_kind(p, leaving4(p)->be_daddr, leaving6(p)->be_daddr);
}

/* A session to this host is judged by its first packet's direction; answers leave through the egress program. */
static __always_inline int stage_local(hook_ctx *ctx, struct packet *p)
{
	if (p->flags & (P_KNOWN | P_RELATED))
		return p->nexthop == NEXTHOP_LOCAL ? VERDICT_LOCAL : CONTINUE;
	/* nobody else speaks for this host (RFC 1812 5.3.8) */
	if (local_kind(p, p->key4.be_saddr, p->key6.be_saddr))
		return DROP(BAD_ADDRESS);
	if (nat64_means_this_host(p)) {
		nat_count_failure(p->nat_destination);
		return DROP(NAT64_ADDRESS);
	}
	/* whom a translated packet is really for */
	__u32 kind = destination_kind(p);

	if (LOCAL_KIND(kind) == LOCAL_BROADCAST)
		return group_to_host(p, kind);
	if (!(p->flags & P_REEVALUATE) && p->family == 6 && is_dhcp_answer(p))
		return VERDICT_LOCAL;
	if (LOCAL_KIND(kind) == LOCAL_ADDRESS) {
		if (!host_inbound_admits(p))
			return DROP(HOST_INBOUND);
		p->nexthop = NEXTHOP_LOCAL;
		p->to_zone = ZONE_HOST;
		p->flags |= P_LOCAL;
		return CONTINUE;
	}
	/* the unspecified source may only ask the host (RFC 4291 2.5.2, RFC 1122 3.2.1.3) */
	return is_link_local(p) || is_link_local4(p) || is_unspecified(p) ? DROP(BAD_ADDRESS) : CONTINUE;
}

#endif
