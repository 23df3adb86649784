// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Live frames: a generator (run by prog-run with live frames), its sink, and the least a tc redirect can do.
 */
#include "lib/bpf.h"
#include "bench/bench.h"
#include "bench/gtpu.h"

struct frames_state frames SEC(".data.frames") = {};
struct sink_state sink SEC(".data.sink") = {};
struct bare_state bare SEC(".data.bare") = {};
struct fanout_floor floor_state SEC(".data.floor") = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct ring_entry4);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct kept_frame);
} kept_frames SEC(".maps");

#define AT(TYPE, OFFSET) (*(TYPE *)(p + (OFFSET)))
#define FRAME(TYPE, OFFSET) (*(const TYPE *)&frames.frame[OFFSET])

static __always_inline bool due(void)
{
	__u64 gap = frames.gap_ns;
	__u64 now;

	if (!gap)
		return true;
	if (frames.left) {
		frames.left--;
		return true;
	}
	now = bpf_ktime_get_ns();
	if (now < frames.next_due)
		return false;
	/* After a stall it goes on from here: a burst would be another load than the one asked for. */
	frames.next_due = (now - frames.next_due > 1000000 ? now : frames.next_due) + gap;
	frames.left = frames.burst;
	return true;
}

/* All that is before the inner packet of an N3 frame. */
static __always_inline void write_outer(void *p, __u32 be_subscriber)
{
	_Static_assert(14 + GTPU_OUTER == 7 * 8 + 2, "seven words and a half of one");
	for (__u32 i = 0; i < 7 * 8; i += 8)
		AT(__u64, i) = *(const __u64 *)&frames.outer[i];
	AT(__u16, 56) = *(const __u16 *)&frames.outer[56];
	AT(__u32, 14 + 28 + 4) = bpf_htonl(bpf_ntohl(be_subscriber) + frames.teid_less_address);
}

/* Pages are recycled, so every frame is written whole. `outer` bytes stand before the frame's own packet. */
static __always_inline int send(struct xdp_md *ctx, const __u32 outer)
{
	void *p = (void *)(long)ctx->data;
	__u32 at = frames.cursor;
	struct ring_entry4 *entry;

	if (p + outer + FRAME4_LEN > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	if (frames.stop || !due()) {
		frames.withheld++;
		return XDP_DROP;
	}
	frames.cursor = at + 1 < frames.flows ? at + 1 : 0;
	entry = bpf_map_lookup_elem(&flows, &at);
	if (!entry)
		return XDP_ABORTED;
	if (outer) {
		write_outer(p, entry->be_saddr);
		p += outer;
	} else {
		AT(__u64, 0) = FRAME(__u64, 0);
		AT(__u32, 8) = FRAME(__u32, 8);
		AT(__u16, 12) = FRAME(__u16, 12);
	}
	AT(__u64, 14) = FRAME(__u64, 14);
	AT(__u32, 22) = FRAME(__u16, 22) | (__u32)entry->be_ip_check << 16;
	AT(__u64, 26) = *(__u64 *)&entry->be_saddr;
	AT(__u32, 34) = *(__u32 *)&entry->be_sport;
	AT(__u32, 38) = FRAME(__u16, 38) | (__u32)entry->be_l4_check << 16;
	AT(__u64, 42) = FRAME(__u64, 42);
	AT(__u64, 50) = FRAME(__u64, 50);
	AT(__u16, 58) = FRAME(__u16, 58);
	frames.sent++;
	return bpf_redirect(frames.out_ifindex, 0);
}

SEC("xdp.frags")
int frames_send(struct xdp_md *ctx)
{
	return send(ctx, 0);
}

SEC("xdp.frags")
int frames_send_n3(struct xdp_md *ctx)
{
	return send(ctx, GTPU_OUTER);
}

/* Never in a timed window. */
static __noinline void keep(struct xdp_md *ctx)
{
	__u32 at = __sync_fetch_and_add(&sink.kept, 1);
	void *p = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct kept_frame *kept = bpf_map_lookup_elem(&kept_frames, &at);

	if (!kept || p + FRAME4_LEN > end)
		return;
	kept->length = end - p;
	__builtin_memcpy(kept->bytes, p, FRAME4_LEN);
}

/* Counts bench frames and drops them; everything else belongs to the stack. */
static __always_inline int take(struct xdp_md *ctx, const __u32 outer)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct iphdr *ip = (void *)(eth + 1) + outer;
	__u32 *magic = (void *)(ip + 1) + sizeof(struct udphdr);
	struct sink_counters *mine = &sink.cpu[bpf_get_smp_processor_id() % SINK_CPUS];

	if ((void *)(magic + 1) > (void *)(long)ctx->data_end || eth->h_proto != bpf_htons(ETH_P_IP) ||
	    ip->protocol != IPPROTO_UDP || *magic != bpf_htonl(SINK_MAGIC)) {
		mine->foreign++;
		return XDP_PASS;
	}
	if (sink.keep)
		keep(ctx);
	if (ip->ttl == FRAME_TTL)
		mine->untouched++;
	else
		mine->forwarded++;
	return XDP_DROP;
}

SEC("xdp.frags")
int frames_sink(struct xdp_md *ctx)
{
	return take(ctx, 0);
}

/* The same of bench frames that are in a tunnel. */
SEC("xdp.frags")
int frames_sink_n3(struct xdp_md *ctx)
{
	return take(ctx, GTPU_OUTER);
}

/* The least a program can do with a frame it does not want. */
SEC("xdp.frags")
int frames_drop(struct xdp_md *ctx)
{
	return XDP_DROP;
}

/* Gives a veth NAPI, so that frames can be redirected to its peer, and changes nothing. */
SEC("xdp.frags")
int frames_pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

/* A bare forwarder: addresses of the link, and out. No lookup, no TTL, no state. 0: not for it. */
static __always_inline __u32 bare_way(void *data, void *end, __u32 ifindex, const bool v6)
{
	struct ethhdr *eth = data;
	__u32 side = ifindex == bare.port[1].in_ifindex;
	struct bare_port *port = &bare.port[side];

	if ((void *)(eth + 1) > end || ifindex != port->in_ifindex)
		return 0;
	if (eth->h_proto != bpf_htons(ETH_P_IP) && !(v6 && eth->h_proto == bpf_htons(ETH_P_IPV6)))
		return 0;
	__builtin_memcpy(eth->h_dest, port->dmac, sizeof(port->dmac));
	__builtin_memcpy(eth->h_source, port->smac, sizeof(port->smac));
	bare.redirected[side]++;
	return port->out_ifindex;
}

SEC("tc")
int bare_redirect(struct __sk_buff *skb)
{
	__u32 out = bare_way((void *)(long)skb->data, (void *)(long)skb->data_end, skb->ifindex, true);

	return out ? bpf_redirect(out, 0) : TC_ACT_OK;
}

/* Of N3 frames: each that it counts is one of them, and no neighbour discovery. */
SEC("xdp.frags")
int bare_redirect_xdp(struct xdp_md *ctx)
{
	__u32 out = bare_way((void *)(long)ctx->data, (void *)(long)ctx->data_end, ctx->ingress_ifindex, false);

	return out ? bpf_redirect(out, 0) : XDP_PASS;
}

static __always_inline __u16 least_check(__u16 be_check, __u32 sum)
{
	sum += (__u16)~be_check;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* The least fan-out: address and port compared, one of three by turns, both checksums, TTL, MAC addresses. */
static __always_inline bool least_fanout(void *data, void *end)
{
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);

	if ((void *)(udp + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP) || *(__u8 *)ip != 0x45 ||
	    ip->protocol != IPPROTO_UDP || ip->daddr != floor_state.be_listener || udp->dest != floor_state.be_port)
		return false;
	__u32 turn = floor_state.next;

	floor_state.next = turn >= 2 ? 0 : turn + 1;
	__u32 be_to = floor_state.be_receivers[turn < 3 ? turn : 0], be_from = ip->daddr;
	__u32 sum = (be_to & 0xffff) + (be_to >> 16) + (__u16)~be_from + (__u16) ~(be_from >> 16);

	ip->daddr = be_to;
	/* RFC 1624: the word of TTL and protocol falls by 0x0100 */
	ip->check = least_check(ip->check, sum + (__u16)~bpf_htons(0x0100));
	ip->ttl--;
	if (udp->check)
		udp->check = least_check(udp->check, sum + (__u16)~udp->dest + floor_state.be_receiver_port);
	udp->dest = floor_state.be_receiver_port;
	__builtin_memcpy(eth->h_dest, floor_state.dmac, sizeof(floor_state.dmac));
	__builtin_memcpy(eth->h_source, floor_state.smac, sizeof(floor_state.smac));
	return true;
}

SEC("xdp.frags")
int fanout_least(struct xdp_md *ctx)
{
	if (!least_fanout((void *)(long)ctx->data, (void *)(long)ctx->data_end))
		return XDP_PASS;
	return bpf_redirect(floor_state.out_ifindex, 0);
}

SEC("tc")
int fanout_least_tc(struct __sk_buff *skb)
{
	if (!least_fanout((void *)(long)skb->data, (void *)(long)skb->data_end))
		return TC_ACT_OK;
	return bpf_redirect(floor_state.out_ifindex, 0);
}

/* Sends bench frames back to where they came from: the answer that makes a flow established, whatever NAT was done. */
SEC("xdp.frags")
int frames_reflect(struct xdp_md *ctx)
{
	void *p = (void *)(long)ctx->data;
	struct ethhdr *eth = p;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);
	__u8 mac[ETH_ALEN];
	__be32 address;
	__be16 port;

	if ((void *)(udp + 1) > (void *)(long)ctx->data_end || eth->h_proto != bpf_htons(ETH_P_IP) ||
	    ip->protocol != IPPROTO_UDP)
		return XDP_PASS;
	__builtin_memcpy(mac, eth->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, mac, ETH_ALEN);
	/* Swapping does not change a sum. */
	address = ip->saddr;
	ip->saddr = ip->daddr;
	ip->daddr = address;
	port = udp->source;
	udp->source = udp->dest;
	udp->dest = port;
	return XDP_TX;
}

/* Ends packets behind a tap, so that the kernel's stack does not work on them, too. */
SEC("tc")
int frames_discard(struct __sk_buff *skb)
{
	return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
