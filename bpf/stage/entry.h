/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Parse the frame, find the unit, refuse what no router may forward. */
#ifndef SLUICE_STAGE_ENTRY_H
#define SLUICE_STAGE_ENTRY_H

#include "flow_table.h"
#include "lib/checksum.h"

/* Ports and what the session stage wants of TCP and ICMP. `l4` must lie inside the linear part. */
static __always_inline int parse_l4(hook_ctx *ctx, struct packet *p)
{
	__u32 offset = p->l4 & 0x3fff;
	void *l4 = hook_data(ctx) + offset;
	void *end = hook_end(ctx);
	__u16 be_sport = 0, be_dport = 0;
	__u32 header = 0;

	if (p->proto == IPPROTO_TCP) {
		struct tcphdr *tcp = l4;

		if ((void *)(tcp + 1) > end)
			return DROP(TRUNCATED);
		header = (((__u8 *)tcp)[12] >> 4) * 4;
		if (header < sizeof(*tcp) || p->ip_header_len + header > p->ip_len)
			return DROP(TRUNCATED);
		be_sport = tcp->source;
		be_dport = tcp->dest;
		p->tcp_flags = ((__u8 *)tcp)[13];
		p->tcp_seq = bpf_ntohl(tcp->seq);
		p->tcp_ack = bpf_ntohl(tcp->ack_seq);
		p->tcp_window = bpf_ntohs(tcp->window);
		p->be_l4_check = tcp->check;
		p->payload = p->ip_len - p->ip_header_len - header;
	} else if (has_ports(p->proto)) {
		struct udphdr *udp = l4; /* the other ones begin as it does */

		header = least_header(p->proto);
		if ((void *)(udp + 1) > end || p->ip_header_len + header > p->ip_len)
			return DROP(TRUNCATED);
		be_sport = udp->source;
		be_dport = udp->dest;
		p->be_l4_check = udp->check;
	} else if (p->proto == IPPROTO_ICMP || p->proto == IPPROTO_ICMPV6) {
		__u8 *icmp = l4;

		header = 8;
		if (l4 + 8 > end || p->ip_header_len + header > p->ip_len)
			return DROP(TRUNCATED);
		p->icmp_type = icmp[0];
		p->icmp_code = icmp[1];
		__u16 identifier = *(__u16 *)(icmp + 4);
		bool v4 = p->proto == IPPROTO_ICMP;

		if (p->icmp_type == (v4 ? ICMP4_ECHO : ICMP6_ECHO)) {
			be_sport = identifier;
			be_dport = bpf_htons(ICMP_PORT_ECHO);
		} else if (p->icmp_type == (v4 ? ICMP4_ECHO_REPLY : ICMP6_ECHO_REPLY)) {
			be_sport = bpf_htons(ICMP_PORT_ECHO);
			be_dport = identifier;
		} else if (is_icmp_error(v4, p->icmp_type)) {
			p->flags |= P_ICMP_ERROR;
		}
	}
	p->segment_len = hook_segment_len(ctx, p->ip_len, p->ip_header_len + header);
	/* its pieces have lengths of their own (GSO_BY_FRAGS), made for the path that its sender knows */
	if (p->proto == IPPROTO_SCTP && p->segments > 1)
		p->segment_len = p->ip_header_len + header;
	__u64 word = key_last_word(be_sport | (__u32)be_dport << 16, p->key4.routing_instance, p->proto);

	((__u64 *)&p->key4)[1] = ((__u64 *)&p->key6)[4] = word;
	return CONTINUE;
}

static __always_inline void note_fragment(struct packet *p, __u32 be_id, __u32 offset, bool more)
{
	p->flags |= P_FRAGMENT | (offset ? P_LATER : 0);
	p->be_fragment_id = be_id;
	p->fragment_offset = offset;
	p->fragment_more = more;
	p->fragment_length = p->ip_len > p->ip_header_len ? p->ip_len - p->ip_header_len : 0;
	p->segment_len = p->ip_len;
}

/* The transport header stands in the first fragment, and all of it must (RFC 1858, RFC 7112): else the named drop. */
static __always_inline int parse_first(hook_ctx *ctx, struct packet *p)
{
	if (!(p->flags & P_LATER) && parse_l4(ctx, p) != CONTINUE)
		p->flags |= P_TINY;
	return CONTINUE;
}

/* RFC 1812 5.3.7, RFC 6890: sources nobody may answer to, destinations nobody may forward to. */
static __always_inline bool bad_addresses4(__u32 saddr, __u32 daddr)
{
	if ((saddr >> 28) >= 0xe || (saddr >> 24) == 127 || (daddr >> 24) == 127)
		return true;
	if (((saddr >> 24) == 0 && saddr != 0) || is_unassigned4(saddr) || is_unassigned4(daddr))
		return true;
	return (daddr >> 24) == 0 || ((daddr >> 28) == 0xf && daddr != 0xffffffff);
}

/* The checksum of an IPv4 header with options, which must lie inside the linear part. */
static __noinline int check_long_header(hook_ctx *ctx, __u32 l3, __u32 length)
{
	void *header = hook_data(ctx) + (l3 & 0x1f);
	__u32 sum = 0;

	for (__u32 i = 0; i < 60; i += 4) {
		__u32 *word = header + i;

		if (i >= length)
			break;
		if ((void *)(word + 1) > hook_end(ctx))
			return DROP(TRUNCATED);
		sum = csum_add32(sum, *word);
	}
	return csum_fold(sum) ? DROP(BAD_IP_HEADER) : CONTINUE;
}

static __always_inline int parse_ipv4(hook_ctx *ctx, struct packet *p)
{
	__u32 l3 = p->l3 & 0x1f;
	void *end = hook_end(ctx);
	struct iphdr *ip = hook_data(ctx) + l3;

	if ((void *)(ip + 1) > end)
		return DROP(TRUNCATED);
	__u32 header = (*(__u8 *)ip & 0x0f) * 4;

	p->ip_len = bpf_ntohs(ip->tot_len);
	if (ip->version != 4 || header < sizeof(*ip) || p->ip_len < header || ip->protocol == IPPROTO_ICMPV6)
		return DROP(BAD_IP_HEADER);
	if (hook_l3_len(ctx, l3, p->ip_len) < p->ip_len)
		return DROP(TRUNCATED);
	int verdict = CONTINUE;

	if (header > sizeof(*ip))
		verdict = check_long_header(ctx, l3, header);
	else if (!csum_ipv4_valid(ip))
		verdict = DROP(BAD_IP_HEADER);
	if (verdict != CONTINUE)
		return verdict;
	p->family = p->wire = 4;
	p->proto = ip->protocol;
	p->ttl = ip->ttl;
	p->traffic_class = ip->tos;
	p->ip_header_len = header;
	p->l4 = l3 + header;
	*(__u64 *)&p->key4 = *(__u64 *)&ip->saddr;
	if (header > sizeof(*ip))
		p->flags |= P_OPTIONS;
	__u32 saddr = bpf_ntohl(ip->saddr), daddr = bpf_ntohl(ip->daddr);

	if (bad_addresses4(saddr, daddr))
		return DROP(BAD_ADDRESS);
	if ((daddr >> 28) == 0xe || daddr == 0xffffffff)
		p->flags |= P_MULTICAST;
	__u32 word = bpf_ntohs(ip->frag_off);

	if (!(word & 0x4000))
		p->flags |= P_MAY_CUT;
	if (!(word & 0x3fff))
		return parse_l4(ctx, p);
	note_fragment(p, ip->id, (word & 0x1fff) * 8, !!(word & 0x2000));
	return parse_first(ctx, p);
}

/* RFC 6275 6.4: the only one whose packets stay with the host that they are addressed to */
#define ROUTING_MOBILE 2

/* Walks the extension headers (RFC 8200 4); leaves proto and l4 behind the last. */
static __always_inline int parse_extensions(hook_ctx *ctx, struct packet *p, __u8 next)
{
	__u32 offset = (p->l3 & 0x1f) + sizeof(struct ipv6hdr);

	for (int i = 0; i < EXTENSION_HEADERS_MAX; i++) {
		__u8 *header = hook_data(ctx) + (offset & HEADERS_LINEAR);

		if (!is_extension(next)) {
			p->proto = next;
			p->l4 = offset;
			p->ip_header_len = offset - (p->l3 & 0x1f);
			return CONTINUE;
		}
		if ((void *)(header + 8) > hook_end(ctx)) {
			p->proto = next;
			p->flags |= p->flags & P_FRAGMENT ? P_TINY : 0;
			return p->flags & P_TINY ? CONTINUE : DROP(TRUNCATED);
		}
		p->flags |= P_OPTIONS;
		if (next == IPPROTO_FRAGMENT) {
			__u32 word = bpf_ntohs(*(__be16 *)(header + 2));

			if (p->flags & P_FRAGMENT)
				return DROP(EXTENSION_HEADERS);
			p->proto = header[0];
			p->l4 = offset + 8;
			p->ip_header_len = p->l4 - (p->l3 & 0x1f);
			if (word & 0xfff9)
				note_fragment(p, *(__be32 *)(header + 4), word & 0xfff8, word & 1);
			else
				p->flags |= P_ATOMIC;
			p->be_fragment_id = *(__be32 *)(header + 4);
			if (p->flags & P_LATER)
				return CONTINUE;
			next = header[0];
			offset += 8;
			continue;
		}
		/* the next hop that it names is not whom policies and sessions know it is for */
		if (next == IPPROTO_ROUTING && header[3] && header[2] != ROUTING_MOBILE)
			p->reply_mtu = offset + 3 - (p->l3 & 0x1f);
		offset += next == IPPROTO_AH ? (header[1] + 2) * 4 : (header[1] + 1) * 8;
		next = header[0];
	}
	return DROP(EXTENSION_HEADERS);
}

/* ::ffff:0:0/96: sockets show IPv4 by it, and here tables do (nat64/mapping.h), so no packet may claim to be it. */
static __always_inline bool is_mapped6(const __u32 *be_addr)
{
	return !(be_addr[0] | be_addr[1]) && be_addr[2] == bpf_htonl(0xffff);
}

static __always_inline int parse_ipv6(hook_ctx *ctx, struct packet *p)
{
	__u32 l3 = p->l3 & 0x1f;
	struct ipv6hdr *ip = hook_data(ctx) + l3;

	if ((void *)(ip + 1) > hook_end(ctx))
		return DROP(TRUNCATED);
	if (ip->version != 6)
		return DROP(BAD_IP_HEADER);
	__u32 ip_len = bpf_ntohs(ip->payload_len) + sizeof(*ip);

	p->ip_len = ip_len;
	p->family = p->wire = 6;
	p->ttl = ip->hop_limit;
	p->traffic_class = bpf_ntohs(*(__be16 *)ip) >> 4;
	for (int i = 0; i < 4; i++)
		((__u64 *)&p->key6)[i] = ((__u64 *)&ip->saddr)[i];
	__u8 next = ip->nexthdr;

	if (hook_l3_len(ctx, l3, ip_len) < ip_len || ip_len > 0xffff)
		return DROP(TRUNCATED);
	__u32 source = bpf_ntohl(p->key6.be_saddr[0]);
	__u32 destination = bpf_ntohl(p->key6.be_daddr[0]);

	if ((destination >> 24) == 0xff)
		p->flags |= P_MULTICAST;
	bool source_zero = !(p->key6.be_saddr[0] | p->key6.be_saddr[1] | p->key6.be_saddr[2]);
	bool destination_zero = !(p->key6.be_daddr[0] | p->key6.be_daddr[1] | p->key6.be_daddr[2]);

	/* RFC 4291 2.5.2, 2.5.3, 2.7: multicast sources, loopback and the unspecified address are not forwarded */
	if ((source >> 24) == 0xff || (source_zero && p->key6.be_saddr[3] == bpf_htonl(1)) ||
	    (destination_zero && bpf_ntohl(p->key6.be_daddr[3]) <= 1))
		return DROP(BAD_ADDRESS);
	if (is_mapped6(p->key6.be_saddr) || is_mapped6(p->key6.be_daddr))
		return DROP(MAPPED_ADDRESS);
	int verdict = parse_extensions(ctx, p, next);

	if (verdict != CONTINUE || (p->flags & (P_LATER | P_TINY)))
		return verdict;
	if (p->proto == IPPROTO_ICMP)
		return DROP(BAD_IP_HEADER);
	if (p->flags & P_FRAGMENT) {
		/* headers that lie behind the packet's end, in the Ethernet trailer, are none (RFC 7112) */
		p->flags |= p->ip_header_len > p->ip_len ? P_TINY : 0;
		return p->flags & P_TINY ? CONTINUE : parse_first(ctx, p);
	}
	return p->ip_header_len > p->ip_len ? DROP(BAD_IP_HEADER) : parse_l4(ctx, p);
}

static __always_inline void packet_reset(struct packet *p, hook_ctx *ctx, __u32 ifindex)
{
	__builtin_memset(p, 0, sizeof(*p));
	p->ifindex = ifindex;
	p->now = jiffies_now();
	p->active = active;
	p->segments = hook_segments(ctx);
}

/* The Ethernet destination: ours, everybody's, or somebody else's. */
static __always_inline int check_mac(hook_ctx *ctx, struct packet *p, const struct unit *unit)
{
	struct ethhdr *eth = hook_data(ctx);

	if ((void *)(eth + 1) > hook_end(ctx))
		return DROP(TRUNCATED);
	if (eth->h_dest[0] & 1) {
		p->flags |= P_MULTICAST;
		return CONTINUE;
	}
	for (int i = 0; i < 6; i++)
		if (eth->h_dest[i] != unit->mac[i])
			return DROP(OTHER_HOST);
	return CONTINUE;
}

/* Why a frame that no unit has is dropped. What arrives on a device in the null zone counts there. */
__noinline int without_unit(struct packet *p)
{
	if (!p)
		return DROP(UNKNOWN_UNIT);
	struct unit *null = unit_find(p->ifindex, VLAN_NULL, &p->unit_slot);

	if (null) {
		p->unit_index = null->index;
		return DROP(NULL_ZONE);
	}
	return p->vlan > VLAN_ID ? DROP(VLAN_STACK) : DROP(UNKNOWN_UNIT);
}

static __always_inline int stage_entry(hook_ctx *ctx, struct packet *p)
{
	struct frame frame = {};

	if (!hook_parse_frame(ctx, &frame))
		return DROP(TRUNCATED);
	p->l3 = frame.l3;
	p->vlan = frame.vlan;
	p->tagged = frame.tagged;
	p->ethertype = frame.ethertype;
	struct unit *unit = unit_arriving(p->ifindex, p->vlan, &p->unit_slot);

	if (!unit)
		return without_unit(p);
	p->unit_index = unit->index;
	p->from_zone = unit->zone;
	p->key4.routing_instance = p->key6.routing_instance = p->route_instance = unit->routing_instance;
	/* a service tag inside, or a third one */
	if (p->ethertype == ETH_P_8021AD || p->ethertype == ETH_P_8021Q)
		return DROP(VLAN_STACK);
	int verdict = check_mac(ctx, p, unit);

	if (verdict != CONTINUE)
		return verdict;
	if (p->ethertype != ETH_P_IP && p->ethertype != ETH_P_IPV6)
		return VERDICT_LOCAL; /* ARP, LLDP and their like are the host's */
	verdict = p->ethertype == ETH_P_IP ? parse_ipv4(ctx, p) : parse_ipv6(ctx, p);
	if (verdict != CONTINUE || !p->reply_mtu)
		return verdict;
	p->reply = REPLY_SOURCE_ROUTE;
	return DROP_AND_REPLY(ROUTING_HEADER);
}

#endif
