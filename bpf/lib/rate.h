/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counting for the screens, shared by all CPUs: packets of a second by key, and different hosts or ports by source.
 * Both err to one side only: a key that had to make room is counted too low, and nobody is counted for another,
 * but for packets that other CPUs are counting in the moment when a cell changes hands.
 * Functions that are called from several places are global: the verifier then looks at each once, not at every call.
 */
#ifndef SLUICE_LIB_RATE_H
#define SLUICE_LIB_RATE_H

#include "lib/screen.h"

/* What a count is about; further facts stand above the low byte. */
enum rate_kind {
	RATE_ICMP = 1,
	RATE_UDP,
	RATE_SYN_SOURCE,
	RATE_SYN_PORT,
	RATE_SYN_DESTINATION,
	RATE_KNOWN_SOURCE,
	SCAN_ICMP_HOSTS,
	SCAN_TCP_HOSTS,
	SCAN_UDP_HOSTS,
	SCAN_TCP_PORTS,
	SCAN_UDP_PORTS,
};

static __always_inline __u64 rate_about(__u32 kind, __u32 port)
{
	return kind | (__u64)port << 8;
}

/* Is it less than `span` jiffies ago? Another CPU's packet may have begun, and looked at the clock, after this one. */
static __always_inline bool is_recent(__u32 then, __u32 now, __u32 span)
{
	return now - then + config.hz < span + config.hz;
}

static __always_inline __u32 rate_load(const struct rate_cell *cell, __u32 now)
{
	__u64 word = *(volatile __u64 *)&cell->word;

	return is_recent(word >> 32, now, config.hz) ? (__u32)word : 0;
}

/*
 * Empties the cell, then gives it to the tag. Nobody inherits another's count: whoever finds the count changed
 * meanwhile looks again, at last lets the packet go uncounted. Packets of one key on two CPUs come to the same cell.
 */
static __always_inline struct rate_cell *rate_claim(struct rate_cell *cell, __u64 tag, __u32 now)
{
	for (int i = 0; i < 3; i++) {
		__u64 old = *(volatile __u64 *)&cell->tag, word = *(volatile __u64 *)&cell->word;

		if (old == tag)
			return cell;
		if (__sync_val_compare_and_swap(&cell->word, word, (__u64)now << 32) != word)
			continue;
		__u64 found = __sync_val_compare_and_swap(&cell->tag, old, tag);

		return found == old || found == tag ? cell : NULL;
	}
	return NULL;
}

/* The cell of the tag; else the one with the smallest count of this second is given to it. */
static __always_inline struct rate_cell *rate_cell_of(struct rate_bucket *bucket, __u64 tag, __u32 now)
{
	struct rate_cell *victim = &bucket->cells[0];
	__u32 least = ~0u;

	for (int i = 0; i < RATE_WAYS; i++) {
		struct rate_cell *cell = &bucket->cells[i];
		__u64 found = *(volatile __u64 *)&cell->tag;

		if (found == tag)
			return cell;
		__u32 load = found ? rate_load(cell, now) : 0;

		if (load < least) {
			least = load;
			victim = cell;
		}
	}
	return rate_claim(victim, tag, now);
}

/* Packets of the key's second, this one included. A second begins with its first packet. */
__noinline __u32 rate_count(const struct packet *p, __u32 which, __u64 about)
{
	if (!p)
		return 0;
	__u64 tag = screen_hash(p, which, about) | 1;
	__u32 place = tag >> RATE_SHIFT, now = p->now, segments = p->segments;
	struct rate_bucket *bucket = bpf_map_lookup_elem(&screen_rates, &place);
	struct rate_cell *cell = bucket ? rate_cell_of(bucket, tag, now) : NULL;

	if (!cell)
		return 0;
	__u64 word = *(volatile __u64 *)&cell->word;

	if (!is_recent(word >> 32, now, config.hz)) {
		__u64 fresh = (__u64)now << 32 | segments;

		if (__sync_val_compare_and_swap(&cell->word, word, fresh) == word)
			return segments;
	}
	return (__u32)__sync_fetch_and_add(&cell->word, segments) + segments;
}

/* Has the source returned a cookie? Known sources stand behind the counts in `screen_rates`. The word of these cells is
 * the jiffies until when that holds. */
__noinline int source_known(const struct packet *p)
{
	if (!p)
		return 0;
	__u64 tag = screen_hash(p, SCREEN_OF_SOURCE, RATE_KNOWN_SOURCE) | 1;
	__u32 place = RATE_BUCKETS + (tag >> RATE_SHIFT);
	struct rate_bucket *bucket = bpf_map_lookup_elem(&screen_rates, &place);

	if (!bucket)
		return 0;
	for (int i = 0; i < RATE_WAYS; i++) {
		if (bucket->cells[i].tag == tag)
			return (__s32)((__u32)bucket->cells[i].word - p->now) > 0;
	}
	return 0;
}

/* In place of whoever was to be forgotten first. */
__noinline int source_learn(const struct packet *p)
{
	if (!p)
		return 0;
	__u64 tag = screen_hash(p, SCREEN_OF_SOURCE, RATE_KNOWN_SOURCE) | 1;
	__u32 place = RATE_BUCKETS + (tag >> RATE_SHIFT), now = p->now, least = ~0u;
	struct rate_bucket *bucket = bpf_map_lookup_elem(&screen_rates, &place);

	if (!bucket)
		return 0;
	struct rate_cell *victim = &bucket->cells[0];

	for (int i = 0; i < RATE_WAYS; i++) {
		struct rate_cell *cell = &bucket->cells[i];
		__s32 left = (__u32)cell->word - now;

		if (cell->tag == tag) {
			victim = cell;
			break;
		}
		if (!cell->tag || left < 0)
			left = 0;
		if ((__u32)left < least) {
			least = left;
			victim = cell;
		}
	}
	*(volatile __u64 *)&victim->word = (__u32)(now + KNOWN_SOURCE_S * config.hz);
	ordered();
	*(volatile __u64 *)&victim->tag = tag;
	return 1;
}

static __always_inline bool scan_is_over(const struct scan_cell *cell, __u64 now_us)
{
	return !cell->tag || (__s64)(now_us - cell->start_us) >= (__s64)cell->interval_us;
}

/* May a cell that is at work be given to another source? It has seen no more than one host. */
static __always_inline bool scan_may_go(const struct scan_cell *cell)
{
	return (__u32)(cell->seen[1] >> 32) != (__u32)cell->start_us;
}

/* The cell of the tag among the few where it may stand; else one that may go is given to it. */
static __always_inline struct scan_cell *scan_cell_of(__u64 tag, __u64 now_us, __u32 interval_us)
{
	struct scan_cell *victim = NULL;

	for (__u32 i = 0; i < SCAN_WAYS; i++) {
		__u32 place = (__u32)(tag >> SCAN_SHIFT) ^ i;
		struct scan_cell *cell = bpf_map_lookup_elem(&screen_scans, &place);

		if (!cell)
			return NULL;
		if (cell->tag == tag)
			return cell;
		/* rather one whose time is over than one that has just begun */
		if (scan_is_over(cell, now_us) || (!victim && scan_may_go(cell)))
			victim = cell;
	}
	/* all are at work: this source goes unwatched */
	if (!victim)
		return NULL;
	__u64 old = victim->tag, start = victim->start_us;

	if (__sync_val_compare_and_swap(&victim->tag, old, tag) != old)
		return NULL;
	/* a start of its own empties the list */
	victim->interval_us = interval_us;
	*(volatile __u64 *)&victim->start_us = now_us > start ? now_us : start + 1;
	return victim;
}

/* One more host or port of this source. Are these ten within the interval, or were they before? */
__noinline int scan_found(const struct packet *p, __u32 which, __u32 kind, __u32 value, __u32 interval_us)
{
	if (!p)
		return 0;
	__u64 now_us = bpf_ktime_get_ns() / 1000;
	struct scan_cell *cell = scan_cell_of(screen_hash(p, which, kind) | 1, now_us, interval_us);

	if (!cell)
		return 0;
	__u64 start = *(volatile __u64 *)&cell->start_us;

	/* a start that is ahead (another CPU's clock, or one above) is young */
	if ((__s64)(now_us - start) >= (__s64)interval_us) {
		__u64 found = __sync_val_compare_and_swap(&cell->start_us, start, now_us);

		start = found == start ? now_us : found;
		cell->interval_us = interval_us;
	}
	__u32 window = start;
	__u64 item = (__u64)window << 32 | value;

	for (int i = 0; i < SCAN_LIMIT; i++) {
		__u64 seen = *(volatile __u64 *)&cell->seen[i];

		if ((__u32)(seen >> 32) != window) {
			__u64 found = __sync_val_compare_and_swap(&cell->seen[i], seen, item);

			if (found == seen)
				return i == SCAN_LIMIT - 1;
			seen = found;
		}
		if (seen == item)
			return (__u32)(cell->seen[SCAN_LIMIT - 1] >> 32) == window;
	}
	return 1;
}

static __always_inline struct screen_limits *limits_of(const struct packet *p)
{
	__u32 zone = p->from_zone;

	return screen_limits_at(zone);
}

/* A limit is passed: count and tell; drop unless the zone only wants to know. */
__noinline int limit_passed(const struct packet *p, __u32 reason, __u32 alarm_only)
{
	if (!p)
		return DROP(TRUNCATED);
	screen_count(p, reason, alarm_only);
	return alarm_only ? CONTINUE : (int)(VERDICT_DROP | REASON_OF(reason));
}

#endif
