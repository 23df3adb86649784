/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Does a grant hold? One array read, the same for first packets, established ones and the sweep. */
#ifndef SLUICE_GATE_GRANT_H
#define SLUICE_GATE_GRANT_H

#include "flow_table.h"

static __always_inline struct grant *grant_at(__u32 handle)
{
	__u32 index = handle & GRANT_INDEX_MASK;

	return bpf_map_lookup_elem(&grants, &index);
}

/* What the index is asked for. Words of an address of the same family stand as in the packet; IPv4 in the first. */
struct grant_query {
	__u64 left;
	__u64 right;
	__u32 what; /* GRANT_WHAT */
};

static __always_inline __u64 grant_hash(const struct grant_query *query)
{
	__u64 hash = mix(config.seed, query->left, MIX_LEFT);

	/* a branch that is a constant where the family is */
	if ((query->what >> 16 & 0xff) == 6)
		hash = mix(hash, query->right, MIX_LEFT);
	return mix_last(hash ^ query->what * MIX_RIGHT);
}

static __always_inline bool grant_is_for(const struct grant *grant, const struct grant_query *query)
{
	const __u64 *words = (const __u64 *)grant->be_addr;

	return !((words[0] ^ query->left) | (words[1] ^ query->right) |
		 (*(const __u32 *)&grant->service ^ query->what));
}

static __always_inline bool demands_grants(__u32 zone)
{
	return generation.gate_zones[zone / 64 % (MAX_ZONES / 64)] >> (zone % 64) & 1;
}

/* Whether there are grants for more than single hosts. */
static __always_inline bool prefixes_granted(__u8 family)
{
	__u32 zero = 0;
	struct grant_lengths *in_use = bpf_map_lookup_elem(&grant_lengths, &zero);

	return !in_use || *(volatile __u64 *)(family == 4 ? &in_use->lengths4 : &in_use->lengths6);
}

/* True: this host has no grant of its own for anything. */
static __always_inline bool is_ungranted(__u8 family, __u64 left, __u64 right)
{
	struct grant_query query = {.left = left, .right = right, .what = GRANT_WHAT(0, family, 0)};
	__u64 hash = grant_hash(&query), bits = 1ull << (hash & 63) | 1ull << (hash >> 6 & 63);
	__u32 at = (__u32)(hash >> 40) & config.source_mask;
	__u64 *word = bpf_map_lookup_elem(&grant_sources, &at);

	return word && (*(volatile __u64 *)word & bits) != bits;
}

static __always_inline struct flow_bucket *grant_bucket(__u32 number)
{
	__u32 masked = number & config.grant_mask;

	return bpf_map_lookup_elem(&grant_index, &masked);
}

/* The record among the first `tries` that a bucket has under this tag. */
static __always_inline struct grant *grant_in(const struct flow_bucket *bucket, const struct grant_query *query,
					      __u64 matches, __u32 *handle, int tries)
{
	for (int i = 0; i < tries && matches; i++) {
		*handle = bucket->lines[slot_of_bit(matches & -matches)];
		struct grant *grant = grant_at(*handle);

		if (grant && grant_is_for(grant, query))
			return grant;
		matches &= matches - 1;
	}
	return NULL;
}

/* Handle in the index for this very key, 0 = none. */
__noinline __u32 grant_look(const struct grant_query *query, __u64 hash)
{
	__u32 i, handle = 0;

	if (!query)
		return 0;
	bpf_for (i, 0, GRANT_PROBES) {
		const struct flow_bucket *bucket = grant_bucket((__u32)(hash >> 40) + i);

		if (!bucket)
			return 0;
		__u32 overflow = *(volatile __u32 *)&bucket->overflow;

		if (grant_in(bucket, query, match_tags(bucket, tag_of(hash)), &handle, FLOW_BUCKET_SLOTS))
			return handle;
		if (!overflow)
			return 0;
	}
	return 0;
}

/* The reason it does not hold for, or 0. A grant that was idle for too long is never used again, so it stays so. */
static __always_inline __u32 grant_refusal(const struct grant *grant, __u32 handle, __u64 now)
{
	if (*(volatile __u32 *)&grant->handle != handle)
		return REASON_GRANT_REVOKED;
	if (now >= grant->deadline)
		return REASON_GRANT_EXPIRED;
	if (grant->idle && (__s64)(now - grant->last_use) > (__s64)grant->idle)
		return REASON_GRANT_IDLE;
	return 0;
}

/* A packet of its source. The line is shared by all CPUs, so it is written as seldom as seconds allow. */
static __always_inline void grant_used(struct grant *grant, __u64 now)
{
	if ((__s64)(now - grant->last_use) > (__s64)(config.hz >> 3))
		grant->last_use = now;
}

/*
 * What a session with MARK_EXTENDED says of its grant: the handle, and whether packets of this line are the grant's
 * use. One of programs that knew no extensions says it in its lines.
 */
#define GRANT_IN_USE (1ull << 32)
#define GRANT_NOT_NEEDED (~0ull)

__noinline __u64 grant_of(__u32 family, __u32 line_number)
{
	struct flow_extension *extension = flow_extension_at(family, line_number >> 1);
	struct flow_state *state;
	__u32 handle;

	if (family == 4) {
		struct flow_line4 *line = bpf_map_lookup_elem(&lines4, &line_number);

		if (!line)
			return 0;
		handle = line->grant;
		state = &line->state;
	} else {
		struct flow_line6 *line = bpf_map_lookup_elem(&lines6, &line_number);

		if (!line)
			return 0;
		handle = line->grant;
		state = &line->state;
	}
	bool used = state->marks & MARK_GRANTEE;

	if (extension && extension->needs && extension->tag == state->tag) {
		if (!(extension->needs & EXTENSION_GRANT))
			return GRANT_NOT_NEEDED;
		handle = extension->grant;
		used = extension->grant_use >> (line_number & 1) & 1;
	}
	return handle | (used ? GRANT_IN_USE : 0);
}

/*
 * Whether an established packet asks for its session's grant: the first of its direction in every period, so a grant
 * that ends does so for all packets with the next one. It saves busy sessions two lines of memory that stand behind
 * their own.
 */
static __always_inline bool grant_is_due(const struct flow_state *state)
{
	return (state->marks & MARK_EXTENDED) && (jiffies_now() ^ state->last_seen) > config.grant_pace;
}

/* Of a session with MARK_EXTENDED. A packet of it may be its grant's use; without one, it is the sweep that asks. */
__noinline __u32 session_refusal(__u32 family, __u32 line_number, __u32 packet)
{
	__u64 held = grant_of(family, line_number);
	__u32 handle = held;
	struct grant *grant = grant_at(handle);
	__u64 now = bpf_jiffies64();

	if (held == GRANT_NOT_NEEDED)
		return 0;
	if (!grant || !handle)
		return REASON_GRANT_REVOKED;
	__u32 refusal = grant_refusal(grant, handle, now);

	if (!refusal && packet && (held & GRANT_IN_USE))
		grant_used(grant, now);
	return refusal;
}

/* A session was recorded that lives by it (1), or withdrawn at once (-1). */
__noinline int grant_count(__u32 handle, __u32 sessions)
{
	struct grant *grant = grant_at(handle);

	if (grant && *(volatile __u32 *)&grant->handle == handle)
		atomic_add(&grant->sessions, sessions);
	return 0;
}

/* Tells the daemon once a second, zone, reason and CPU: a flood must not become a flood of messages. */
__noinline int gate_log(const struct packet *p, __u32 reason, __u32 service)
{
	if (!p || reason >= REASON_SLOTS)
		return 0;
	__u32 zone = p->from_zone;
	struct screen_counters *zone_count = bpf_map_lookup_elem(&screen_counters, &zone);

	if (!zone_count)
		return 0;
	__u32 *logged_at = &zone_count->logged_at[reason];

	if (*logged_at && p->now - *logged_at < config.hz)
		return 0;
	*logged_at = p->now;
	struct event *event = event_of(p, EVENT_GATE_DENY);

	if (!event)
		return 0;
	event->screen = reason;
	event->policy = service;
	event->to_zone = p->to_zone;
	bpf_ringbuf_submit(event, 0);
	return 0;
}

static __always_inline int gate_refuse(const struct packet *p, __u32 reason, __u32 service)
{
	gate_log(p, reason, service);
	return VERDICT_DROP | reason;
}

static __always_inline void end_granted(const struct packet *p, __u32 tag)
{
	if (p->family == 4)
		flow_delete4(p->line, tag, CLOSE_GRANT);
	else
		flow_delete6(p->line, tag, CLOSE_GRANT);
}

/* A packet that belongs to session `line`: CONTINUE, or the drop that ends it because its grant has ended. */
__noinline int check_grant(struct packet *p)
{
	if (!p)
		return DROP(GRANT_REVOKED);
	struct flow_state *own = flow_state_at(p->family, p->line);

	if (!own)
		return DROP(GRANT_REVOKED);
	if (!(own->marks & MARK_EXTENDED))
		return CONTINUE;
	/* before the grant is read: the record may change hands meanwhile */
	__u32 tag = p->flags & P_LATER ? p->line_tag : p->tag;
	__u32 refusal = session_refusal(p->family, p->line, 1);

	if (!refusal)
		return CONTINUE;
	end_granted(p, tag);
	return gate_refuse(p, refusal, 0);
}

#endif
