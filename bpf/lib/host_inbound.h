/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What reaches this host without a session: host-inbound-traffic of the unit it arrived on decides about groups and
 * broadcast as about unicast, but for what every host must hear to have addresses and neighbours.
 */
#ifndef SLUICE_LIB_HOST_INBOUND_H
#define SLUICE_LIB_HOST_INBOUND_H

#include "lib/services.h"

#define ICMP6_MLD_FIRST 130
#define ICMP6_MLD_LAST 132
#define ICMP6_MLD2_REPORT 143

static __always_inline bool maybe_local(const struct packet *p, __u32 be_addr4, const __u32 *be_addr6)
{
	__u32 zero = 0, x = p->family == 4 ? be_addr4 : be_addr6[0] ^ be_addr6[1] ^ be_addr6[2] ^ be_addr6[3];
	const struct local_filter *filter = bpf_map_lookup_elem(&local_filter, &zero);
	__u32 bit = (x * 0x9e3779b1u) >> LOCAL_FILTER_SHIFT;

	return !filter || filter->bits[bit >> 5] >> (bit & 31) & 1;
}

/* Value of `local_addresses`, 0: not this host's. */
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

static __always_inline bool is_unspecified(const struct packet *p)
{
	if (p->family == 4)
		return !p->key4.be_saddr;
	return !(p->key6.be_saddr[0] | p->key6.be_saddr[1] | p->key6.be_saddr[2] | p->key6.be_saddr[3]);
}

/* fe80::/10 never leaves its link (RFC 4291 2.5.6). */
static __always_inline bool is_link_local(const struct packet *p)
{
	if (p->family != 6)
		return false;
	return (p->key6.be_daddr[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000) ||
	       (p->key6.be_saddr[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

/* 169.254.0.0/16 neither (RFC 3927 2.7). */
static __always_inline bool is_link_local4(const struct packet *p)
{
	if (p->family != 4)
		return false;
	__u32 mask = bpf_htonl(0xffff0000), link = bpf_htonl(0xa9fe0000);

	return (p->key4.be_saddr & mask) == link || (leaving4(p)->be_daddr & mask) == link;
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

/*
 * DHCP answers to this host as a client (RFC 2131 4.1, RFC 8415 7.2), IGMP and MLD, without which switches send it
 * nothing of its groups, and neighbour discovery.
 */
static __always_inline bool is_heard_always(const struct packet *p)
{
	__u16 be_sport = p->key6.be_sport, be_dport = p->key6.be_dport;

	if (p->flags & P_FRAGMENT)
		return false;
	if (p->proto == IPPROTO_UDP)
		return p->family == 4 ? be_sport == bpf_htons(67) && be_dport == bpf_htons(68)
				      : be_sport == bpf_htons(547) && be_dport == bpf_htons(546);
	if (p->family == 4)
		return p->proto == IPPROTO_IGMP;
	return p->proto == IPPROTO_ICMPV6 && ((p->icmp_type >= ICMP6_MLD_FIRST && p->icmp_type <= ICMP6_ND_LAST) ||
					      p->icmp_type == ICMP6_MLD2_REPORT);
}

/* Of a client that may have no address yet; whether this host serves any, host-inbound-traffic says. */
static __always_inline bool is_dhcp_request(const struct packet *p)
{
	__u16 be_sport = p->key6.be_sport, be_dport = p->key6.be_dport;

	if (p->proto != IPPROTO_UDP || (p->flags & P_FRAGMENT))
		return false;
	return p->family == 4 ? be_sport == bpf_htons(68) && be_dport == bpf_htons(67)
			      : be_sport == bpf_htons(546) && be_dport == bpf_htons(547);
}

/* Multicast, 255.255.255.255, or the broadcast address that `kind` tells of. */
static __always_inline bool is_group_address(const struct packet *p, __u32 kind)
{
	if (p->family == 6)
		return (p->key6.be_daddr[0] & bpf_htonl(0xff000000)) == bpf_htonl(0xff000000);
	return (p->key4.be_daddr & bpf_htonl(0xf0000000)) == bpf_htonl(0xe0000000) || p->key4.be_daddr == 0xffffffff ||
	       LOCAL_KIND(kind) == LOCAL_BROADCAST;
}

/* The kernel forwards no group here; `kind` is what the destination is to this host. */
static __always_inline int group_to_host(struct packet *p, __u32 kind)
{
	struct unit *unit = unit_at(p->unit_slot);

	/* RFC 1122 3.3.6: a unicast address in a frame for everybody */
	if (!unit || !is_group_address(p, kind))
		return DROP(LINK_BROADCAST);
	/* RFC 2644: nobody asks all hosts of a link from another one */
	if (LOCAL_KIND(kind) == LOCAL_BROADCAST && LOCAL_LINK(kind) && LOCAL_LINK(kind) != unit->host_ifindex)
		return DROP(DIRECTED_BROADCAST);
	return is_heard_always(p) || host_inbound_admits(p) ? VERDICT_LOCAL : DROP(HOST_INBOUND);
}

#endif
