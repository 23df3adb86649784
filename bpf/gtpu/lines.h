/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finding the line of a session: by the TEID that it is reached under, or by the address of its subscriber. */
#ifndef SLUICE_GTPU_LINES_H
#define SLUICE_GTPU_LINES_H

#include "gtpu/work.h"

static __always_inline struct gtpu_line *uplink_at(__u32 place)
{
	return bpf_map_lookup_elem(&gtpu_uplinks, &place);
}

static __always_inline struct gtpu_line *downlink_at(__u32 place)
{
	return bpf_map_lookup_elem(&gtpu_downlinks, &place);
}

static __always_inline __u64 gtpu_decision_of(const struct gtpu_line *line)
{
	return *(const volatile __u64 *)&line->decision;
}

static __always_inline bool gtpu_line_is(const struct gtpu_line *line, __u64 key, const __u32 how)
{
	if (how == 0 ? line->teid != (__u32)key : how == 4 ? line->be_addr4 != (__u32)key : line->be_prefix6 != key)
		return false;
	return GTPU_DECISION_RULES(gtpu_decision_of(line)) != 0;
}

/* A line that went on from its slot; the slot where there is none. */
#define DEFINE_BEYOND(NAME, LOOKUP, HOW)                                                                               \
	__noinline __u32 NAME(__u64 key, __u32 slot, __u32 reach)                                                      \
	{                                                                                                              \
		__u32 i;                                                                                               \
                                                                                                                       \
		bpf_for (i, 1, (reach & (2 * GTPU_REACH - 1)) + 1) {                                                   \
			struct gtpu_line *line = LOOKUP(slot + i);                                                     \
                                                                                                                       \
			if (!line || gtpu_line_is(line, key, HOW))                                                     \
				return slot + i;                                                                       \
		}                                                                                                      \
		return slot;                                                                                           \
	}

DEFINE_BEYOND(uplink_beyond, uplink_at, 0)
DEFINE_BEYOND(downlink_beyond4, downlink_at, 4)
DEFINE_BEYOND(downlink_beyond6, downlink_at, 6)

static __always_inline struct gtpu_line *uplink_of(__u32 teid)
{
	__u64 key = teid;
	__u32 slot = GTPU_SLOT(key, config.gtpu_uplink_shift & 31);
	struct gtpu_line *line = uplink_at(slot);

	if (!line || gtpu_line_is(line, key, 0))
		return line;
	if (!line->reach)
		return NULL;
	line = uplink_at(uplink_beyond(key, slot, line->reach));
	return line && gtpu_line_is(line, key, 0) ? line : NULL;
}

static __always_inline struct gtpu_line *downlink_of4(__u32 be_addr)
{
	__u64 key = be_addr;
	__u32 slot = GTPU_SLOT(key, config.gtpu_downlink_shift & 31);
	struct gtpu_line *line = downlink_at(slot);

	if (!line || gtpu_line_is(line, key, 4))
		return line;
	if (!line->reach)
		return NULL;
	line = downlink_at(downlink_beyond4(key, slot, line->reach));
	return line && gtpu_line_is(line, key, 4) ? line : NULL;
}

static __always_inline struct gtpu_line *downlink_of6(__u64 be_prefix)
{
	__u32 slot = GTPU_SLOT(be_prefix, config.gtpu_downlink_shift & 31);
	struct gtpu_line *line = downlink_at(slot);

	if (!line || gtpu_line_is(line, be_prefix, 6))
		return line;
	if (!line->reach)
		return NULL;
	line = downlink_at(downlink_beyond6(be_prefix, slot, line->reach));
	return line && gtpu_line_is(line, be_prefix, 6) ? line : NULL;
}

static __always_inline struct gtpu_rules *gtpu_rules_of(__u64 decision)
{
	__u32 number = GTPU_DECISION_RULES(decision);

	return bpf_map_lookup_elem(&gtpu_rules, &number);
}

static __always_inline struct gtpu_peer *gtpu_peer_at(__u32 number)
{
	return bpf_map_lookup_elem(&gtpu_peers, &number);
}

/* What comes from there, at most once a tick: CPUs that only read the line share it. */
static __always_inline void gtpu_heard(struct gtpu_peer *peer)
{
	__u64 now = bpf_jiffies64();

	if (*(volatile __u64 *)&peer->last_received != now)
		*(volatile __u64 *)&peer->last_received = now;
}

#endif
