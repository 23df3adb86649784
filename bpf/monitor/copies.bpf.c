// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Copies of a gateway port's frames for the monitor. On XDP the program takes the root's place on the device and calls
 * it when the copy is made; on tc it stands in front of it. The gateway's own programs need not know of it, and pay
 * nothing while nobody listens. Frames that XDP redirects are among the copies; no packet socket ever sees them.
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "copies.h"

#define HEADERS 160 /* two VLAN tags, an IPv4 header with all options, ports */
#define VLAN_TAG 4

#define ETH_P_EAPOL 0x888e

#define PORT_IKE 500
#define PORT_NAT_T 4500
#define PORT_GTP_U 2152

#define MILLISECOND_BITS 20 /* 2^20 ns: near enough */

const volatile struct copies_config config SEC(".rodata.config") = {};
struct copies_lost lost SEC(".data.lost") = {};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, COPIES_RING_BYTES);
} copies SEC(".maps");

struct budget {
	__u64 millisecond;
	__u64 used;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct budget);
} budgets SEC(".maps");

/* The program whose place this one took. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} copied_root SEC(".maps");

struct frame {
	void *ctx;
	bool is_xdp;
	__u32 length;
	__u16 vlan_tci;
	__u16 be_vlan_tpid;
};

/*
 * Copies the beginning of the frame, at most `room` bytes; returns how many. The bounds are compared one by one: where
 * the compiler makes one comparison of both, verifiers before 6.18 do not know that the length is not 0.
 */
static __always_inline __u32 load(const struct frame *frame, void *to, __u32 room)
{
	__u32 length = frame->length;

	if (length > room)
		length = room;
	barrier_var(length);
	if (length < ETH_HLEN)
		return 0;
	barrier_var(length);
	if (length > room)
		return 0;
	long failed = frame->is_xdp ? bpf_xdp_load_bytes(frame->ctx, 0, to, length)
				    : bpf_skb_load_bytes(frame->ctx, 0, to, length);

	return failed ? 0 : length;
}

static __always_inline __u16 be16_at(const __u8 *head, __u32 at)
{
	return at + 2 <= HEADERS ? head[at] << 8 | head[at + 1] : 0;
}

static __always_inline bool is_followed_port(__u16 port)
{
	return port == PORT_IKE || port == PORT_NAT_T || port == PORT_GTP_U;
}

static __always_inline bool is_followed_l4(const __u8 *head, __u8 protocol, __u32 l4)
{
	switch (protocol) {
	case 17:
		return is_followed_port(be16_at(head, l4)) || is_followed_port(be16_at(head, l4 + 2));
	case 50: /* ESP */
	case 51: /* AH */
		return true;
	default:
		return false;
	}
}

/* IPv6 extension headers are the monitor's to walk. */
static __always_inline bool is_extension(__u8 next)
{
	return next == 0 || next == 43 || next == 44 || next == 60 || next == 135;
}

static __always_inline bool is_followed(const __u8 *head)
{
	__u32 l3 = 14;
	__u16 type = be16_at(head, 12);

	for (int i = 0; i < 2; i++) {
		if (type != 0x8100 && type != 0x88a8 && type != 0x9100)
			break;
		type = be16_at(head, l3 + 2);
		l3 += VLAN_TAG;
	}
	if (type == ETH_P_MACSEC || type == ETH_P_EAPOL)
		return true;
	if (type == ETH_P_IP)
		return is_followed_l4(head, head[l3 + 9], l3 + (head[l3] & 0x0f) * 4);
	if (type == ETH_P_IPV6)
		return is_extension(head[l3 + 6]) || is_followed_l4(head, head[l3 + 6], l3 + 40);
	return false;
}

static __always_inline bool is_within_rate(void)
{
	__u32 zero = 0;
	struct budget *budget = bpf_map_lookup_elem(&budgets, &zero);
	__u64 now = bpf_ktime_get_ns() >> MILLISECOND_BITS;

	if (!budget)
		return false;
	if (budget->millisecond != now) {
		budget->millisecond = now;
		budget->used = 0;
	}
	budget->used++;
	return budget->used <= config.most_per_millisecond;
}

#define DEFINE_COPY(NAME, ROOM)                                                                                        \
	struct copy_##NAME {                                                                                           \
		struct copy head;                                                                                      \
		__u8 data[ROOM];                                                                                       \
	};                                                                                                             \
	static __always_inline void copy_##NAME(const struct frame *frame)                                             \
	{                                                                                                              \
		struct copy_##NAME *copy = bpf_ringbuf_reserve(&copies, sizeof(*copy), 0);                             \
                                                                                                                       \
		if (!copy) {                                                                                           \
			__sync_fetch_and_add(&lost.full, 1);                                                           \
			return;                                                                                        \
		}                                                                                                      \
		copy->head.time_ns = bpf_ktime_get_ns();                                                               \
		copy->head.wire_len = frame->length;                                                                   \
		copy->head.vlan_tci = frame->vlan_tci;                                                                 \
		copy->head.be_vlan_tpid = frame->be_vlan_tpid;                                                         \
		copy->head.captured = load(frame, copy->data, ROOM);                                                   \
		bpf_ringbuf_submit(copy, 0);                                                                           \
	}

DEFINE_COPY(short, COPY_SHORT)
DEFINE_COPY(middle, COPY_MIDDLE)
DEFINE_COPY(long, COPY_LONG)

static __always_inline void copy_frame(const struct frame *frame)
{
	__u8 head[HEADERS];

	__builtin_memset(head, 0, sizeof(head));
	if (!load(frame, head, HEADERS))
		return;
	if (!config.everything && !is_followed(head))
		return;
	if (!is_within_rate()) {
		__sync_fetch_and_add(&lost.rate, 1);
		return;
	}
	if (frame->length <= COPY_SHORT)
		copy_short(frame);
	else if (frame->length <= COPY_MIDDLE)
		copy_middle(frame);
	else
		copy_long(frame);
}

static __always_inline void copy_skb(struct __sk_buff *ctx)
{
	struct frame frame = {.ctx = ctx, .length = ctx->len};

	if (ctx->vlan_present) {
		frame.vlan_tci = ctx->vlan_tci;
		frame.be_vlan_tpid = ctx->vlan_proto;
	}
	copy_frame(&frame);
}

/* What the port received, before XDP decides. */
SEC("xdp.frags")
int copy_xdp(struct xdp_md *ctx)
{
	struct frame frame = {.ctx = ctx, .is_xdp = true, .length = bpf_xdp_get_buff_len(ctx)};

	copy_frame(&frame);
	bpf_tail_call(ctx, &copied_root, 0);
	return XDP_DROP; /* fail closed, as the root does */
}

/* What the port received, before tc decides. */
SEC("tc")
int copy_received(struct __sk_buff *ctx)
{
	copy_skb(ctx);
	return TC_ACT_UNSPEC; /* on to the next program */
}

/* What the kernel sends out of the port. */
SEC("tc")
int copy_sent(struct __sk_buff *ctx)
{
	copy_skb(ctx);
	return TC_ACT_UNSPEC; /* on to the next program */
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
