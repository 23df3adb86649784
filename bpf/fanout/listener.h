/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What both lines need of fan-out: which listener, which receiver, the rewrite. */
#ifndef SLUICE_FANOUT_LISTENER_H
#define SLUICE_FANOUT_LISTENER_H

#include "maps.h"
#include "lib/checksum.h"

/* `be_addr` has four words of IPv6; `family` is a constant. `place` is where the listener stands. */
static __always_inline struct fanout_listener *fanout_find(__u8 family, const __u32 *be_addr, __u16 be_port, __u16 unit,
							   __u32 *place)
{
	__u32 x = family == 4 ? be_addr[0] : be_addr[0] ^ be_addr[1] ^ be_addr[2] ^ be_addr[3];
	__u32 slot = ((x * 0x9e3779b1u + be_port * 0x85ebca6bu) * generation.fanout_multiplier) >> FANOUT_SLOT_SHIFT;
	struct fanout_listener *listener = fanout_listeners_at(slot);

	*place = slot;
	if (!listener || listener->family != family || listener->be_port != be_port || listener->unit != unit)
		return NULL;
	if (listener->be_addr[0] != be_addr[0])
		return NULL;
	if (family == 6 && ((listener->be_addr[1] ^ be_addr[1]) | (listener->be_addr[2] ^ be_addr[2]) |
			    (listener->be_addr[3] ^ be_addr[3])))
		return NULL;
	return listener;
}

static __always_inline __u64 fanout_hash(__u8 family, const __u32 *be_saddr, __u32 word)
{
	__u64 hash = mix(config.seed, be_saddr[0] | (__u64)word << 32, MIX_LEFT);

	if (family == 6)
		hash = mix(mix(hash, be_saddr[1] | (__u64)be_saddr[2] << 32, MIX_LEFT), be_saddr[3], MIX_RIGHT);
	return mix_last(hash);
}

/*
 * The receiver at a position, NULL while there is none. `hash` is only looked at where turns are not taken; a turn is
 * over once its receiver is picked and the packet is not handed on to the slow path (fanout_turn).
 */
static __always_inline struct fanout_receiver *fanout_pick(const struct fanout_listener *listener, __u64 hash,
							   bool by_turns, const struct fanout_listener_counters *count)
{
	__u64 table = *(const volatile __u64 *)&listener->table;
	__u32 positions = (__u32)table, position;

	if (by_turns) {
		position = (__u32)count->next;
		if (position >= positions)
			position = 0;
	} else {
		position = ((hash >> 32) * positions) >> 32;
	}
	__u32 number = (__u32)(table >> 32) + position / FANOUT_LINE_POSITIONS;
	const struct fanout_line *line = fanout_lines_at(number);

	if (!line || !positions)
		return NULL;
	__u32 place = line->receiver[position % FANOUT_LINE_POSITIONS];

	return fanout_receivers_at(place);
}

/* The turn of the next position, on this CPU. */
static __always_inline void fanout_turn(const struct fanout_listener *listener, struct fanout_listener_counters *count)
{
	__u32 positions = (__u32) * (const volatile __u64 *)&listener->table;
	__u64 next = count->next;

	count->next = next + 1 >= positions ? 0 : next + 1;
}

/* The transport header's part: the receiver's record holds what its sum grows by. */
static __always_inline bool fanout_rewrite_udp(hook_ctx *ctx, __u32 l4, const struct fanout_receiver *to, bool v6)
{
	struct udphdr *udp = hook_data(ctx) + l4;

	if ((void *)(udp + 1) > hook_end(ctx))
		return false;
	udp->dest = to->be_port;
	return hook_l4_sum(ctx, l4 + __builtin_offsetof(struct udphdr, check), to->address_delta, to->transport_delta,
			   true, v6);
}

/* The new destination; `l4` = 0 where a fragment has no transport header. */
static __always_inline bool fanout_rewrite(hook_ctx *ctx, __u8 family, __u32 l3, __u32 l4,
					   const struct fanout_receiver *to)
{
	void *end = hook_end(ctx);

	if (family == 4) {
		struct iphdr *ip = hook_data(ctx) + l3;

		if ((void *)(ip + 1) > end)
			return false;
		ip->daddr = to->be_addr[0];
		ip->check = csum_add_sum(ip->check, to->address_delta);
	} else {
		struct ipv6hdr *ip = hook_data(ctx) + l3;

		if ((void *)(ip + 1) > end)
			return false;
		for (int i = 0; i < 4; i++)
			((__u32 *)&ip->daddr)[i] = to->be_addr[i];
	}
	if (l4)
		return fanout_rewrite_udp(ctx, l4, to, family != 4);
	/* a later fragment: no checksum here makes up for the IPv6 address */
	if (family != 4)
		hook_sum_grows(ctx, to->address_delta);
	return true;
}

static __always_inline struct fanout_listener_counters *fanout_counters_of(__u32 index)
{
	return bpf_map_lookup_elem(&fanout_listener_counters, &index);
}

static __always_inline void fanout_account(__u32 index, __u32 segments, __u32 bytes)
{
	struct fanout_receiver_counters *count = bpf_map_lookup_elem(&fanout_receiver_counters, &index);

	if (!count)
		return;
	count->packets += segments;
	count->bytes += bytes;
}

#endif
