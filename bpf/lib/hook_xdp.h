/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The XDP side of the hook: contexts, verdict codes, VLAN tags in the frame. */
#ifndef SLUICE_LIB_HOOK_H
#define SLUICE_LIB_HOOK_H

#include "maps.h"
#include "lib/checksum.h"

#define HOOK_XDP 1
#define HOOK_DROP XDP_DROP
#define HOOK_PASS XDP_PASS
#define HOOK_SPREADS 1 /* leaves packets to other CPUs */
#define HOOK_LEFT XDP_REDIRECT

typedef struct xdp_md hook_ctx;

#include "lib/hook_frame.h"

static __always_inline __u32 hook_ifindex(const hook_ctx *ctx)
{
	return ctx->ingress_ifindex;
}

static __always_inline __u32 hook_segments(const hook_ctx *ctx)
{
	return 1;
}

static __always_inline bool hook_is_joined(const hook_ctx *ctx)
{
	return false;
}

/* IP bytes present, fragments of a multi-buffer frame included. */
static __always_inline __u32 hook_l3_len(hook_ctx *ctx, __u32 l3, __u32 wanted)
{
	/* pointers are subtracted as 64-bit values, else the verifier objects */
	__u64 linear = hook_end(ctx) - hook_data(ctx) - l3;

	return linear >= wanted && linear <= 0xffff ? (__u32)linear : bpf_xdp_get_buff_len(ctx) - l3;
}

/* Largest IP packet this becomes on the wire. */
static __always_inline __u32 hook_segment_len(const hook_ctx *ctx, __u32 ip_len, __u32 headers)
{
	return ip_len;
}

/* The linear part of an XDP frame always holds the headers. */
static __always_inline void hook_pull_headers(hook_ctx *ctx)
{
}

static __always_inline bool hook_parse_frame(hook_ctx *ctx, struct frame *frame)
{
	struct ethhdr *eth = hook_data(ctx);
	void *end = hook_end(ctx);

	if ((void *)(eth + 1) > end)
		return false;
	frame->l3 = ETH_HLEN;
	frame->vlan = 0;
	frame->tagged = 0;
	frame->ethertype = bpf_ntohs(eth->h_proto);
	if (frame->ethertype != ETH_P_8021Q && frame->ethertype != ETH_P_8021AD)
		return true;
	__be16 *tag = (void *)(eth + 1);

	if ((void *)(tag + 2) > end)
		return false;
	frame->vlan = bpf_ntohs(tag[0]) & VLAN_ID;
	if (frame->ethertype == ETH_P_8021AD)
		frame->vlan |= VLAN_SERVICE;
	frame->ethertype = bpf_ntohs(tag[1]);
	frame->l3 = ETH_HLEN + VLAN_BYTES;
	frame->tagged = VLAN_BYTES;
	return frame_second_tag(ctx, frame);
}

/* The MAC addresses move by `bytes` towards the network layer; backwards if negative. */
static __always_inline bool hook_move_macs(hook_ctx *ctx, int bytes)
{
	__u64 macs;
	__u32 macs_rest;
	void *data = hook_data(ctx);

	if (data + ETH_HLEN > hook_end(ctx))
		return false;
	macs = *(__u64 *)data;
	macs_rest = *(__u32 *)(data + 8);
	if (bpf_xdp_adjust_head(ctx, bytes))
		return false;
	data = hook_data(ctx);
	if (data + ETH_HLEN > hook_end(ctx))
		return false;
	*(__u64 *)data = macs;
	*(__u32 *)(data + 8) = macs_rest;
	return true;
}

/* Leave with the tags of `vlan`; 0 = untagged. */
static __always_inline bool hook_set_vlan(hook_ctx *ctx, const struct frame *frame, __u32 vlan)
{
	__u32 have = frame->tagged, want = vlan_bytes(vlan);

	if (have != want && !hook_move_macs(ctx, (int)have - (int)want))
		return false;
	if (!vlan)
		return true;
	void *data = hook_data(ctx);

	if (data + ETH_HLEN + VLAN_BYTES > hook_end(ctx))
		return false;
	*(__be16 *)(data + 12) = vlan_outer_type(vlan);
	*(__be16 *)(data + 14) = bpf_htons(vlan & VLAN_ID);
	if (!(vlan & VLAN_TWO))
		return true;
	if (data + ETH_HLEN + 2 * VLAN_BYTES > hook_end(ctx))
		return false;
	*(__be16 *)(data + 16) = bpf_htons(ETH_P_8021Q);
	*(__be16 *)(data + 18) = bpf_htons(vlan_inner(vlan));
	return true;
}

static __always_inline bool hook_pop_vlan(hook_ctx *ctx, const struct frame *frame)
{
	return hook_set_vlan(ctx, frame, 0);
}

/* Into the host's stack, as a frame of the untagged device that carries the unit's addresses. */
static __always_inline int hook_to_host(hook_ctx *ctx, const struct frame *frame, const struct unit *unit)
{
	if (!(unit->flags & UNIT_HOST_VETH))
		return HOOK_PASS;
	__u32 peer = unit->host_peer_ifindex;

	return hook_pop_vlan(ctx, frame) ? bpf_redirect(peer, 0) : HOOK_DROP;
}

/* A verdict that travels in metadata to the tc program of the same device. */
static __always_inline int hook_leave_to_tc(hook_ctx *ctx, __u32 ifindex, __u32 family, const __u32 *be_addr)
{
	struct handoff *handoff;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*handoff)))
		return HOOK_DROP;
	handoff = (void *)(long)ctx->data_meta;
	if ((void *)(handoff + 1) > hook_data(ctx))
		return HOOK_DROP;
	handoff->magic = HANDOFF_MAGIC;
	handoff->host_ifindex = ifindex;
	handoff->family = family;
	for (int i = 0; i < 4; i++)
		handoff->be_addr[i] = be_addr ? be_addr[i] : 0;
	return HOOK_PASS;
}

/* XDP cannot wait for a neighbour. */
static __always_inline int hook_hand_off(hook_ctx *ctx, const struct frame *frame, __u32 host_ifindex,
					 const struct nexthop_key *to)
{
	bool known = to && to->host_ifindex == host_ifindex;

	if (!hook_pop_vlan(ctx, frame))
		return HOOK_DROP;
	return hook_leave_to_tc(ctx, host_ifindex, known ? to->family & 0xf : 0, to ? to->be_addr : NULL);
}

/* Generic XDP sends to every device, and hides metadata from tc. */
static __noinline int hook_leave_by_kernel(hook_ctx *ctx, __u32 ifindex)
{
	__u32 slot;

	if (unit_find(hook_ifindex(ctx), VLAN_GENERIC, &slot))
		return bpf_redirect(ifindex, 0);
	int action = hook_leave_to_tc(ctx, ifindex, HANDOFF_WHOLE, NULL);

	/* it counts as redirected, and which unit it leaves by is not known here */
	if (action == HOOK_DROP)
		count_drop(0, REASON_EGRESS_REWRITE, 1);
	return action;
}

static __always_inline int hook_redirect(hook_ctx *ctx, __u32 ifindex)
{
	if (ifindex & LEAVES_BY_KERNEL)
		return hook_leave_by_kernel(ctx, ifindex & ~LEAVES_BY_KERNEL);
	return bpf_redirect(ifindex, 0);
}

/* To the tc program of this device, which sends a copy and then the packet itself by a mobile device; else it goes on.
 */
static __always_inline int hook_copy(hook_ctx *ctx, __u32 ifindex, __u32 mark, __u32 own, __u32 unit_index,
				     __u32 number)
{
	struct copy_handoff *handoff;

	long failed = bpf_xdp_adjust_meta(ctx, -(int)sizeof(*handoff));

	handoff = (void *)(long)ctx->data_meta;
	if (failed || (void *)(handoff + 1) > hook_data(ctx)) {
		copy_is_lost(unit_index);
		return CONTINUE;
	}
	handoff->magic = COPY_MAGIC;
	handoff->ifindex = ifindex;
	handoff->mark = mark;
	handoff->own = own;
	handoff->unit = unit_index;
	handoff->number = number;
	return HOOK_PASS;
}

/* Nothing is beside an XDP frame. */
static __always_inline __u32 hook_mark(const hook_ctx *ctx)
{
	return 0;
}

/* Make room for `head` bytes before the frame, after cutting it to `len`. */
static __always_inline bool hook_reshape(hook_ctx *ctx, __u32 head, __u32 len)
{
	__u32 now = bpf_xdp_get_buff_len(ctx);

	if (now < len)
		return false;
	if (now > len && bpf_xdp_adjust_tail(ctx, (int)len - (int)now))
		return false;
	return !head || bpf_xdp_adjust_head(ctx, -(int)head) == 0;
}

/* The frame ends at `len`, whether it was longer or shorter. */
static __always_inline bool hook_resize(hook_ctx *ctx, __u32 len)
{
	return bpf_xdp_adjust_tail(ctx, (int)len - (int)bpf_xdp_get_buff_len(ctx)) == 0;
}

/* A word the transport checksum covers has changed. */
static __always_inline void hook_l4_check(hook_ctx *ctx, __u32 l4, __u32 field, __u16 be_old, __u16 be_new)
{
	__u16 *check = hook_data(ctx) + l4 + field;

	if ((void *)(check + 1) <= hook_end(ctx))
		*check = csum_add_word(*check, be_old, be_new);
}

/* Nobody keeps the sum of an XDP frame's bytes. */
static __always_inline void hook_sum_grows(hook_ctx *ctx, __u32 growth)
{
}

/* Addresses and ports have changed, `all` is the sum of that (RFC 1624). A UDP checksum of 0 stays 0 (RFC 768). */
static __always_inline bool hook_l4_sum(hook_ctx *ctx, __u32 at, __u64 addresses, __u64 all, bool udp, bool v6)
{
	__u16 *check = hook_data(ctx) + (at & 0x3fff);

	if ((void *)(check + 1) > hook_end(ctx))
		return false;
	__u32 be_check = *check;

	if (udp && !be_check)
		return true;
	__u16 be_new = ~csum_fold_sum((__u16)~be_check + all);

	*check = udp && !be_new ? 0xffff : be_new;
	return true;
}

static __always_inline bool hook_is_unsummed(hook_ctx *ctx)
{
	return false;
}

/* A frame from the wire has its checksums complete. */
static __always_inline bool hook_maybe_partial(__u16 be_check, __u32 pseudo_sum)
{
	return false;
}

static __always_inline __u32 hook_frame_len(hook_ctx *ctx)
{
	return bpf_xdp_get_buff_len(ctx);
}

/* The same of a frame in one piece; how long others are takes a call. */
static __always_inline bool hook_ends_at(hook_ctx *ctx, __u32 end)
{
	return (__u64)(hook_end(ctx) - hook_data(ctx)) == end || hook_frame_len(ctx) <= end;
}

static __always_inline bool hook_load(hook_ctx *ctx, __u32 offset, void *to, __u32 len)
{
	return bpf_xdp_load_bytes(ctx, offset, to, len) == 0;
}

static __always_inline bool hook_store(hook_ctx *ctx, __u32 offset, void *from, __u32 len)
{
	return bpf_xdp_store_bytes(ctx, offset, from, len) == 0;
}

static __always_inline bool hook_write(hook_ctx *ctx, __u32 offset, void *from, __u32 len)
{
	return hook_store(ctx, offset, from, len);
}

/* Nothing can be pulled into the linear part. */
static __always_inline bool hook_pull(hook_ctx *ctx, __u32 len)
{
	return (__u64)(hook_end(ctx) - hook_data(ctx)) >= len;
}

/*
 * The packet becomes one of the other family: `old_len` bytes from the IP header on give way to `new_len`, to be
 * written. The Ethernet header moves with its tag; with `link` false without the addresses, which are written next.
 */
static __always_inline bool hook_change_family(hook_ctx *ctx, struct frame *frame, __u32 old_len, __u32 new_len,
					       __u16 ethertype, bool link)
{
	void *data = hook_data(ctx);

	/* the kernel's way on tc takes no frames with two tags either */
	if (frame->tagged > VLAN_BYTES || data + ETH_HLEN + 4 > hook_end(ctx))
		return false;
	__u64 macs = link ? *(__u64 *)data : 0;
	__u32 macs_rest = link ? *(__u32 *)(data + 8) : 0, tag = *(__u32 *)(data + 12);

	if (bpf_xdp_adjust_head(ctx, (int)old_len - (int)new_len))
		return false;
	data = hook_data(ctx);
	if (data + ETH_HLEN + 4 > hook_end(ctx))
		return false;
	if (link) {
		*(__u64 *)data = macs;
		*(__u32 *)(data + 8) = macs_rest;
	}
	if (frame->tagged) {
		*(__u32 *)(data + 12) = tag;
		*(__be16 *)(data + 16) = bpf_htons(ethertype);
	} else {
		*(__be16 *)(data + 12) = bpf_htons(ethertype);
	}
	frame->ethertype = ethertype;
	return true;
}

/* The frame ends at `len`, which is less than it has. */
static __always_inline bool hook_trim(hook_ctx *ctx, __u32 len)
{
	return hook_resize(ctx, len);
}

/* The IP packet at `body` is all that stays of the frame, behind room for an Ethernet header. */
static __always_inline bool hook_take_out(hook_ctx *ctx, const struct frame *frame, __u32 body, __u8 wire)
{
	return bpf_xdp_adjust_head(ctx, (int)body - ETH_HLEN) == 0;
}

/*
 * What is at `from` gets `head` bytes of headers before it, in the place of what the frame has there, and a link header
 * with the tags of `vlan`; both are to be written. Returns where the headers begin, 0 = there is no room.
 */
static __always_inline __u32 hook_put_in(hook_ctx *ctx, const struct frame *frame, __u32 from, __u32 head, __u32 vlan,
					 __u8 family)
{
	__u32 link = ETH_HLEN + vlan_bytes(vlan);

	return bpf_xdp_adjust_head(ctx, (int)from - (int)(link + head)) ? 0 : link;
}

/* Type and tags behind the MAC addresses. */
static __always_inline bool hook_finish_link(hook_ctx *ctx, __u32 vlan, __be16 be_type)
{
	__be16 *at = hook_data(ctx) + 12;

	if (vlan) {
		if ((void *)(at + 3) > hook_end(ctx))
			return false;
		at[0] = vlan_outer_type(vlan);
		at[1] = bpf_htons(vlan & VLAN_ID);
		at += 2;
	}
	if (vlan & VLAN_TWO) {
		if ((void *)(at + 3) > hook_end(ctx))
			return false;
		at[0] = bpf_htons(ETH_P_8021Q);
		at[1] = bpf_htons(vlan_inner(vlan));
		at += 2;
	}
	if ((void *)(at + 1) > hook_end(ctx))
		return false;
	*at = be_type;
	return true;
}

#endif
