/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The measuring harness of one hook. A wrapper takes the next tuple of the ring, rebuilds every header of the test
 * packet (a repeated prog-run does not restore it) and tail-calls the program under test. Floors and the empty target
 * are reached the same way, so the wrapper's cost can be taken off every figure of a round.
 *
 * The including file defines HOOK (section), CTX, DROP and ABORT.
 */
#ifndef SLUICE_BENCH_HARNESS_H
#define SLUICE_BENCH_HARNESS_H

#include "lib/bpf.h"
#include "abi/flow.h"
#include "bench/bench.h"

/* How far sequence numbers go before they start again. */
#define TCP_SPAN 32768

struct bench_state bench SEC(".data.bench") = {};

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} target SEC(".maps");

#define RING(NAME, TYPE)                                                                                               \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                                      \
		__uint(max_entries, 1);                                                                                \
		__uint(map_flags, BPF_F_MMAPABLE);                                                                     \
		__type(key, __u32);                                                                                    \
		__type(value, TYPE);                                                                                   \
	} NAME SEC(".maps")

/* What the floor's table holds: as much as is needed to lead to a record and to know it again. */
struct floor_value {
	__u32 line;
	__u32 tag;
};

/* The floor's table: preallocated, two entries a session, as large as the flow table it is compared with. */
#define FLOOR(NAME, KEY)                                                                                               \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_HASH);                                                                       \
		__uint(max_entries, 1);                                                                                \
		__type(key, KEY);                                                                                      \
		__type(value, struct floor_value);                                                                     \
	} NAME SEC(".maps")

/* An array whose reading has a floor program: a cache line an element, one for each client of established traffic. */
#define FLOOR_ARRAY_ELEMENTS 65536

struct floor_line {
	__u64 words[8];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FLOOR_ARRAY_ELEMENTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct floor_line);
} floor_lines SEC(".maps");

RING(ring4, struct ring_entry4);
RING(ring6, struct ring_entry6);
FLOOR(floor4, struct flow_key4);
FLOOR(floor6, struct flow_key6);
FLOOR(grants4, struct grant_key4);
FLOOR(grants6, struct grant_key6);

/* `p` is the packet, `f` the template, `e` the ring entry. */
#define AT(TYPE, OFFSET) (*(TYPE *)(p + (OFFSET)))
#define FRAME(TYPE, OFFSET) (*(const TYPE *)(f + (OFFSET)))
#define ENTRY(TYPE, OFFSET) (*(const TYPE *)(e + (OFFSET)))

/* Counts the packet and stamps the first and the last one. */
static __always_inline void count_packet(void)
{
	__u64 n = bench.count;

	if (n == 0)
		bench.first_ns = bpf_ktime_get_ns();
	else if (n == bench.last)
		bench.last_ns = bpf_ktime_get_ns();
	bench.count = n + 1;
}

static __always_inline __u32 next_entry(void)
{
	__u32 at = bench.cursor;

	if (at + 1 < bench.ring_size) {
		bench.cursor = at + 1;
	} else {
		bench.cursor = 0;
		bench.tcp_seq += bench.tcp_step;
		if (bench.tcp_seq - bench.tcp_first > TCP_SPAN)
			bench.tcp_seq = bench.tcp_first;
	}
	return at;
}

/*
 * Payload of a TCP frame is the complement of its sequence number: the checksum then does not depend on either, and
 * the ring can hold it.
 */
static __always_inline void write_tcp(void *p, const void *f, __u32 l4, __u16 be_check)
{
	AT(__u32, l4 + 4) = bpf_htonl(bench.tcp_seq);
	AT(__u32, l4 + 8) = FRAME(__u32, l4 + 8);
	AT(__u32, l4 + 12) = FRAME(__u32, l4 + 12);
	AT(__u32, l4 + 16) = be_check;
	AT(__u32, l4 + 20) = ~bpf_htonl(bench.tcp_seq);
}

static __always_inline void write_udp(void *p, const void *f, __u32 l4, __u16 be_check)
{
	AT(__u32, l4 + 4) = FRAME(__u16, l4 + 4) | (__u32)be_check << 16;
	AT(__u64, l4 + 8) = FRAME(__u64, l4 + 8);
	AT(__u64, l4 + 16) = FRAME(__u64, l4 + 16);
}

/* Stores follow the header's own alignment: a field read by the target lies within one of them. */
static __always_inline void write_ethernet(void *p, const void *f)
{
	AT(__u64, 0) = FRAME(__u64, 0);
	AT(__u32, 8) = FRAME(__u32, 8);
	AT(__u16, 12) = FRAME(__u16, 12);
}

static __always_inline int wrap4(CTX *ctx, __u32 at, const void *f, bool tcp)
{
	void *p = (void *)(long)ctx->data;
	const struct ring_entry4 *entry = bpf_map_lookup_elem(&ring4, &at);
	const void *e = entry;

	if (p + FRAME4_LEN > (void *)(long)ctx->data_end || !entry) {
		bench.failures++;
		return ABORT;
	}
	/* Otherwise clang knows their alignment, and makes four loads out of one that is not aligned. */
	barrier_var(e);
	barrier_var(f);
	write_ethernet(p, f);
	AT(__u64, 14) = FRAME(__u64, 14);
	AT(__u32, 22) = FRAME(__u16, 22) | (__u32)entry->be_ip_check << 16;
	AT(__u64, 26) = ENTRY(__u64, 0);
	AT(__u32, 34) = ENTRY(__u32, 8);
	if (tcp)
		write_tcp(p, f, 34, entry->be_l4_check);
	else
		write_udp(p, f, 34, entry->be_l4_check);
	count_packet();
	bpf_tail_call_static(ctx, &target, 0);
	bench.failures++;
	return ABORT;
}

static __always_inline int wrap6(CTX *ctx, __u32 at, const void *f, bool tcp)
{
	void *p = (void *)(long)ctx->data;
	const struct ring_entry6 *entry = bpf_map_lookup_elem(&ring6, &at);
	const void *e = entry;

	if (p + FRAME6_LEN > (void *)(long)ctx->data_end || !entry) {
		bench.failures++;
		return ABORT;
	}
	barrier_var(e);
	barrier_var(f);
	write_ethernet(p, f);
	AT(__u64, 14) = FRAME(__u64, 14);
	for (int i = 0; i < 4; i++)
		AT(__u64, 22 + 8 * i) = ENTRY(__u64, 8 * i);
	AT(__u32, 54) = ENTRY(__u32, 32);
	if (tcp)
		write_tcp(p, f, 54, entry->be_l4_check);
	else
		write_udp(p, f, 54, entry->be_l4_check);
	count_packet();
	bpf_tail_call_static(ctx, &target, 0);
	bench.failures++;
	return ABORT;
}

HOOK int wrap_udp4(CTX *ctx)
{
	RESET(ctx);
	return wrap4(ctx, next_entry(), bench.frame, false);
}

HOOK int wrap_tcp4(CTX *ctx)
{
	RESET(ctx);
	return wrap4(ctx, next_entry(), bench.frame, true);
}

HOOK int wrap_udp6(CTX *ctx)
{
	RESET(ctx);
	return wrap6(ctx, next_entry(), bench.frame, false);
}

HOOK int wrap_tcp6(CTX *ctx)
{
	RESET(ctx);
	return wrap6(ctx, next_entry(), bench.frame, true);
}

/*
 * Between the families a packet becomes 20 bytes shorter or longer, and a repeated prog-run does not take that back. So
 * requests (IPv6) and answers (IPv4) take turns: each leaves the frame as the other needs it.
 */
HOOK int wrap_udp64(CTX *ctx)
{
	RESET(ctx);
	__u32 at = next_entry();

	return at & 1 ? wrap4(ctx, at >> 1, bench.answer, false) : wrap6(ctx, at >> 1, bench.frame, false);
}

/* What is left is the wrapper and one tail call. */
HOOK int empty(CTX *ctx)
{
	return DROP;
}

/* The least a stateful gateway can do: check the headers it reads, and find the 5-tuple. */
static __always_inline bool parse4(CTX *ctx, struct flow_key4 *key)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *ports = (void *)(ip + 1);

	if ((void *)(ports + 1) > (void *)(long)ctx->data_end)
		return false;
	if (eth->h_proto != bpf_htons(ETH_P_IP) || *(__u8 *)ip != 0x45 || ip->frag_off & bpf_htons(0x3fff))
		return false;
	if (ip->protocol != IPPROTO_UDP && ip->protocol != IPPROTO_TCP)
		return false;
	*key = (struct flow_key4){
		.be_saddr = ip->saddr,
		.be_daddr = ip->daddr,
		.be_sport = ports->source,
		.be_dport = ports->dest,
		.proto = ip->protocol,
	};
	return true;
}

static __always_inline bool parse6(CTX *ctx, struct flow_key6 *key)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct ipv6hdr *ip = (void *)(eth + 1);
	struct udphdr *ports = (void *)(ip + 1);

	if ((void *)(ports + 1) > (void *)(long)ctx->data_end)
		return false;
	if (eth->h_proto != bpf_htons(ETH_P_IPV6) || *(__u8 *)ip >> 4 != 6)
		return false;
	if (ip->nexthdr != IPPROTO_UDP && ip->nexthdr != IPPROTO_TCP)
		return false;
	__builtin_memcpy(key->be_saddr, &ip->saddr, 16);
	__builtin_memcpy(key->be_daddr, &ip->daddr, 16);
	key->be_sport = ports->source;
	key->be_dport = ports->dest;
	key->routing_instance = 0;
	key->proto = ip->nexthdr;
	key->zero = 0;
	return true;
}

static __always_inline void reverse4(const struct flow_key4 *key, struct flow_key4 *reply)
{
	*reply = *key;
	reply->be_saddr = key->be_daddr;
	reply->be_daddr = key->be_saddr;
	reply->be_sport = key->be_dport;
	reply->be_dport = key->be_sport;
}

static __always_inline void reverse6(const struct flow_key6 *key, struct flow_key6 *reply)
{
	*reply = *key;
	__builtin_memcpy(reply->be_saddr, key->be_daddr, 16);
	__builtin_memcpy(reply->be_daddr, key->be_saddr, 16);
	reply->be_sport = key->be_dport;
	reply->be_dport = key->be_sport;
}

/* A packet that has no key is a failure, and the end. */
#define READ_KEY(FAMILY)                                                                                               \
	do {                                                                                                           \
		if (!parse##FAMILY(ctx, &key)) {                                                                       \
			bench.failures++;                                                                              \
			return ABORT;                                                                                  \
		}                                                                                                      \
	} while (0)

#define FLOOR_PROGRAMS(FAMILY)                                                                                         \
	HOOK int floor_lookup##FAMILY(CTX *ctx)                                                                        \
	{                                                                                                              \
		struct flow_key##FAMILY key;                                                                           \
                                                                                                                       \
		READ_KEY(FAMILY);                                                                                      \
		if (bpf_map_lookup_elem(&floor##FAMILY, &key))                                                         \
			bench.hits++;                                                                                  \
		else                                                                                                   \
			bench.misses++;                                                                                \
		return DROP;                                                                                           \
	}                                                                                                              \
                                                                                                                       \
	HOOK int floor_insert##FAMILY(CTX *ctx)                                                                        \
	{                                                                                                              \
		struct floor_value value = {.line = 1, .tag = 1};                                                      \
		struct flow_key##FAMILY key, reply;                                                                    \
                                                                                                                       \
		READ_KEY(FAMILY);                                                                                      \
		reverse##FAMILY(&key, &reply);                                                                         \
		if (bpf_map_update_elem(&floor##FAMILY, &key, &value, BPF_NOEXIST) ||                                  \
		    bpf_map_update_elem(&floor##FAMILY, &reply, &value, BPF_NOEXIST))                                  \
			bench.misses++;                                                                                \
		else                                                                                                   \
			bench.hits++;                                                                                  \
		return DROP;                                                                                           \
	}                                                                                                              \
                                                                                                                       \
	HOOK int floor_delete##FAMILY(CTX *ctx)                                                                        \
	{                                                                                                              \
		struct flow_key##FAMILY key, reply;                                                                    \
                                                                                                                       \
		READ_KEY(FAMILY);                                                                                      \
		reverse##FAMILY(&key, &reply);                                                                         \
		if (bpf_map_delete_elem(&floor##FAMILY, &key) || bpf_map_delete_elem(&floor##FAMILY, &reply))          \
			bench.misses++;                                                                                \
		else                                                                                                   \
			bench.hits++;                                                                                  \
		return DROP;                                                                                           \
	}

/* The client's number: low half of the address that is not a server's, whichever way the packet travels. */
static __always_inline __u32 client4(const struct flow_key4 *key)
{
	__u32 source = bpf_ntohl(key->be_saddr), destination = bpf_ntohl(key->be_daddr);

	return (source >> 16 & 0xff) == 64 ? source & 0xffff : destination & 0xffff;
}

static __always_inline __u32 client6(const struct flow_key6 *key)
{
	__u32 source = bpf_ntohl(key->be_saddr[3]), destination = bpf_ntohl(key->be_daddr[3]);

	return (bpf_ntohl(key->be_saddr[0]) & 0xffff) == 0x64 ? source & 0xffff : destination & 0xffff;
}

/* What one array read costs is the difference of these two. */
#define ARRAY_PROGRAMS(FAMILY)                                                                                         \
	HOOK int floor_parse##FAMILY(CTX *ctx)                                                                         \
	{                                                                                                              \
		struct flow_key##FAMILY key;                                                                           \
                                                                                                                       \
		READ_KEY(FAMILY);                                                                                      \
		bench.hits += client##FAMILY(&key) < FLOOR_ARRAY_ELEMENTS;                                             \
		return DROP;                                                                                           \
	}                                                                                                              \
                                                                                                                       \
	HOOK int floor_array##FAMILY(CTX *ctx)                                                                         \
	{                                                                                                              \
		struct flow_key##FAMILY key;                                                                           \
                                                                                                                       \
		READ_KEY(FAMILY);                                                                                      \
		__u32 at = client##FAMILY(&key);                                                                       \
		struct floor_line *line = bpf_map_lookup_elem(&floor_lines, &at);                                      \
                                                                                                                       \
		bench.hits += line && !line->words[0];                                                                 \
		return DROP;                                                                                           \
	}

/* The least a gate can do: check the headers, and find source and port. */
#define GRANT_PROGRAM(FAMILY)                                                                                          \
	HOOK int floor_grant##FAMILY(CTX *ctx)                                                                         \
	{                                                                                                              \
		struct grant_key##FAMILY grant = {};                                                                   \
		struct flow_key##FAMILY key;                                                                           \
                                                                                                                       \
		READ_KEY(FAMILY);                                                                                      \
		__builtin_memcpy(&grant.be_saddr, &key.be_saddr, sizeof(grant.be_saddr));                              \
		grant.be_dport = key.be_dport;                                                                         \
		grant.proto = key.proto;                                                                               \
		if (bpf_map_lookup_elem(&grants##FAMILY, &grant))                                                      \
			bench.hits++;                                                                                  \
		else                                                                                                   \
			bench.misses++;                                                                                \
		return DROP;                                                                                           \
	}

GRANT_PROGRAM(4)
GRANT_PROGRAM(6)
ARRAY_PROGRAMS(4)
ARRAY_PROGRAMS(6)
FLOOR_PROGRAMS(4)
FLOOR_PROGRAMS(6)

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#endif
