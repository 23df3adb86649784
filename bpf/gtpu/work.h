/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* GTP-U: what its programs share. The header of a message is in TS 29.281 5.1, its extension headers in 5.2. */
#ifndef SLUICE_GTPU_WORK_H
#define SLUICE_GTPU_WORK_H

#include "root.h"
#include "gtpu/arrival.h"
#include "lib/dropped.h"

#define GTPU_HEADER 8  /* the mandatory part */
#define GTPU_OPTIONS 4 /* sequence number, N-PDU number, next extension header: all of them if one is there */
#define GTPU_CONTAINER_BYTES 4

#define ECN_BITS 3 /* of a traffic class (RFC 3168 5) */
#define ECN_ECT1 1
#define ECN_ECT0 2
#define ECN_CE 3

#define GTPU_FLAG_E 0x04
#define GTPU_FLAG_S 0x02
#define GTPU_FLAG_OPTIONS 0x07
#define GTPU_FLAG_PT 0x10
#define GTPU_VERSION_1 0x20

#define GTPU_ECHO_REQUEST 1 /* TS 29.281 6.1 */
#define GTPU_ECHO_RESPONSE 2
#define GTPU_VERSION_NOT_SUPPORTED 3 /* TS 29.060 7.2.3 */
#define GTPU_ERROR_INDICATION 26
#define GTPU_EXTENSIONS_NOTIFICATION 31
#define GTPU_TUNNEL_STATUS 253
#define GTPU_END_MARKER 254
#define GTPU_G_PDU 255

#define GTPU_EXTENSION_MUST 0x80 /* TS 29.281 5.2.1: comprehension is required of whom the message is for */
#define GTPU_EXTENSION_ALL 0x40  /* with the one before: of whoever passes it on, too */
#define GTPU_EXTENSION_UDP_PORT 0x40
#define GTPU_EXTENSION_CONTAINER 0x85 /* PDU Session Container */
#define GTPU_EXTENSION_PDCP 0xc0      /* PDCP PDU number: between base stations, so for whom it is passed on to */
#define GTPU_EXTENSIONS_MAX 8

/* Extension headers that must be understood and are not: by whom the message is for, by whoever passes it on. */
#define GTPU_UNKNOWN_HERE 0x01
#define GTPU_UNKNOWN_ANYWHERE 0x02

enum gtpu_answer {
	GTPU_ANSWER_NONE,
	GTPU_ANSWER_ERROR,
	GTPU_ANSWER_VERSION,
	GTPU_ANSWER_EXTENSIONS,
	GTPU_ANSWER_LENGTH, /* an ICMP error */
};

static __always_inline struct gtpu_interface *gtpu_interface_of(const struct unit *unit)
{
	return unit->gtpu ? gtpu_interfaces_at(unit->gtpu - 1) : NULL;
}

/* A mobile interface: where inner packets arrive, and what is routed there goes into tunnels. */
static __always_inline bool is_mobile(const struct unit *unit)
{
	const struct gtpu_interface *interface = gtpu_interface_of(unit);

	return interface && interface->kind == GTPU_MOBILE;
}

/* The far end of its pair, where what this host sends by it comes out. */
static __always_inline bool is_far_end(const struct unit *unit)
{
	return unit->gtpu && unit->ifindex == unit->host_peer_ifindex;
}

/* Messages to this address end here. */
static __always_inline bool is_tunnel_address4(const struct unit *unit, __u32 be_daddr)
{
	const struct gtpu_interface *interface = gtpu_interface_of(unit);

	return interface && interface->kind == GTPU_TUNNELS && be_daddr && interface->be_addr4 == be_daddr;
}

static __always_inline bool is_tunnel_address6(const struct unit *unit, const __u32 *be_daddr)
{
	const struct gtpu_interface *interface = gtpu_interface_of(unit);

	if (!interface || interface->kind != GTPU_TUNNELS || !(be_daddr[0] | be_daddr[1] | be_daddr[2] | be_daddr[3]))
		return false;
	for (int i = 0; i < 4; i++)
		if (interface->be_addr6[i] != be_daddr[i])
			return false;
	return true;
}

/* The one way out of these programs for what is dropped; `received` is counted before. */
static __always_inline int gtpu_drop(hook_ctx *ctx, const struct handover *h, __u32 reason)
{
	count_drop(h->unit_index, reason, hook_segments(ctx));
	tell_short(ctx, arrival_device(ctx), h->unit_index, h->zone, reason, h->l3, h->vlan);
	return HOOK_DROP;
}

/* The next program is missing, and the packet was counted as received. */
static __always_inline int gtpu_lost(hook_ctx *ctx)
{
	__u32 zero = 0;
	struct cpu_memory *memory = bpf_map_lookup_elem(&scratch, &zero);

	if (memory)
		count_drop(memory->handover.unit_index, REASON_NO_GENERATION, hook_segments(ctx));
	return HOOK_DROP;
}

/* To a program that counts what becomes of a packet. */
#define CALL_COUNTED(ctx, action, ID)                                                                                  \
	if ((config.stage_mask & STAGE_BIT(GTPU)) && action == GO(ID)) {                                               \
		tail_call_constant(ctx, &programs, PROGRAM_SLOT(config.slot, config.variant, PROGRAM_##ID));           \
		return trace_leaves(ctx, gtpu_lost(ctx), TRACE_SHORT);                                                 \
	}

/* As a frame of the mobile interface: both addresses are the device's, so an answer to it finds its way back by them.
 */
static __always_inline bool gtpu_write_mobile_link(hook_ctx *ctx, const struct unit *unit, __u8 wire)
{
	__u32 *eth = hook_data(ctx);

	if ((void *)eth + ETH_HLEN > hook_end(ctx))
		return false;
	__u32 first = *(const __u32 *)unit->mac;
	__u16 rest = *(const __u16 *)(unit->mac + 4);

	eth[0] = first;
	((__u16 *)eth)[2] = rest;
	((__u16 *)eth)[3] = (__u16)first;
	((__u16 *)eth)[4] = first >> 16;
	((__u16 *)eth)[5] = rest;
	((__u16 *)eth)[6] = wire == 4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	return true;
}

/* Packets in one buffer go to the mobile interface's device, and come out of its far end one by one. */
static __always_inline bool leads_into_tunnel(const hook_ctx *ctx, const struct nexthop *nexthop)
{
	return (config.stage_mask & STAGE_BIT(GTPU)) && (nexthop->flags & NEXTHOP_TUNNEL) && !hook_is_joined(ctx);
}

/* Of the traffic class of the packet at `at`, `kept` bits stay and `set` ones are added. */
static __always_inline bool gtpu_set_class(hook_ctx *ctx, __u32 at, __u8 wire, __u8 kept, __u8 set)
{
	struct iphdr *ip = hook_data(ctx) + at;

	if ((void *)(ip + 1) > hook_end(ctx))
		return false;
	if (wire == 4) {
		__u16 be_old = *(__u16 *)ip;

		ip->tos = (ip->tos & kept) | set;
		ip->check = csum_add_word(ip->check, be_old, *(__u16 *)ip);
		return true;
	}
	__u16 be_old = *(__u16 *)ip, be_new;

	be_new = (be_old & bpf_htons(0xf00f | kept << 4)) | bpf_htons(set << 4);

	*(__u16 *)ip = be_new;
	hook_sum_grows(ctx, (__u32)(__u16)~be_old + be_new);
	return true;
}

/* The packet behind the link header leaves with this DSCP. */
static __always_inline bool gtpu_mark(hook_ctx *ctx, __u8 wire, __u8 dscp)
{
	return gtpu_set_class(ctx, ETH_HLEN, wire, ECN_BITS, dscp << 2);
}

/* On to the program that puts it into its tunnel. The packet is as it leaves, but for its link header. */
static __always_inline int gtpu_enter(const struct frame *frame, __u32 unit_index, __u32 zone, __u32 ip_len)
{
	__u32 zero = 0;
	struct cpu_memory *memory = bpf_map_lookup_elem(&scratch, &zero);

	if (!memory)
		return HOOK_DROP;
	struct handover *to = &memory->handover;

	to->l3 = frame->l3;
	to->vlan = frame->vlan;
	to->tagged = frame->tagged;
	to->unit_index = unit_index;
	to->zone = zone;
	to->is.ip_len = ip_len;
	to->is.wire = frame->ethertype == ETH_P_IP ? 4 : 6;
	to->entry = ENTRY_READY;
	return GO(GTPU_ENCAP);
}

#endif
