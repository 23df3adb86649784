// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Fan-out over AF_XDP: datagrams to a listener's address and port go to the socket of their queue, with what was learnt
 * of them in front; everything else goes the kernel's way untouched.
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "rings.h"

#define FRAGMENT_MORE 0x2000
#define FRAGMENT_OFFSET 0x1fff
#define FRAGMENT6_MORE 1
#define FRAGMENT6_OFFSET 0xfff8

#define OPTION_HEADERS 4 /* of IPv6, one behind the other */

struct vlan_tag {
	__be16 be_tci;
	__be16 be_type;
};

struct fragment_header {
	__u8 next;
	__u8 reserved;
	__be16 be_offset;
	__be32 be_id;
};

struct option_header {
	__u8 next;
	__u8 length; /* 8 bytes each, without the first 8 */
};

const volatile struct rings_config config SEC(".rodata.config") = {};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} active SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct rings_table);
} tables SEC(".maps");

/* By slot and queue. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, RINGS_LISTENERS);
	__type(key, __u32);
	__type(value, struct rings_counters);
} counters SEC(".maps");

struct fragment_key {
	__be32 be_source[4];
	__be32 be_destination[4];
	__be32 be_id;
	__u32 vlan;
};

/* So long the pieces of a datagram belong together: as long as Linux keeps them (RFC 791 3.2, net.ipv4.ipfrag_time). */
#define FRAGMENT_NS (30 * 1000000000ull)

struct fragment_entry {
	__u64 since;
	__u32 slot;
	__u32 unused;
};

/* Datagrams of which the first fragment was seen; what is old is pushed out. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct fragment_key);
	__type(value, struct fragment_entry);
} fragments SEC(".maps");

struct seen {
	__be32 be_source[4];
	__be32 be_destination[4];
	__be32 be_id;
	__be16 be_port;
	__u16 vlan;
	__u16 network;
	__u16 transport;
	__u16 fragment;
	__u8 is_v6;
};

static __always_inline bool read_ipv4(struct seen *seen, void *at, void *end)
{
	struct iphdr *ip = at;
	__u16 fragment;

	if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5 || ip->protocol != IPPROTO_UDP)
		return false;
	fragment = bpf_ntohs(ip->frag_off);
	if (fragment & FRAGMENT_OFFSET)
		seen->fragment = RINGS_LATER;
	else if (fragment & FRAGMENT_MORE)
		seen->fragment = RINGS_FIRST;
	seen->be_source[0] = ip->saddr;
	seen->be_destination[0] = ip->daddr;
	seen->be_id = ip->id;
	seen->transport = seen->network + ip->ihl * 4;
	return true;
}

/* RFC 8200 4.1: options for hops and for the destination may stand in front of the fragment header and of UDP. */
static __always_inline bool read_ipv6(struct seen *seen, void *data, void *end)
{
	struct ipv6hdr *ip = data + seen->network;
	__u32 at = seen->network + sizeof(*ip);
	__u8 next;

	if ((void *)(ip + 1) > end || ip->version != 6)
		return false;
	next = ip->nexthdr;
	__builtin_memcpy(seen->be_source, &ip->saddr, 16);
	__builtin_memcpy(seen->be_destination, &ip->daddr, 16);
	seen->is_v6 = 1;
	for (int i = 0; i < OPTION_HEADERS && next != IPPROTO_UDP; i++) {
		struct option_header *option = data + (at & 0x7ff);

		if (next == IPPROTO_FRAGMENT) {
			struct fragment_header *header = (void *)option;
			__u16 offset;

			if ((void *)(header + 1) > end)
				return false;
			offset = bpf_ntohs(header->be_offset);
			if (offset & FRAGMENT6_OFFSET)
				seen->fragment = RINGS_LATER;
			else if (offset & FRAGMENT6_MORE)
				seen->fragment = RINGS_FIRST;
			seen->be_id = header->be_id;
			next = header->next;
			at += sizeof(*header);
			/* what follows in a later fragment is no header, whatever it looks like */
			if (seen->fragment == RINGS_LATER)
				break;
			continue;
		}
		if (next != IPPROTO_HOPOPTS && next != IPPROTO_DSTOPTS)
			return false;
		if ((void *)(option + 1) > end)
			return false;
		next = option->next;
		at += (option->length + 1) * 8;
	}
	seen->transport = at;
	return next == IPPROTO_UDP || seen->fragment == RINGS_LATER;
}

static __always_inline bool read_frame(struct seen *seen, void *data, void *end)
{
	struct ethhdr *eth = data;
	struct vlan_tag *tag = (void *)(eth + 1);
	struct udphdr *udp;
	__be16 type;

	if ((void *)(eth + 1) > end)
		return false;
	type = eth->h_proto;
	seen->network = sizeof(*eth);
	if (type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD)) {
		if ((void *)(tag + 1) > end)
			return false;
		seen->vlan = bpf_ntohs(tag->be_tci) & 0xfff;
		type = tag->be_type;
		seen->network += sizeof(*tag);
	}
	if (type == bpf_htons(ETH_P_IP)) {
		if (!read_ipv4(seen, data + seen->network, end))
			return false;
	} else if (type != bpf_htons(ETH_P_IPV6) || !read_ipv6(seen, data, end)) {
		return false;
	}
	if (seen->fragment == RINGS_LATER)
		return true;
	udp = data + (seen->transport & 0x7ff);
	if ((void *)(udp + 1) > end)
		return false;
	seen->be_port = udp->dest;
	return true;
}

static __always_inline void key_of(struct fragment_key *key, const struct seen *seen)
{
	__builtin_memset(key, 0, sizeof(*key));
	__builtin_memcpy(key->be_source, seen->be_source, 16);
	__builtin_memcpy(key->be_destination, seen->be_destination, 16);
	key->be_id = seen->be_id;
	key->vlan = seen->vlan;
}

/* The listener's slot, or RINGS_LISTENERS. */
static __always_inline __u32 find(const struct seen *seen)
{
	__u32 zero = 0, *which = bpf_map_lookup_elem(&active, &zero);
	__u32 other = which && *which ? 1 : 0;
	struct rings_table *table = bpf_map_lookup_elem(&tables, &other);

	if (!table)
		return RINGS_LISTENERS;
	for (__u32 i = 0; i < RINGS_LISTENERS; i++) {
		struct rings_listener *one = &table->listeners[i];

		if (i >= table->count)
			break;
		if (one->be_port != seen->be_port || one->be_address[0] != seen->be_destination[0] ||
		    one->vlan != seen->vlan || one->is_v6 != seen->is_v6)
			continue;
		if (seen->is_v6 &&
		    (one->be_address[1] != seen->be_destination[1] || one->be_address[2] != seen->be_destination[2] ||
		     one->be_address[3] != seen->be_destination[3]))
			continue;
		return one->slot;
	}
	return RINGS_LISTENERS;
}

static __noinline __u32 find_fragment(const struct seen *seen)
{
	struct fragment_entry *known, fresh = {.since = bpf_ktime_get_ns()};
	struct fragment_key key;

	if (!seen)
		return RINGS_LISTENERS;
	key_of(&key, seen);
	if (seen->fragment == RINGS_LATER) {
		known = bpf_map_lookup_elem(&fragments, &key);
		return known && fresh.since - known->since < FRAGMENT_NS ? known->slot : RINGS_LISTENERS;
	}
	fresh.slot = find(seen);
	/* identifications come again: pieces of this one are not for whom an earlier one was */
	if (fresh.slot < RINGS_LISTENERS)
		bpf_map_update_elem(&fragments, &key, &fresh, BPF_ANY);
	else
		bpf_map_delete_elem(&fragments, &key);
	return fresh.slot;
}

SEC("xdp")
int rings_take(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct seen seen = {};
	struct rings_mark *mark = data;
	struct rings_counters *mine;
	__u32 slot, queue = ctx->rx_queue_index, at;
	int verdict;

	if (!read_frame(&seen, data, end))
		return XDP_PASS;
	slot = seen.fragment == RINGS_WHOLE ? find(&seen) : find_fragment(&seen);
	if (slot >= RINGS_LISTENERS)
		return XDP_PASS;
	at = slot * config.queues + (queue < config.queues ? queue : 0);
	mine = bpf_map_lookup_elem(&counters, &at);
	if (!mine || (void *)(mark + 1) > end)
		return XDP_DROP;
	if (end - data > config.largest) {
		mine->too_large++;
		return XDP_DROP;
	}
	mark->slot = slot;
	mark->network = seen.network;
	mark->transport = seen.transport;
	mark->fragment = seen.fragment;
	mark->be_id = seen.be_id;
	verdict = bpf_redirect_map(&sockets, queue, XDP_DROP);
	if (verdict == XDP_REDIRECT)
		mine->taken++;
	else
		mine->unserved++;
	return verdict;
}

char _license[] SEC("license") = "Dual BSD/GPL";
