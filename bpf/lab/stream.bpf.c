// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A numbered packet stream and its sink, for exact accounting.
 *
 * `stream_send` runs under live-frames prog-run: every run writes one whole 64-byte UDP frame (pages are recycled) and
 * redirects it. Frame n belongs to flow n mod `flows`; its payload carries n. Every `denied_every`-th frame belongs to
 * a flow that the gateway must not pass. `stream_sink` counts what arrives, by flow and by denied or not, and notes
 * numbers seen twice or out of order within their flow.
 *
 * A veth holds 256 frames and drops the rest when another CPU polls it and is busy. No more than WINDOW frames are
 * therefore under way at one time: what is missing in the end was not lost by the generator's own device. Frames that
 * do not arrive within STALL_NS are given up, so a loss neither hides nor stops the stream.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_FLOWS 16384
#define STREAM_MAGIC 0x736c7569
#define DENIED_PORT 9
#define WINDOW 128
#define STALL_NS 500000000ULL
#define TIMELINE 65536
#define TICK_NS 1000000ULL

struct stream_payload {
	__be32 magic;
	__u32 flow;
	__u64 number; /* within the flow, from 0 */
};

struct stream_frame {
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
	struct stream_payload payload;
	__u8 padding[6];
} __attribute__((packed));
_Static_assert(sizeof(struct stream_frame) == 64, "64 bytes without the frame check sequence");

/* Set before load. */
const volatile __u32 flows = 1;
const volatile __u32 denied_every = 0; /* 0 = never */
const volatile __u32 out_ifindex = 0;
const volatile __u8 frame_dmac[ETH_ALEN];
const volatile __u8 frame_smac[ETH_ALEN];
const volatile __be32 frame_saddr = 0;
const volatile __be32 frame_daddr = 0;
const volatile __u16 first_sport = 10000;
const volatile __u16 dport = 7777;

/* Nanoseconds between frames; 0 = as fast as it goes. Any value can be written while it runs. */
__u64 gap_ns = 0;
__u32 stop = 0;

__u64 sent_denied = 0;
__u64 sent_total = 0;
__u64 next_due = 0;
__u64 given_up = 0;
__u64 stalled_since = 0;
__u64 arrived_then = 0;
__u64 arrived = 0;
__u64 arrived_denied = 0;
__u64 arrived_twice_or_late = 0;
__u64 foreign = 0;

/* When packets arrived. */
__u64 first_arrival = 0;
__u64 last_arrival = 0;
__u64 longest_gap = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_FLOWS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} sent SEC(".maps"), received SEC(".maps"), highest SEC(".maps");

/* Arrivals in every tick since the first one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TIMELINE);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} timeline SEC(".maps");

static __always_inline __sum16 ip_checksum(const struct iphdr *ip)
{
	const __u16 *words = (const void *)ip;
	__u32 sum = 0;

	for (int i = 0; i < 10; i++)
		sum += words[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static __always_inline void write_frame(struct stream_frame *f, __u32 flow, __u64 number, bool denied)
{
	struct iphdr ip = {
		.version = 4,
		.ihl = 5,
		.tot_len = bpf_htons(sizeof(*f) - sizeof(f->eth)),
		.ttl = 64,
		.protocol = IPPROTO_UDP,
		.saddr = frame_saddr,
		.daddr = frame_daddr,
	};

	for (int i = 0; i < ETH_ALEN; i++) {
		f->eth.h_dest[i] = frame_dmac[i];
		f->eth.h_source[i] = frame_smac[i];
	}
	f->eth.h_proto = bpf_htons(ETH_P_IP);
	ip.check = ip_checksum(&ip);
	f->ip = ip;
	f->udp.source = bpf_htons(first_sport + flow);
	f->udp.dest = bpf_htons(denied ? DENIED_PORT : dport);
	f->udp.len = bpf_htons(sizeof(*f) - sizeof(f->eth) - sizeof(f->ip));
	f->udp.check = 0;
	f->payload.magic = bpf_htonl(STREAM_MAGIC);
	f->payload.flow = flow;
	f->payload.number = number;
	__builtin_memset(f->padding, 0, sizeof(f->padding));
}

static __always_inline bool due(void)
{
	__u64 gap = *(volatile __u64 *)&gap_ns;
	__u64 now;

	if (!gap)
		return true;
	now = bpf_ktime_get_ns();
	if (now < next_due)
		return false;
	/* After a pause it does not try to catch up. */
	next_due = (now - next_due > 1000000 ? now : next_due) + gap;
	return true;
}

/* Is there room for another frame on the way? */
static __always_inline bool window_open(void)
{
	__u64 seen = *(volatile __u64 *)&arrived;
	__s64 under_way = sent_total - sent_denied - given_up - seen;
	__u64 now;

	if (under_way < WINDOW) {
		stalled_since = 0;
		return true;
	}
	now = bpf_ktime_get_ns();
	if (!stalled_since || seen != arrived_then) {
		stalled_since = now;
		arrived_then = seen;
	} else if (now - stalled_since > STALL_NS) {
		given_up += under_way;
		stalled_since = 0;
	}
	return false;
}

/* One instance runs at a time: the counters need no atomics. */
SEC("xdp")
int stream_send(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u64 n = sent_total;
	__u64 *number;
	bool denied;
	__u32 flow;

	if (data + sizeof(struct stream_frame) > end)
		return XDP_ABORTED;
	if (*(volatile __u32 *)&stop || !window_open() || !due())
		return XDP_DROP;
	denied = denied_every && n % denied_every == denied_every - 1;
	flow = n % flows;
	number = bpf_map_lookup_elem(&sent, &flow);
	if (!number)
		return XDP_ABORTED;
	write_frame(data, flow, *number, denied);
	if (denied)
		sent_denied++;
	else
		(*number)++;
	sent_total = n + 1;
	return bpf_redirect(out_ifindex, 0);
}

/* Two CPUs may meet here when the stream moves from one to the other: a gap is then seen by at least one of them. */
static __always_inline void note_time(void)
{
	__u64 now = bpf_ktime_get_ns(), last = last_arrival;
	__u64 *count;
	__u32 tick;

	if (!first_arrival)
		first_arrival = now;
	else if (now > last && now - last > longest_gap)
		longest_gap = now - last;
	last_arrival = now;
	tick = (now - first_arrival) / TICK_NS;
	count = bpf_map_lookup_elem(&timeline, &tick);
	if (count)
		__sync_fetch_and_add(count, 1);
}

static __always_inline void account(__u32 flow, __u64 number)
{
	__u64 *count = bpf_map_lookup_elem(&received, &flow);
	__u64 *high = bpf_map_lookup_elem(&highest, &flow);

	if (!count || !high) {
		__sync_fetch_and_add(&foreign, 1);
		return;
	}
	__sync_fetch_and_add(count, 1);
	__sync_fetch_and_add(&arrived, 1);
	note_time();
	if (number + 1 <= *high)
		__sync_fetch_and_add(&arrived_twice_or_late, 1);
	else
		*high = number + 1;
}

SEC("xdp")
int stream_sink(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct stream_frame *f = data;

	if (data + sizeof(*f) > end || f->eth.h_proto != bpf_htons(ETH_P_IP) || f->ip.protocol != IPPROTO_UDP ||
	    f->payload.magic != bpf_htonl(STREAM_MAGIC))
		return XDP_PASS;
	if (f->udp.dest == bpf_htons(DENIED_PORT))
		__sync_fetch_and_add(&arrived_denied, 1);
	else
		account(f->payload.flow, f->payload.number);
	return XDP_DROP;
}

/* Lets a veth accept redirected frames (NAPI) and changes nothing. */
SEC("xdp")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
