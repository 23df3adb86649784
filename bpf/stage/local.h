/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Traffic to an address of this host: host-inbound-traffic of the zone or the interface it arrived on. */
#ifndef SLUICE_STAGE_LOCAL_H
#define SLUICE_STAGE_LOCAL_H

#include "lib/nat.h"
#include "lib/services.h"

static __always_inline bool maybe_local(const struct packet *p, __u32 be_addr4, const __u32 *be_addr6)
{
	__u32 zero = 0, x = p->family == 4 ? be_addr4 : be_addr6[0] ^ be_addr6[1] ^ be_addr6[2] ^ be_addr6[3];
	const struct local_filter *filter = bpf_map_lookup_elem(&local_filter, &zero);
	__u32 bit = (x * 0x9e3779b1u) >> LOCAL_FILTER_SHIFT;

	return !filter || filter->bits[bit >> 5] >> (bit & 31) & 1;
}

static __always_inline __u32 local_kind(const struct packet *p, const __u32 be_addr4, const __u32 *be_addr6)
{
	if (!maybe_local(p, be_addr4, be_addr6))
		return 0;
	struct local_key key = {.routing_instance = p->key4.routing_instance, .family = p->family};

	if (p->family == 4)
		key.be_addr[0] = be_addr4;
	else
		__builtin_memcpy(key.be_addr, be_addr6, 16);
	__u32 *kind = bpf_map_lookup_elem(&local_addresses, &key);

	return kind ? *kind : 0;
}

/* The IPv4 address behind a NAT64 prefix is this host's: nobody is there whom a client could mean (RFC 6146 3.8). */
static __always_inline bool nat64_means_this_host(const struct packet *p)
{
	if (!p->nat64 || p->wire != 6)
		return false;
	struct local_key key = {.routing_instance = p->key6.routing_instance, .family = 4};

	key.be_addr[0] = p->out6.be_daddr[3];
	return bpf_map_lookup_elem(&local_addresses, &key) != NULL;
}

/* fe80::/10 never leaves its link (RFC 4291 2.5.6). */
static __always_inline bool is_link_local(const struct packet *p)
{
	if (p->family != 6)
		return false;
	return (p->key6.be_daddr[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000) ||
	       (p->key6.be_saddr[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

/*
 * A DHCP answer goes to an address the host does not have yet (RFC 2131 4.1), a DHCPv6 one to the link-local address
 * that asked a group (RFC 8415 18.2, 18.4), so no session knows them. Not so those of transit sessions.
 */
static __always_inline bool is_dhcp_answer(const struct packet *p)
{
	if (p->family == 6)
		return p->proto == IPPROTO_UDP && p->key6.be_sport == bpf_htons(547) &&
		       p->key6.be_dport == bpf_htons(546) && is_link_local(p);
	return p->family == 4 && p->proto == IPPROTO_UDP && p->key4.be_sport == bpf_htons(67) &&
	       p->key4.be_dport == bpf_htons(68);
}

static __always_inline bool host_inbound_admits(const struct packet *p)
{
	struct unit *unit = unit_at(p->unit_slot);

	if (!unit)
		return false;
	if (unit->flags & UNIT_HOST_ANY)
		return true;
	struct service service = {
		.sport = bpf_ntohs(p->key6.be_sport),
		.dport = bpf_ntohs(leaving6(p)->be_dport),
		.proto = p->proto,
		.icmp_type = p->icmp_type,
		.icmp_code = p->icmp_code,
	};

	return services_match(&service, unit->host_first, unit->host_count) >= 0;
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
	__u32 kind = local_kind(p, leaving4(p)->be_daddr, leaving6(p)->be_daddr);

	if (kind == LOCAL_BROADCAST || (!(p->flags & P_REJUDGE) && is_dhcp_answer(p)))
		return VERDICT_LOCAL;
	if (kind == LOCAL_ADDRESS) {
		if (!host_inbound_admits(p))
			return DROP(HOST_INBOUND);
		p->nexthop = NEXTHOP_LOCAL;
		p->to_zone = ZONE_HOST;
		p->flags |= P_LOCAL;
		return CONTINUE;
	}
	/* the unspecified source may only ask the host (RFC 4291 2.5.2, RFC 1122 3.2.1.3) */
	bool unspecified =
		p->family == 4
			? !p->key4.be_saddr
			: !(p->key6.be_saddr[0] | p->key6.be_saddr[1] | p->key6.be_saddr[2] | p->key6.be_saddr[3]);

	return is_link_local(p) || unspecified ? DROP(BAD_ADDRESS) : CONTINUE;
}

#endif
