// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Packets into tunnels and out of them, on the XDP hook. A target leaves the frame shorter or longer than it was, and a
 * repeated prog-run does not take that back: the wrapper does, with one more call of bpf_xdp_adjust_head. What that
 * costs is measured by `resize`, which makes a second one and nothing else, and is taken off every figure.
 */
#include "lib/bpf.h"
#include "abi/gtpu.h"
#include "bench/gtpu.h"
#include "gtpu/usage.h"

struct gtpu_state tunnels SEC(".data.tunnels") = {};

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} target SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct gtpu_entry);
} tunnel_ring SEC(".maps");

/* A line a session. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct gtpu_floor_line);
} tunnel_floor SEC(".maps");

/* Lines as the gateway has them, one a session. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct gtpu_line);
} tunnel_lines SEC(".maps");

#define AT(TYPE, OFFSET) (*(TYPE *)(p + (OFFSET)))

static __always_inline void count_packet(void)
{
	__u64 n = tunnels.count;

	if (n == 0)
		tunnels.first_ns = bpf_ktime_get_ns();
	else if (n == tunnels.last)
		tunnels.last_ns = bpf_ktime_get_ns();
	tunnels.count = n + 1;
}

static __always_inline const struct gtpu_entry *next_entry(void)
{
	__u32 at = tunnels.cursor;

	tunnels.cursor = at + 1 < tunnels.ring_size ? at + 1 : 0;
	return bpf_map_lookup_elem(&tunnel_ring, &at);
}

/* The frame as it was before the last target. */
static __always_inline bool restore(struct xdp_md *ctx, __u32 length)
{
	__s32 more = (__s32)(ctx->data_end - ctx->data) - (__s32)length;

	return !more || !bpf_xdp_adjust_head(ctx, more);
}

/* `inner` is where the inner packet begins; everything before it is the template's, but for the TEID. */
static __always_inline int wrap(struct xdp_md *ctx, const __u32 length, const __u32 inner)
{
	const struct gtpu_entry *entry = next_entry();

	if (!entry || !restore(ctx, length))
		goto failed;
	void *p = (void *)(long)ctx->data;
	const void *f = tunnels.frame;

	if (p + length > (void *)(long)ctx->data_end)
		goto failed;
	barrier_var(f);
	for (__u32 i = 0; i + 8 <= length; i += 8)
		AT(__u64, i) = *(const __u64 *)(f + i);
	for (__u32 i = length & ~7u; i + 2 <= length; i += 2)
		AT(__u16, i) = *(const __u16 *)(f + i);
	if (inner > 14)
		AT(__u32, 14 + 28 + 4) = entry->be_teid;
	AT(__u16, inner + 10) = entry->be_ip_check;
	AT(__u32, inner + 12) = entry->be_saddr;
	AT(__u32, inner + 16) = entry->be_daddr;
	AT(__u32, inner + 20) = *(const __u32 *)&entry->be_sport;
	count_packet();
	bpf_tail_call_static(ctx, &target, 0);
failed:
	tunnels.failures++;
	return XDP_ABORTED;
}

SEC("xdp.frags")
int wrap_uplink(struct xdp_md *ctx)
{
	return wrap(ctx, GTPU_UPLINK_LEN, 14 + GTPU_OUTER);
}

SEC("xdp.frags")
int wrap_downlink(struct xdp_md *ctx)
{
	return wrap(ctx, GTPU_DOWNLINK_LEN, 14);
}

SEC("xdp.frags")
int empty(struct xdp_md *ctx)
{
	return XDP_DROP;
}

/* One reading of the clock that policers have. */
SEC("xdp.frags")
int clock(struct xdp_md *ctx)
{
	tunnels.last_clock = bpf_ktime_get_ns();
	return XDP_DROP;
}

/* Makes the wrapper restore the frame: twice what that costs. */
SEC("xdp.frags")
int resize_uplink(struct xdp_md *ctx)
{
	return bpf_xdp_adjust_head(ctx, GTPU_OUTER) ? XDP_ABORTED : XDP_DROP;
}

SEC("xdp.frags")
int resize_downlink(struct xdp_md *ctx)
{
	return bpf_xdp_adjust_head(ctx, -GTPU_OUTER) ? XDP_ABORTED : XDP_DROP;
}

static __always_inline int fail(void)
{
	tunnels.failures++;
	return XDP_ABORTED;
}

/* The least that takes packets out of tunnels: TEID, one lookup, headers off, addresses of the next hop, redirect. */
SEC("xdp.frags")
int floor_uplink(struct xdp_md *ctx)
{
	void *p = (void *)(long)ctx->data;

	if (p + GTPU_UPLINK_LEN > (void *)(long)ctx->data_end || AT(__u16, 14 + 20 + 2) != bpf_htons(GTPU_PORT))
		return fail();
	__u32 session = bpf_ntohl(AT(__u32, 14 + 28 + 4)) - tunnels.first_teid;
	const struct gtpu_floor_line *line = bpf_map_lookup_elem(&tunnel_floor, &session);

	if (!line || bpf_xdp_adjust_head(ctx, GTPU_OUTER))
		return fail();
	p = (void *)(long)ctx->data;
	if (p + 14 > (void *)(long)ctx->data_end)
		return fail();
	__builtin_memcpy(p, line->headers, 14);
	return bpf_redirect(tunnels.out_ifindex, 0);
}

/* The same with a line as the gateway has it, on which usage is counted as there, or is not. */
static __always_inline int line_uplink(struct xdp_md *ctx, const bool counts)
{
	void *p = (void *)(long)ctx->data;

	if (p + GTPU_UPLINK_LEN > (void *)(long)ctx->data_end || AT(__u16, 14 + 20 + 2) != bpf_htons(GTPU_PORT))
		return fail();
	__u32 teid = bpf_ntohl(AT(__u32, 14 + 28 + 4)), session = teid - tunnels.first_teid;
	struct gtpu_line *line = bpf_map_lookup_elem(&tunnel_lines, &session);

	if (!line || line->teid != teid || (counts && !gtpu_count(line, GTPU_INNER)))
		return fail();
	if (bpf_xdp_adjust_head(ctx, GTPU_OUTER))
		return fail();
	p = (void *)(long)ctx->data;
	if (p + 14 > (void *)(long)ctx->data_end)
		return fail();
	__builtin_memcpy(p, tunnels.link, 14);
	return bpf_redirect(tunnels.out_ifindex, 0);
}

SEC("xdp.frags")
int uncounted_uplink(struct xdp_md *ctx)
{
	return line_uplink(ctx, false);
}

SEC("xdp.frags")
int counted_uplink(struct xdp_md *ctx)
{
	return line_uplink(ctx, true);
}

/* The least that puts packets into tunnels: address, one lookup, the session's headers before the packet, redirect. */
SEC("xdp.frags")
int floor_downlink(struct xdp_md *ctx)
{
	void *p = (void *)(long)ctx->data;

	if (p + GTPU_DOWNLINK_LEN > (void *)(long)ctx->data_end || AT(__u16, 12) != bpf_htons(ETH_P_IP))
		return fail();
	__u32 session = bpf_ntohl(AT(__u32, 14 + 16)) - tunnels.first_subscriber;
	const struct gtpu_floor_line *line = bpf_map_lookup_elem(&tunnel_floor, &session);

	if (!line || bpf_xdp_adjust_head(ctx, -GTPU_OUTER))
		return fail();
	p = (void *)(long)ctx->data;
	if (p + 14 + GTPU_OUTER > (void *)(long)ctx->data_end)
		return fail();
	__builtin_memcpy(p, line->headers, 14 + GTPU_OUTER);
	return bpf_redirect(tunnels.out_ifindex, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
