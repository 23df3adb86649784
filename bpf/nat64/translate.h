/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A packet of a NAT64 session becomes one of the other family (RFC 7915), on the slow path: any header, fragments,
 * ICMP. What is rewritten is built in memory and written at once over the beginning of the packet; behind it only the
 * transport checksum and ports change.
 */
#ifndef SLUICE_NAT64_TRANSLATE_H
#define SLUICE_NAT64_TRANSLATE_H

#include "nat64/icmp.h"
#include "nat/rewrite.h"
#include "flow_table.h"

/* What the packet becomes, as the line of its direction says. */
static __always_inline bool nat64_tuple(const struct packet *p, struct nat64_work *w)
{
	struct flow_line6 *line = bpf_map_lookup_elem(&lines6, &p->line);

	struct flow_shared *shared = flow_shared_at(6, p->line);

	if (!line || !shared)
		return false;
	for (int i = 0; i < 4; i++) {
		w->be_saddr[i] = line->be_new_saddr[i];
		w->be_daddr[i] = line->be_new_daddr[i];
	}
	w->be_sport = line->be_new_sport;
	w->be_dport = line->be_new_dport;
	w->be_peer = line->key.be_saddr[3];
	w->prefix_length = shared->nat64_length;
	return true;
}

static __always_inline __u16 nat64_address_growth(const struct packet *p, const struct nat64_work *w)
{
	if (p->wire == 4)
		return nat64_growth(nat64_sum4(w->be_outer[3], w->be_outer[4]), nat64_sum6(w->be_saddr, w->be_daddr));
	return nat64_growth(nat64_sum6(w->be_outer + 2, w->be_outer + 6), nat64_sum4(w->be_saddr[3], w->be_daddr[3]));
}

/*
 * RFC 7915 4.5: IPv6 demands a checksum (RFC 8200 8.1); of a whole datagram it can be computed. It covers what UDP says
 * is its own, not what the packet may hold behind it.
 */
static __always_inline int nat64_udp_checksum(hook_ctx *ctx, struct packet *p, const struct nat64_work *w, __u16 ports)
{
	__u32 l4 = p->l4 & 0x3fff;
	struct udphdr *udp = hook_data(ctx) + l4;

	if ((p->flags & P_FRAGMENT) || p->segments > 1 || (void *)(udp + 1) > hook_end(ctx))
		return DROP(NAT64_UDP_CHECKSUM);
	__u32 len = bpf_ntohs(udp->len);

	if (len < sizeof(*udp) || len > (__u32)p->ip_len - p->ip_header_len)
		return DROP(NAT64_UDP_CHECKSUM);
	int sum = nat64_sum_frame(ctx, l4, len);

	if (sum < 0)
		return DROP(NAT64_UDP_CHECKSUM);
	__u16 check =
		csum_fold((__u32)sum + nat64_sum6(w->be_saddr, w->be_daddr) + bpf_htons(len) + bpf_htons(IPPROTO_UDP));

	check = check ? check : 0xffff;
	hook_sum_grows(ctx, ports);
	return hook_write(ctx, l4 + offsetof(struct udphdr, check), &check, sizeof(check)) ? CONTINUE
											   : DROP(REWRITE_FAILED);
}

/* TCP and UDP: ports and checksum. Later fragments have neither. */
static __always_inline int nat64_ports(hook_ctx *ctx, struct packet *p, struct nat64_work *w)
{
	bool udp = p->proto == IPPROTO_UDP;
	__u32 l4 = p->l4 & 0x3fff, be_ports = w->be_sport | (__u32)w->be_dport << 16;
	__u32 be_old = p->key6.be_sport | (__u32)p->key6.be_dport << 16;

	if (p->flags & P_LATER)
		return CONTINUE;
	if (!udp && p->proto != IPPROTO_TCP)
		return DROP(NAT64_PROTOCOL);
	if (!hook_store(ctx, l4, &be_ports, sizeof(be_ports)))
		return DROP(REWRITE_FAILED);
	__u16 ports = nat64_growth(csum_fold_only(csum_add32(0, be_old)), csum_fold_only(csum_add32(0, be_ports)));

	if (udp && !p->be_l4_check && p->wire == 4)
		return nat64_udp_checksum(ctx, p, w, ports);

	__u32 addresses = nat64_address_growth(p, w);

	return hook_l4_sum(ctx, l4 + (udp ? UDP_CHECK_AT : TCP_CHECK_AT), addresses, addresses + ports, udp, false)
		       ? CONTINUE
		       : DROP(REWRITE_FAILED);
}

/* The IP header; returns its words. Whoever forwards it takes a hop off. */
__noinline int nat64_header(struct packet *p, struct nat64_work *w)
{
	if (!p || !w)
		return 0;
	bool error = p->flags & P_ICMP_ERROR;
	struct nat64_ip ip = {
		.payload = error ? w->message_len : p->ip_len - p->ip_header_len,
		.segment_total = p->segment_len - p->ip_header_len + 20,
		.fragment = (__u32)p->fragment_offset | p->fragment_more,
		.id = bpf_ntohl(p->be_fragment_id),
		.traffic_class = p->traffic_class,
		.hops = p->ttl,
		.proto = error ? IPPROTO_ICMP : nat64_proto4(p->proto),
		.fragmented = (p->flags & (P_FRAGMENT | P_ATOMIC)) || p->cut,
	};

	if (error)
		ip.segment_total = ip.payload + 20;
	if (!ip.fragmented)
		ip.id = bpf_get_prandom_u32();
	if (p->wire == 4) {
		/* the identification stands in 16 bits there */
		ip.id = bpf_ntohs((__u16)w->be_outer[1]);
		return nat64_header6(w->be_new, &ip, w->be_saddr, w->be_daddr);
	}
	nat64_header4(w->be_new, &ip, w->be_saddr[3], w->be_daddr[3]);
	return 5;
}

/* CONTINUE, or why it cannot be. Afterwards the packet is one of the other family. */
__noinline int nat64_translate(hook_ctx *ctx, struct packet *p)
{
	__u32 zero = 0;
	struct cpu_memory *memory = bpf_map_lookup_elem(&scratch, &zero);

	if (!p || !memory)
		return DROP(REWRITE_FAILED);
	struct nat64_work *w = &memory->nat64_work;
	bool to6 = p->wire == 4;
	__u32 l3 = p->l3 & 0x1f;
	bool error = p->flags & P_ICMP_ERROR;
	__u32 at = !to6 ? 5 : (p->flags & P_FRAGMENT) || p->cut ? 12 : 10;

	if (!nat64_tuple(p, w) || !hook_load(ctx, l3, w->be_outer, to6 ? 20 : 40))
		return DROP(REWRITE_FAILED);
	w->old_len = p->ip_header_len;
	w->new_len = at * 4;
	int verdict;

	if (error)
		verdict = nat64_error(ctx, p, w, at);
	else if (p->proto == IPPROTO_ICMP || p->proto == IPPROTO_ICMPV6)
		verdict = nat64_echo(ctx, p, w, at);
	else
		verdict = nat64_ports(ctx, p, w);
	if (verdict != CONTINUE)
		return verdict;
	nat64_header(p, w);
	struct frame frame = {.l3 = l3, .vlan = p->vlan, .ethertype = p->ethertype, .tagged = p->tagged};
	__u32 len = w->new_len;

	if (len < 20)
		return DROP(REWRITE_FAILED);
	barrier_var(len); /* one comparison of a difference would tell the verifier nothing */
	if (len > NAT64_NEW_WORDS * 4 ||
	    !hook_change_family(ctx, &frame, w->old_len, len, to6 ? ETH_P_IPV6 : ETH_P_IP, true) ||
	    !hook_write(ctx, l3, w->be_new, len))
		return DROP(REWRITE_FAILED);
	p->ethertype = frame.ethertype;
	return CONTINUE;
}

#endif
