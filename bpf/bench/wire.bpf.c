// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The packet generator (run by prog-run with live frames) and its receiver.
 *
 * What a frame costs is nearly all the kernel's: page pool, bulk queue, the ring of the veth. So nothing is looked up:
 * a flow's addresses follow from its number, checksums from the sum of what all frames have in common. XDP_TX sends out
 * of the device the run names as ingress, without a call of a helper.
 */
#include "lib/bpf.h"
#include "bench/wire.h"

struct wire_order order SEC(".data.order") = {};
struct wire_inbox inbox SEC(".data.inbox") = {};
__u8 tail[WIRE_ROOM] SEC(".data.tail") = {};

/* A stall longer than this moves the schedule: a burst would be another load than the one asked for. */
#define STALL_NS 1000000

#define ARRAY(NAME, TYPE)                                                                                              \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                                      \
		__uint(max_entries, 1);                                                                                \
		__uint(map_flags, BPF_F_MMAPABLE);                                                                     \
		__type(key, __u32);                                                                                    \
		__type(value, TYPE);                                                                                   \
	} NAME SEC(".maps")

ARRAY(flows, struct wire_flow);
ARRAY(latency, struct wire_latency);
ARRAY(capture, struct wire_record);

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u8[WIRE_ROOM]);
} scratch SEC(".maps");

#define AT(TYPE, OFFSET) (*(TYPE *)(p + (OFFSET)))

/* The 16-bit one's complement of a sum of words. */
static __always_inline __u16 check_of(__u64 sum)
{
	__u32 low;

	sum = (sum >> 32) + (__u32)sum;
	low = (__u32)(sum >> 16) + (__u16)sum;
	low = (low >> 16) + (__u16)low;
	low = (low >> 16) + (__u16)low;
	return ~low;
}

struct numbers {
	__u32 flow;
	__u32 lap;
};

static __always_inline struct numbers next_numbers(void)
{
	struct numbers now = {.flow = order.cursor, .lap = order.lap};
	__u32 next = now.flow + order.stride;

	if (next >= order.flows)
		next -= order.flows;
	if (next == 0)
		order.lap = now.lap + 1;
	order.cursor = next;
	return now;
}

/* Pages are recycled, so every frame is written whole. */
static __always_inline void write_frame(void *p, const struct wire_shape *shape, struct numbers now, __u64 time)
{
	__u64 client = bpf_htonl(order.client_net | (now.flow & 0xffff));
	__u64 server = bpf_htonl(order.server_net | (now.flow * WIRE_SERVER_MIX) >> 20);
	__u32 from = WIRE_CLIENT_PORT + (now.flow >> 16), to = WIRE_SERVER_PORT, be_ports;
	__u32 be_flow = bpf_htonl(now.flow), be_lap = bpf_htonl(now.lap);
	__u32 be_time = bpf_htonl(time >> 16);
	__u16 be_time_low = bpf_htons(time), be_check;
	const void *e = order.ethernet;
	__u64 addresses = client + server;

	/* Otherwise clang knows its alignment, and makes four loads out of one that is not aligned. */
	barrier_var(e);
	be_ports = order.reply ? bpf_htonl(to << 16 | from) : bpf_htonl(from << 16 | to);
	AT(__u64, 0) = *(__u64 *)e;
	AT(__u64, 8) = *(__u32 *)(e + 8) | (__u64)bpf_htons(ETH_P_IP) << 32 | 0x0045ULL << 48;
	AT(__u64, 16) = shape->be_ip_len | (__u64)bpf_htons(0x4000) << 32 | (__u64)(WIRE_TTL | IPPROTO_UDP << 8) << 48;
	AT(__u16, 24) = check_of(addresses + shape->ip_sum);
	AT(__u64, 26) = order.reply ? server | client << 32 : client | server << 32;
	be_check = check_of(addresses + be_ports + be_flow + be_lap + be_time + be_time_low + shape->udp_sum);
	/* RFC 768: a checksum of zero says that there is none. */
	AT(__u64, 34) = be_ports | (__u64)shape->be_udp_len << 32 | (__u64)(be_check ?: 0xffff) << 48;
	AT(__u64, 42) = bpf_htonl(WIRE_MAGIC) | (__u64)be_flow << 32;
	AT(__u64, 50) = be_lap | (__u64)be_time << 32;
	AT(__u16, 58) = be_time_low;
}

/* One 64-byte frame, each its own. */
static __always_inline int send_smallest(struct xdp_md *ctx, __u64 now)
{
	void *p = (void *)(long)ctx->data;
	__u64 sent = order.sent;

	if (p + WIRE_HEAD > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	if (sent >= order.limit)
		return XDP_DROP;
	order.sent = sent + 1;
	write_frame(p, &order.shapes[0], next_numbers(), now);
	return XDP_TX;
}

/* Without a clock, as fast as they go. */
SEC("xdp.frags")
int wire_send(struct xdp_md *ctx)
{
	return send_smallest(ctx, 0);
}

/* With the time in the frame. Reading the clock waits for every load that is under way, so it comes first. */
SEC("xdp.frags")
int wire_send_stamped(struct xdp_md *ctx)
{
	return send_smallest(ctx, bpf_ktime_get_ns());
}

/* Sends its page as it is: what the kernel takes for a frame, whoever makes it. */
SEC("xdp.frags")
int wire_floor(struct xdp_md *ctx)
{
	__u64 sent = order.sent;

	if (sent >= order.limit)
		return XDP_DROP;
	order.sent = sent + 1;
	return XDP_TX;
}

/* Whether a frame may go now. */
static __always_inline bool due(__u64 now)
{
	__u64 since, next = order.next;

	if (order.sent == 0) {
		order.start_ns = now;
		order.next = order.gap;
		return true;
	}
	since = now - order.start_ns;
	if (since < next >> WIRE_GAP_SHIFT)
		return false;
	if (since - (next >> WIRE_GAP_SHIFT) > STALL_NS) {
		order.late_ns += since - (next >> WIRE_GAP_SHIFT);
		next = since << WIRE_GAP_SHIFT;
	}
	order.next = next + order.gap;
	return true;
}

static __always_inline const struct wire_shape *next_shape(void)
{
	__u32 at = order.shape;

	order.shape = at + 1 < order.shape_count ? at + 1 : 0;
	return at < WIRE_SHAPES ? &order.shapes[at] : NULL;
}

/* Paced, stamped, of any length; each of these costs only who asks for it. */
SEC("xdp.frags")
int wire_send_timed(struct xdp_md *ctx)
{
	const struct wire_shape *shape;
	__u64 now = 0;
	__u32 more;
	void *p;

	if (order.sent >= order.limit)
		return XDP_DROP;
	if (order.gap || order.stamped) {
		now = bpf_ktime_get_ns();
		if (order.gap && !due(now)) {
			order.withheld++;
			return XDP_DROP;
		}
		order.last_ns = now;
	}
	shape = next_shape();
	if (!shape)
		goto failed;
	more = shape->len - WIRE_HEAD;
	if (order.shape_count > 1 && bpf_xdp_adjust_tail(ctx, shape->len - (int)bpf_xdp_get_buff_len(ctx)))
		goto failed;
	if (more && (more > WIRE_LONGEST - WIRE_HEAD || bpf_xdp_store_bytes(ctx, WIRE_HEAD, tail, more)))
		goto failed;
	p = (void *)(long)ctx->data;
	if (p + WIRE_HEAD > (void *)(long)ctx->data_end)
		goto failed;
	order.sent++;
	order.bytes += shape->len;
	write_frame(p, shape, next_numbers(), order.stamped ? now : 0);
	return XDP_TX;
failed:
	order.failures++;
	return XDP_ABORTED;
}

/* Every record of a capture once, at its own time or as fast as it goes. */
SEC("xdp.frags")
int wire_replay(struct xdp_md *ctx)
{
	__u32 at = order.sent, len;
	struct wire_record *record;
	__u64 now;

	if (order.sent >= order.limit)
		return XDP_DROP;
	record = bpf_map_lookup_elem(&capture, &at);
	if (!record)
		return XDP_ABORTED;
	if (order.from_pass) {
		now = bpf_ktime_get_ns();
		if (at == 0)
			order.start_ns = now;
		if (now - order.start_ns < record->due_ns) {
			order.withheld++;
			return XDP_DROP;
		}
		order.last_ns = now;
	}
	len = record->len;
	if (len < ETH_HLEN || len > WIRE_LONGEST || bpf_xdp_adjust_tail(ctx, len - (int)bpf_xdp_get_buff_len(ctx)) ||
	    bpf_xdp_store_bytes(ctx, 0, record->bytes, len)) {
		order.failures++;
		return XDP_ABORTED;
	}
	order.sent++;
	order.bytes += len;
	return XDP_TX;
}

/* The sum of `len` bytes behind the head; they are copied, because a helper may not read a packet of unknown length. */
static __always_inline __u64 sum_tail(struct xdp_md *ctx, __u32 len)
{
	__u32 zero = 0, padded;
	__u8 *copy = bpf_map_lookup_elem(&scratch, &zero);
	__u64 sum = 0;

	if (!copy || len < 1 || len > WIRE_LONGEST - WIRE_HEAD || bpf_xdp_load_bytes(ctx, WIRE_HEAD, copy, len))
		return 0;
	for (int i = 0; i < 4; i++)
		copy[len + i] = 0;
	padded = (len + 3) & ~3;
	for (int at = 0; at < 1536; at += 512) {
		__u32 part = padded - at;

		if (padded <= at)
			break;
		if (part > 512)
			part = 512;
		sum += (__u32)bpf_csum_diff(NULL, 0, (__be32 *)(copy + at), part, 0);
	}
	return sum;
}

static __always_inline __u32 bucket_of(__u64 ns)
{
	__u32 octave = 0;

	for (int bits = 32; bits >= 1; bits /= 2)
		if (ns >> octave >= 1ULL << (bits + WIRE_SUB_BITS))
			octave += bits;
	/* Values below 2^(WIRE_SUB_BITS + 1) are their own bucket. */
	return (octave << WIRE_SUB_BITS) + (__u32)(ns >> octave);
}

static __always_inline void count_latency(__u32 cpu, __u64 ns)
{
	struct wire_latency *mine = bpf_map_lookup_elem(&latency, &cpu);
	__u32 bucket = bucket_of(ns);

	if (mine && bucket < WIRE_BUCKETS)
		mine->bucket[bucket]++;
}

/* New, late, seen before: by the lap of a frame within its flow. */
static __always_inline void place(struct wire_counters *mine, struct wire_flow *flow, __u32 lap)
{
	__s32 ahead = lap - flow->next;
	__u32 back = -(ahead + 1);

	if (ahead >= 0) {
		flow->window = ahead >= 63 ? 1 : flow->window << (ahead + 1) | 1;
		flow->next = lap + 1;
		mine->distinct++;
	} else if (back > 63) {
		mine->stale++;
	} else if (flow->window >> back & 1) {
		mine->duplicates++;
	} else {
		flow->window |= 1ULL << back;
		mine->distinct++;
		mine->reordered++;
		if (back > mine->extent)
			mine->extent = back;
	}
}

static __always_inline bool is_ours(void *p, void *end)
{
	return p + WIRE_HEAD <= end && AT(__u16, 12) == bpf_htons(ETH_P_IP) && AT(__u8, 14) == 0x45 &&
	       AT(__u8, 23) == IPPROTO_UDP && AT(__u32, 42) == bpf_htonl(WIRE_MAGIC);
}

/* Whether the frame is the one that was sent; counts what is wrong with it. */
static __always_inline bool is_whole(struct xdp_md *ctx, void *p, struct wire_counters *mine, __u32 len)
{
	__u64 ip = 0,
	      udp = (__u64)AT(__u32, 26) + AT(__u32, 30) + bpf_htons(IPPROTO_UDP) + AT(__u16, 38) + AT(__u16, 58);
	__u64 rest = 0;

#pragma unroll
	for (int at = 14; at < 34; at += 4)
		ip += AT(__u32, at);
#pragma unroll
	for (int at = 34; at < 58; at += 4)
		udp += AT(__u32, at);
	if (check_of(ip)) {
		mine->bad_ip++;
		return false;
	}
	if (len > WIRE_LONGEST || len != ETH_HLEN + bpf_ntohs(AT(__u16, 16)) ||
	    len != ETH_HLEN + sizeof(struct iphdr) + bpf_ntohs(AT(__u16, 38))) {
		mine->bad_length++;
		return false;
	}
	if (len > WIRE_HEAD)
		rest = sum_tail(ctx, len - WIRE_HEAD);
	if (check_of(udp + rest)) {
		mine->bad_udp++;
		return false;
	}
	if ((__u16)~check_of(rest) != inbox.tail_sum[len & (WIRE_ROOM - 1)]) {
		mine->bad_tail++;
		return false;
	}
	return true;
}

SEC("xdp.frags")
int wire_receive(struct xdp_md *ctx)
{
	void *p = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 cpu = bpf_get_smp_processor_id() % WIRE_CPUS;
	struct wire_counters *mine = &inbox.cpu[cpu];
	struct wire_flow *flow;
	__u32 number, lap, len;
	__u64 time, now;

	if (!is_ours(p, end)) {
		mine->foreign++;
		return XDP_PASS;
	}
	len = bpf_xdp_get_buff_len(ctx);
	mine->received++;
	mine->bytes += len;
	number = bpf_ntohl(AT(__u32, 46));
	lap = bpf_ntohl(AT(__u32, 50));
	time = (__u64)bpf_ntohl(AT(__u32, 54)) << 16 | bpf_ntohs(AT(__u16, 58));
	if (AT(__u8, 22) != WIRE_TTL)
		mine->forwarded++;
	if (!is_whole(ctx, p, mine, len))
		return XDP_DROP;
	flow = bpf_map_lookup_elem(&flows, &number);
	if (!flow || number >= inbox.flows) {
		mine->bad_tail++;
		return XDP_DROP;
	}
	place(mine, flow, lap);
	if (inbox.timed) {
		now = bpf_ktime_get_ns();
		if (!mine->first_ns)
			mine->first_ns = now;
		mine->last_ns = now;
		if (time)
			count_latency(cpu, (now - time) & 0xffffffffffffULL);
	}
	return XDP_DROP;
}

/* Counts and drops, nothing else: what a generator can do at most. */
SEC("xdp.frags")
int wire_drop(struct xdp_md *ctx)
{
	void *p = (void *)(long)ctx->data;
	struct wire_counters *mine = &inbox.cpu[bpf_get_smp_processor_id() % WIRE_CPUS];

	if (!is_ours(p, (void *)(long)ctx->data_end)) {
		mine->foreign++;
		return XDP_PASS;
	}
	mine->received++;
	return XDP_DROP;
}

/* Gives a veth NAPI, so that frames can be redirected to its peer, and changes nothing. */
SEC("xdp.frags")
int wire_pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
