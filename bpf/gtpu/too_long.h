/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What does not fit the way to a tunnel's other end is dropped, and its sender is told how long it may be (RFC 1191 4,
 * RFC 8201 4): by an ICMP error about the packet as the subscriber would have got it, which goes on as if a router
 * behind the mobile interface had sent it. So the packet's session leads it back, and takes back what was translated
 * (RFC 5508 4.2).
 */
#ifndef SLUICE_GTPU_TOO_LONG_H
#define SLUICE_GTPU_TOO_LONG_H

#include "gtpu/lines.h"
#include "lib/reply.h"

/* What an error about the packet at hand is made of; false = it is not
 * there. */
static __always_inline bool gtpu_quote(hook_ctx *ctx, const struct handover *h, __u32 len, struct packet *p)
{
	__u32 l3 = h->l3 & 0x1f, header;
	struct iphdr *ip = hook_data(ctx) + l3;
	struct ipv6hdr *ip6 = hook_data(ctx) + l3;

	if ((void *)(ip + 1) > hook_end(ctx))
		return false;
	p->flags = 0;
	p->l3 = l3;
	p->ip_len = len;
	p->wire = h->is.wire;
	if (p->wire == 4) {
		header = (*(__u8 *)ip & 0x0f) * 4;
		p->proto = ip->protocol;
		p->key4.be_saddr = ip->saddr;
		p->key4.be_daddr = ip->daddr;
		p->flags |= ip->frag_off & bpf_htons(0x3fff) ? P_FRAGMENT : 0;
		p->flags |= ip->frag_off & bpf_htons(0x1fff) ? P_LATER : 0;
	} else {
		if ((void *)(ip6 + 1) > hook_end(ctx))
			return false;
		header = sizeof(*ip6);
		p->proto = ip6->nexthdr;
		for (int i = 0; i < 4; i++) {
			p->key6.be_saddr[i] = ip6->saddr.in6_u.u6_addr32[i];
			p->key6.be_daddr[i] = ip6->daddr.in6_u.u6_addr32[i];
		}
	}
	p->ip_header_len = header & 0x3c;
	p->l4 = l3 + p->ip_header_len;
	__u8 *l4 = hook_data(ctx) + (p->l4 & 0x7f);

	if ((void *)(l4 + 18) > hook_end(ctx))
		return false;
	p->be_l4_check = *(__u16 *)(l4 + (p->proto == IPPROTO_TCP ? 16 : 6));
	if (p->proto == (p->wire == 4 ? IPPROTO_ICMP : IPPROTO_ICMPV6) && is_icmp_error(p->wire == 4, l4[0]))
		p->flags |= P_ICMP_ERROR;
	return true;
}

static __always_inline bool gtpu_has_address(__u32 slot, __u8 wire)
{
	struct unit *unit = unit_at(slot);

	return unit && (wire == 4 ? unit->be_addr4 : *(const __u64 *)unit->be_addr6);
}

/* The packet was counted as dropped. */
static __noinline int gtpu_tell_length(hook_ctx *ctx, const struct handover *h, struct gtpu_work *work)
{
	__u32 zero = 0, arrived, mobile = 0;

	if (!h || !work)
		return HOOK_DROP;
	bool relay = h->entry == ENTRY_RELAY;
	struct cpu_memory *memory = bpf_map_lookup_elem(&scratch, &zero);
	struct unit_counters *count = counters_of(h->unit_index);
	struct unit *from = unit_find(hook_ifindex(ctx), h->vlan, &arrived);
	struct unit *unit = relay ? from : unit_find(work->mobile, 0, &mobile);

	if (!memory || !count || !unit || !work->mtu)
		return HOOK_DROP;
	struct packet *p = &memory->packet;

	hook_pull_headers(ctx);
	if (!gtpu_quote(ctx, h, relay ? h->is.ip_len : work->body_len, p))
		return HOOK_DROP;
	p->now = jiffies_now();
	p->from_zone = h->zone;
	p->unit_index = h->unit_index;
	p->unit_slot = relay || !gtpu_has_address(mobile, p->wire) ? arrived : mobile;
	p->reply_mtu = work->mtu;
	p->reply = REPLY_TOO_BIG;
	p->cookie = 0;
	if (relay)
		return reply_send(ctx, p);
	if (!reply_make(ctx, p, count))
		return HOOK_DROP;
	struct frame frame = {.l3 = h->l3 & 0x1f, .vlan = h->vlan, .tagged = h->tagged};

	if (!hook_pop_vlan(ctx, &frame) || !gtpu_write_mobile_link(ctx, unit, h->is.wire))
		return HOOK_DROP;
	work->inner = work->mobile;
	return GO(FAST_INNER);
}

#endif
