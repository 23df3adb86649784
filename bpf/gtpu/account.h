/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a packet of a session meets before it passes: FAR, gate, maximum bit rate, quota; then its usage is counted. All
 * CPUs share a line, so each change of it is one atomic exchange.
 */
#ifndef SLUICE_GTPU_ACCOUNT_H
#define SLUICE_GTPU_ACCOUNT_H

#include "gtpu/flows.h"
#include "gtpu/lines.h"
#include "gtpu/usage.h"

static __always_inline bool is_closed(const struct gtpu_rules *rules, const __u32 direction)
{
	return rules->flags & (direction == GTPU_UPLINK ? GTPU_UPLINK_CLOSED : GTPU_DOWNLINK_CLOSED);
}

static __always_inline bool is_dropped(const struct gtpu_rules *rules, const __u32 direction)
{
	return rules->flags & (direction == GTPU_UPLINK ? GTPU_UPLINK_DROP : GTPU_DOWNLINK_DROP);
}

/* The generic cell rate algorithm (ITU-T I.371 A, virtual scheduling); in Rust sluice_abi::conforms. */
static __always_inline bool gtpu_conforms(__u64 *expected, __u64 cost, __u64 tolerance, __u32 len)
{
	__u64 now = bpf_ktime_get_ns() << GTPU_TICK_SHIFT, more = cost * len >> GTPU_COST_SHIFT;

	for (int i = 0; i < GTPU_TRIES; i++) {
		__u64 arrival = *(volatile __u64 *)expected;
		__u64 next = (arrival - now <= tolerance + (1ull << GTPU_AHEAD_SHIFT) ? arrival : now) + more;

		if (next - now > tolerance)
			return false;
		if (__sync_val_compare_and_swap(expected, arrival, next) == arrival)
			return true;
	}
	return false;
}

/* TS 29.244 5.2.1, 5.4.3: what does not depend on how long the packet is. */
static __always_inline int gtpu_permits(const struct gtpu_rules *rules, const __u32 direction)
{
	if (is_dropped(rules, direction))
		return DROP(GTPU_FORWARDING);
	return is_closed(rules, direction) ? DROP(GTPU_GATE) : CONTINUE;
}

/* TS 29.244 5.4.4, 5.2.2.2: only what passes is counted. `line` is the one that counts. */
static __always_inline int gtpu_account(struct gtpu_line *line, const struct gtpu_rules *rules, const __u32 direction,
					__u32 len)
{
	__u64 cost = rules->cost[direction];

	if (cost && !gtpu_conforms(&line->arrival, cost, rules->tolerance[direction], len))
		return DROP(GTPU_RATE);
	return gtpu_count(line, len) ? CONTINUE : DROP(GTPU_QUOTA);
}

/*
 * The same of a packet of a flow, whose own maximum bit rate comes first (TS 23.501 5.7.1.5). What the session refuses
 * takes nothing of the flow's rate: taking a packet's ticks off again leaves what was expected before, or now.
 */
static __noinline int gtpu_account_flow(struct gtpu_line *line, const struct gtpu_rules *rules,
					const struct gtpu_rules *met, __u32 number, __u32 len)
{
	__u32 direction = number & 1;
	__u64 cost = met->cost[direction];
	struct gtpu_flow *flow = gtpu_flow_at(line, number >> 1);

	if (!flow || (cost && !gtpu_conforms(&flow->arrival[direction], cost, met->tolerance[direction], len)))
		return DROP(GTPU_RATE);
	int verdict = gtpu_account(line, rules, direction, len);

	if (verdict == CONTINUE)
		atomic_add(direction == GTPU_UPLINK ? &flow->uplink_bytes : &flow->downlink_bytes, len);
	else if (cost)
		atomic_add(&flow->arrival[direction], -(cost * len >> GTPU_COST_SHIFT));
	return verdict;
}

/* What a packet meets once its rules are known; `flow` is its flow's number, or GTPU_FLOWS. */
static __always_inline int gtpu_pass(struct gtpu_line *line, const struct gtpu_rules *rules,
				     const struct gtpu_rules *met, __u32 flow, const __u32 direction, __u32 len)
{
	if (flow == GTPU_FLOWS)
		return gtpu_account(line, rules, direction, len);
	return gtpu_account_flow(line, rules, met, flow << 1 | direction, len);
}

#endif
