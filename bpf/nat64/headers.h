/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* IP headers made of IP headers of the other family: RFC 7915 4.1 and 5.1. */
#ifndef SLUICE_NAT64_HEADERS_H
#define SLUICE_NAT64_HEADERS_H

#include "nat64/sums.h"

#define IPV4_DF 0x4000
#define IPV4_MF 0x2000

/* Protocol numbers differ only for ICMP. */
static __always_inline __u8 nat64_proto6(__u8 proto)
{
	return proto == IPPROTO_ICMP ? IPPROTO_ICMPV6 : proto;
}

static __always_inline __u8 nat64_proto4(__u8 proto)
{
	return proto == IPPROTO_ICMPV6 ? IPPROTO_ICMP : proto;
}

/* What both headers say, whichever it was read from. */
struct nat64_ip {
	__u32 payload;       /* bytes behind the header and its extensions */
	__u32 segment_total; /* IPv4: length of the largest packet it becomes on the wire */
	__u32 fragment;      /* offset in bytes; bit 0 = more follow */
	__u32 id;            /* of a fragment; else one that no other packet has at the time */
	__u8 traffic_class;
	__u8 hops;
	__u8 proto; /* as IPv4 has it */
	bool fragmented;
	bool quoted; /* nobody puts together what an error quotes */
};

/* RFC 7915 4.1; the identification of a fragment is the IPv4 one, its upper half 0. Returns words. */
static __always_inline __u32 nat64_header6(__u32 *to, const struct nat64_ip *ip, const __u32 *be_saddr,
					   const __u32 *be_daddr)
{
	__u8 next = nat64_proto6(ip->proto);

	to[0] = bpf_htonl(6u << 28 | (__u32)ip->traffic_class << 20);
	to[1] = bpf_htonl((ip->payload + (ip->fragmented ? 8 : 0)) << 16 |
			  (__u32)(ip->fragmented ? IPPROTO_FRAGMENT : next) << 8 | ip->hops);
	for (int i = 0; i < 2; i++) {
		((__u64 *)(to + 2))[i] = ((const __u64 *)be_saddr)[i];
		((__u64 *)(to + 6))[i] = ((const __u64 *)be_daddr)[i];
	}
	if (!ip->fragmented)
		return 10;
	to[10] = bpf_htonl((__u32)next << 24 | ip->fragment);
	to[11] = bpf_htonl(ip->id);
	return 12;
}

/*
 * RFC 7915 5.1: a fragment keeps the lower half of its identification; other packets may be fragmented on their way up
 * to 1,260 bytes, and get one of their own. An identification means nothing where DF is set (RFC 6864 4.1).
 */
static __always_inline void nat64_header4(__u32 *to, const struct nat64_ip *ip, __u32 be_saddr, __u32 be_daddr)
{
	__u32 flags = IPV4_DF, id = 0;

	if (ip->fragmented) {
		flags = ip->fragment >> 3 | (ip->fragment & 1 ? IPV4_MF : 0);
		id = ip->id & 0xffff;
	} else if (ip->segment_total <= NAT64_DF_CLEAR_MAX) {
		flags = 0;
		id = ip->quoted ? 0 : ip->id & 0xffff;
	}
	to[0] = bpf_htonl(0x45000000 | (__u32)ip->traffic_class << 16 | ((ip->payload + 20) & 0xffff));
	to[1] = bpf_htonl(id << 16 | flags);
	to[2] = bpf_htonl((__u32)ip->hops << 24 | (__u32)ip->proto << 16);
	to[3] = be_saddr;
	to[4] = be_daddr;
	__u64 sum = (__u64)to[0] + to[1] + to[2] + to[3] + to[4];

	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	to[2] |= (__u32)csum_fold(sum) << 16;
}

#endif
