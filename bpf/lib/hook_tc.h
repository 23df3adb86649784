/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The tc side of the hook: contexts, verdict codes, VLAN tags in the skb, GSO. */
#ifndef SLUICE_LIB_HOOK_H
#define SLUICE_LIB_HOOK_H

#include "maps.h"
#include "lib/checksum.h"

#define HOOK_TC 1
#define HOOK_DROP TC_ACT_SHOT
#define HOOK_PASS TC_ACT_UNSPEC /* let the next program and then the stack have it */
#define HOOK_SPREADS 0
#define HOOK_LEFT TC_ACT_REDIRECT

typedef struct __sk_buff hook_ctx;

#include "lib/hook_frame.h"

static __always_inline __u32 hook_ifindex(const hook_ctx *ctx)
{
	return ctx->ifindex;
}

static __always_inline __u32 hook_segments(const hook_ctx *ctx)
{
	__u32 segments = ctx->gso_segs;

	return segments ? segments : 1;
}

/*
 * Several packets in one buffer. How many, the kernel has not counted where they come from a virtual machine, or a
 * packet socket: SKB_GSO_DODGY.
 */
static __always_inline bool hook_is_joined(const hook_ctx *ctx)
{
	return ctx->gso_size != 0;
}

/* Nothing stands behind this offset. */
static __always_inline bool hook_ends_at(hook_ctx *ctx, __u32 end)
{
	return ctx->len <= end;
}

static __always_inline __u32 hook_l3_len(hook_ctx *ctx, __u32 l3, __u32 wanted)
{
	return ctx->len - l3;
}

static __always_inline __u32 hook_segment_len(const hook_ctx *ctx, __u32 ip_len, __u32 headers)
{
	__u32 gso_size = ctx->gso_size;

	return gso_size ? gso_size + headers : ip_len;
}

/* Headers the stages read must lie in the linear part. */
#define HEADERS_MAX 512
static __always_inline void hook_pull_headers(hook_ctx *ctx)
{
	__u32 wanted = ctx->len < HEADERS_MAX ? ctx->len : HEADERS_MAX;

	if ((__u64)(hook_end(ctx) - hook_data(ctx)) < wanted)
		bpf_skb_pull_data(ctx, wanted);
}

static __always_inline bool hook_parse_frame(hook_ctx *ctx, struct frame *frame)
{
	struct ethhdr *eth = hook_data(ctx);

	if ((void *)(eth + 1) > hook_end(ctx))
		return false;
	frame->l3 = ETH_HLEN;
	frame->tagged = 0;
	frame->vlan = 0;
	frame->ethertype = bpf_ntohs(eth->h_proto);
	if (!ctx->vlan_present)
		return true;
	/* the kernel has taken the outer tag out of the frame; an inner one stands in it */
	frame->tagged = VLAN_BYTES;
	frame->vlan = ctx->vlan_tci & VLAN_ID;
	if (ctx->vlan_proto != bpf_htons(ETH_P_8021Q))
		frame->vlan |= VLAN_SERVICE;
	return frame_second_tag(ctx, frame);
}

/* A push moves the tag beside the frame into it. */
static __always_inline bool hook_push_vlan(hook_ctx *ctx, __u32 vlan)
{
	if ((vlan & VLAN_TWO) && bpf_skb_vlan_push(ctx, bpf_htons(ETH_P_8021Q), vlan_inner(vlan)))
		return false;
	return bpf_skb_vlan_push(ctx, vlan_outer_type(vlan), vlan & VLAN_ID) == 0;
}

/* A function: the kernel's helpers take longer than any call, and most frames keep their tags. */
static __noinline bool hook_change_tags(hook_ctx *ctx, __u32 tagged, __u32 vlan)
{
	if (tagged && bpf_skb_vlan_pop(ctx))
		return false;
	if (tagged > VLAN_BYTES && bpf_skb_vlan_pop(ctx))
		return false;
	return !vlan || hook_push_vlan(ctx, vlan);
}

/* Leave with the tags of `vlan`; 0 = untagged. */
static __always_inline bool hook_set_vlan(hook_ctx *ctx, const struct frame *frame, __u32 vlan)
{
	return !(frame->tagged | vlan) || hook_change_tags(ctx, frame->tagged, vlan);
}

static __always_inline bool hook_pop_vlan(hook_ctx *ctx, const struct frame *frame)
{
	return hook_set_vlan(ctx, frame, 0);
}

static __always_inline int hook_redirect(hook_ctx *ctx, __u32 ifindex)
{
	ctx->mark = VERDICT_MARK;
	return bpf_redirect(ifindex & ~LEAVES_BY_KERNEL, 0);
}

/* Into the host's stack, as a frame of the untagged device that carries the unit's addresses. */
static __always_inline int hook_to_host(hook_ctx *ctx, const struct frame *frame, const struct unit *unit)
{
	if (!(unit->flags & UNIT_HOST_VETH))
		return HOOK_PASS;
	__u32 host = unit->host_ifindex;

	return hook_pop_vlan(ctx, frame) ? bpf_redirect(host, BPF_F_INGRESS) : HOOK_DROP;
}

/*
 * The kernel's neighbour code queues and resolves. Left to itself the kernel asks its routes which neighbour that is,
 * as for packets of its own: rules for arriving ones do not count then, and of several next hops it takes one by its
 * own hash, for IPv6 one that may be on another device.
 */
static __always_inline int hook_queue(hook_ctx *ctx, __u32 host_ifindex, __u32 family, const __u32 *be_addr)
{
	struct bpf_redir_neigh neighbour = {.nh_family = family == 4 ? AF_INET : AF_INET6};

	ctx->mark = HANDOFF_MARK;
	if (!family)
		return bpf_redirect_neigh(host_ifindex, NULL, 0, 0);
	for (int i = 0; i < 4; i++)
		neighbour.ipv6_nh[i] = be_addr[i];
	return bpf_redirect_neigh(host_ifindex, &neighbour, sizeof(neighbour), 0);
}

/* `to`: of a neighbour on that device; NULL = the kernel finds it. */
static __always_inline int hook_hand_off(hook_ctx *ctx, const struct frame *frame, __u32 host_ifindex,
					 const struct nexthop_key *to)
{
	if (!hook_pop_vlan(ctx, frame))
		return HOOK_DROP;
	if (!to || to->host_ifindex != host_ifindex)
		return hook_queue(ctx, host_ifindex, 0, NULL);
	return hook_queue(ctx, host_ifindex, to->family & 0xf, to->be_addr);
}

/* Sends a copy by a mobile device, whose egress program runs meanwhile, on this CPU's memory of a packet. */
static __always_inline void hook_send_copy(hook_ctx *ctx, __u32 ifindex, __u32 mark, __u32 unit_index)
{
	ctx->mark = mark;
	if (bpf_clone_redirect(ctx, ifindex, 0))
		copy_is_lost(unit_index);
}

static __always_inline int hook_copy(hook_ctx *ctx, __u32 ifindex, __u32 mark, __u32 own, __u32 unit_index,
				     __u32 number)
{
	__u32 before = ctx->mark;

	hook_send_copy(ctx, ifindex, mark, unit_index);
	ctx->mark = before;
	return CONTINUE;
}

static __always_inline __u32 hook_mark(const hook_ctx *ctx)
{
	return ctx->mark;
}

/* Make room for `head` bytes before the frame, after cutting it to `len`; GSO ends here. */
static __always_inline bool hook_reshape(hook_ctx *ctx, __u32 head, __u32 len)
{
	if (ctx->len < len || bpf_skb_change_tail(ctx, len, 0))
		return false;
	if (bpf_skb_pull_data(ctx, len))
		return false;
	return !head || bpf_skb_change_head(ctx, head, 0) == 0;
}

/* The frame ends at `len`, whether it was longer or shorter. */
static __always_inline bool hook_resize(hook_ctx *ctx, __u32 len)
{
	return bpf_skb_change_tail(ctx, len, 0) == 0 && bpf_skb_pull_data(ctx, len) == 0;
}

/* A word the transport checksum covers has changed. The kernel knows whether the device has yet to complete it. */
static __always_inline void hook_l4_check(hook_ctx *ctx, __u32 l4, __u32 field, __u16 be_old, __u16 be_new)
{
	bpf_l4_csum_replace(ctx, l4 + field, be_old, be_new, sizeof(be_new));
}

/*
 * Who answers for the checksums of a packet, as the kernel keeps it beside the data. __sk_buff does not show it; the
 * cast is no call (the verifier makes a move of it), and where the field stands is corrected when the program is
 * loaded.
 */
struct sk_buff {
	__u8 ip_summed : 2;
} __attribute__((preserve_access_index));

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

#define CHECKSUM_COMPLETE 2 /* the device has summed up all bytes from the network header on, into skb->csum */
#define CHECKSUM_PARTIAL 3  /* the device will: until then the field holds the pseudo-header's sum alone */

static __always_inline __u32 hook_summed(hook_ctx *ctx)
{
	const struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);

	return BPF_CORE_READ_BITFIELD(skb, ip_summed);
}

/* The device has yet to complete the transport checksum. */
static __always_inline bool hook_is_unsummed(hook_ctx *ctx)
{
	return hook_summed(ctx) == CHECKSUM_PARTIAL;
}

/*
 * The sum of the packet's bytes has grown. __skb_checksum_validate_complete() adds the pseudo-header to skb->csum and
 * trusts it where the result is 0; else it adds everything up and complains about the device.
 */
static __always_inline void hook_sum_grows(hook_ctx *ctx, __u32 growth)
{
	if (hook_summed(ctx) == CHECKSUM_COMPLETE)
		bpf_csum_update(ctx, csum_fold_only(growth));
}

/*
 * Addresses and ports have changed: `all` is the sum of that (RFC 1624), `addresses` the share of what stands in the
 * pseudo-header. Written here, since each call of bpf_l4_csum_replace() costs as much as all the rest; what it does,
 * inet_proto_csum_replace4() says. A UDP checksum of 0 stays 0 (RFC 768).
 *
 * What that means for skb->csum: an IPv4 header sums up to 0 before and after, a transport header to the complement of
 * its pseudo-header, so the bytes grow by the complement of `addresses`. In IPv6 the addresses in the header grow by
 * just as much as the rest falls. Without a checksum nothing makes up for anything.
 */
static __always_inline bool hook_l4_sum(hook_ctx *ctx, __u32 at, __u64 addresses, __u64 all, bool udp, bool v6)
{
	__u16 *check = hook_data(ctx) + (at & 0x3fff);

	if ((void *)(check + 1) > hook_end(ctx))
		return false;
	__u32 be_check = *check, summed = hook_summed(ctx);

	if (udp && !be_check) {
		if (summed == CHECKSUM_COMPLETE)
			bpf_csum_update(ctx, csum_fold_sum(v6 ? all : all + (__u16)~csum_fold_sum(addresses)));
		return true;
	}
	if (summed == CHECKSUM_PARTIAL) {
		*check = csum_fold_sum(be_check + addresses);
		return true;
	}
	__u16 be_new = ~csum_fold_sum((__u16)~be_check + all);

	*check = udp && !be_new ? 0xffff : be_new;
	if (!v6 && summed == CHECKSUM_COMPLETE)
		bpf_csum_update(ctx, (__u16)~csum_fold_sum(addresses));
	return true;
}

/*
 * A local socket leaves the checksum to the device (CHECKSUM_PARTIAL): the field then holds the sum of the
 * pseudo-header, and the device will still write it. Only a field with just this value can be such a one, and to take
 * another one for it does no harm.
 */
static __always_inline bool hook_maybe_partial(__u16 be_check, __u32 pseudo_sum)
{
	return be_check == csum_fold_only(pseudo_sum);
}

static __always_inline __u32 hook_frame_len(hook_ctx *ctx)
{
	return ctx->len;
}

static __always_inline bool hook_load(hook_ctx *ctx, __u32 offset, void *to, __u32 len)
{
	return bpf_skb_load_bytes(ctx, offset, to, len) == 0;
}

static __always_inline bool hook_store(hook_ctx *ctx, __u32 offset, const void *from, __u32 len)
{
	return bpf_skb_store_bytes(ctx, offset, from, len, 0) == 0;
}

/* The same, and the sum of the packet's bytes follows. */
static __always_inline bool hook_write(hook_ctx *ctx, __u32 offset, const void *from, __u32 len)
{
	return bpf_skb_store_bytes(ctx, offset, from, len, BPF_F_RECOMPUTE_CSUM) == 0;
}

/* All of the frame in the linear part, as far as `len`. */
static __always_inline bool hook_pull(hook_ctx *ctx, __u32 len)
{
	return (__u64)(hook_end(ctx) - hook_data(ctx)) >= len || bpf_skb_pull_data(ctx, len) == 0;
}

/*
 * The packet becomes one of the other family: `old_len` bytes from the IP header on give way to `new_len`, to be
 * written. The kernel does the usual 20 bytes itself, and tells GSO and CHECKSUM_PARTIAL; the rest, behind the header,
 * is given or taken.
 */
static __always_inline bool hook_change_family(hook_ctx *ctx, struct frame *frame, __u32 old_len, __u32 new_len,
					       __u16 ethertype, bool link)
{
	int more = (int)new_len - (int)old_len - (ethertype == ETH_P_IPV6 ? 20 : -20);

	if (bpf_skb_change_proto(ctx, bpf_htons(ethertype), 0))
		return false;
	if (more && bpf_skb_adjust_room(ctx, more, BPF_ADJ_ROOM_NET, BPF_F_ADJ_ROOM_FIXED_GSO))
		return false;
	struct ethhdr *eth = hook_data(ctx);

	if ((void *)(eth + 1) > hook_end(ctx))
		return false;
	eth->h_proto = bpf_htons(ethertype);
	frame->ethertype = ethertype;
	return true;
}

/* BPF_F_ADJ_ROOM_DECAP_L3_*, which the headers of older distributions have not. */
#define ADJ_ROOM_DECAP_L3_IPV4 (1ull << 7)
#define ADJ_ROOM_DECAP_L3_IPV6 (1ull << 8)

/* The frame ends at `len`, which is less than it has. */
static __always_inline bool hook_trim(hook_ctx *ctx, __u32 len)
{
	return bpf_skb_change_tail(ctx, len, 0) == 0;
}

/* The IP packet at `body` is all that stays of the frame, behind room for an Ethernet header. */
static __always_inline bool hook_take_out(hook_ctx *ctx, const struct frame *frame, __u32 body, __u8 wire)
{
	__u64 flags = wire == 4 ? ADJ_ROOM_DECAP_L3_IPV4 : ADJ_ROOM_DECAP_L3_IPV6;

	if (!hook_set_vlan(ctx, frame, 0))
		return false;
	return bpf_skb_adjust_room(ctx, (int)frame->l3 - (int)body, BPF_ADJ_ROOM_MAC, flags) == 0;
}

/* Headers at the network layer get another length. The kernel knows one tunnel a packet: of a second it is not told. */
static __always_inline bool hook_change_headers(hook_ctx *ctx, int more, __u8 family, bool tunnel)
{
	__u64 flags;

	if (!more)
		return true;
	if (more < 0)
		flags = family == 4 ? ADJ_ROOM_DECAP_L3_IPV4 : ADJ_ROOM_DECAP_L3_IPV6;
	else
		flags = (family == 4 ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 : BPF_F_ADJ_ROOM_ENCAP_L3_IPV6) |
			(tunnel ? BPF_F_ADJ_ROOM_ENCAP_L4_UDP : 0);
	return bpf_skb_adjust_room(ctx, more, BPF_ADJ_ROOM_MAC, flags) == 0 ||
	       (more > 0 && bpf_skb_adjust_room(ctx, more, BPF_ADJ_ROOM_MAC, 0) == 0);
}

/* What is about to be written over counts for nothing any more. */
static __noinline int hook_forget_sum(hook_ctx *ctx, __u32 l3, __u32 len)
{
	__u32 sum = 0, i;

	if (hook_summed(ctx) != CHECKSUM_COMPLETE)
		return 0;
	bpf_for (i, 0, len / 4) {
		__u32 *word = hook_data(ctx) + ((l3 + i * 4) & 0xfff);

		if ((void *)(word + 1) > hook_end(ctx))
			break;
		sum = csum_add32(sum, *word);
	}
	bpf_csum_update(ctx, (__u16)~csum_fold_only(sum));
	return 0;
}

/*
 * What is at `from` gets `head` bytes of headers before it, in the place of what the frame has there, and a link header
 * without tags; both are to be written. Returns where the headers begin, 0 = there is no room.
 */
static __always_inline __u32 hook_put_in(hook_ctx *ctx, const struct frame *frame, __u32 from, __u32 head, __u32 vlan,
					 __u8 family)
{
	__u32 gap = from - frame->l3;

	if (!hook_set_vlan(ctx, frame, 0) || !hook_change_headers(ctx, (int)head - (int)gap, family, !gap))
		return 0;
	if (bpf_skb_pull_data(ctx, ETH_HLEN + head))
		return 0;
	if (gap)
		hook_forget_sum(ctx, ETH_HLEN, head);
	return ETH_HLEN;
}

/* Type and tags behind the MAC addresses. */
static __always_inline bool hook_finish_link(hook_ctx *ctx, __u32 vlan, __be16 be_type)
{
	struct ethhdr *eth = hook_data(ctx);

	if ((void *)(eth + 1) > hook_end(ctx))
		return false;
	eth->h_proto = be_type;
	return !vlan || hook_push_vlan(ctx, vlan);
}

#endif
