/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What devices take and refuse of the frames that XDP redirects, asked at the kernel's tracepoints: a driver's own
 * statistics, where there are any, go with the device, and nobody else counts what a device that is down, gone or
 * without its other end was given.
 *
 * The link of such a program cannot be updated. So a later version attaches its own beside it and takes the devices
 * over one by one: `root_variant` is the mark by which a program knows those that are its own to count.
 */
#ifndef SLUICE_TRANSMIT_H
#define SLUICE_TRANSMIT_H

#include "maps.h"

#define GENERIC_MODE 0       /* XDP_MODE_SKB */
#define NO_MAP_ID 0x7fffffff /* with no kind of map: the index is a device's, given to bpf_redirect() */

struct ns_common___kernel {
	unsigned int inum;
} __attribute__((preserve_access_index));

struct net___kernel {
	struct ns_common___kernel ns;
} __attribute__((preserve_access_index));

struct bpf_xdp_entity___kernel {
	void *link;
} __attribute__((preserve_access_index));

struct net_device___kernel {
	int ifindex;
	struct {
		struct net___kernel *net;
	} __attribute__((preserve_access_index)) nd_net;
	struct bpf_xdp_entity___kernel xdp_state[1];
} __attribute__((preserve_access_index));

/* The counters of a device's namespace, if another device in it is this program's to count. */
static __always_inline struct transmit_counters *transmits_to(const struct net_device___kernel *beside, __u32 ifindex)
{
	struct transmit_device key = {.netns = beside->nd_net.net->ns.inum, .ifindex = ifindex};
	const __u32 *mark = bpf_map_lookup_elem(&transmit_devices, &key);
	__u32 zero = 0;

	return mark && *mark == root_variant ? bpf_map_lookup_elem(&transmit_counters, &zero) : NULL;
}

/* xdp_devmap_xmit(from, to, sent, drops, err): once for up to 16 frames that leave by native XDP. */
static __always_inline void count_transmit(const __u64 *arguments)
{
	const struct net_device___kernel *to = (const void *)arguments[1];
	struct transmit_counters *counters = transmits_to(to, to->ifindex);

	if (!counters)
		return;
	counters->sent += (__u32)arguments[2];
	counters->refused += (__u32)arguments[3];
}

/*
 * xdp_redirect_err(from, program, target, err, map_type, map_id, index): a frame that no driver was asked to take. Of
 * what generic XDP redirects all is taken as sent, because the kernel counts none of it.
 */
static __always_inline void count_refusal(const __u64 *arguments)
{
	const struct net_device___kernel *from = (const void *)arguments[0];
	struct transmit_counters *counters;

	if ((__u32)arguments[4] != BPF_MAP_TYPE_UNSPEC || (__u32)arguments[5] != NO_MAP_ID)
		return;
	if (from->xdp_state[GENERIC_MODE].link)
		return;
	counters = transmits_to(from, (__u32)arguments[6]);
	if (counters)
		counters->refused++;
}

#endif
