/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the screens share: hashes of their tables, counting, the log, and the verdict. */
#ifndef SLUICE_LIB_SCREEN_H
#define SLUICE_LIB_SCREEN_H

#include "lib/events.h"

/* Which addresses a table's key holds. */
#define SCREEN_OF_SOURCE 1
#define SCREEN_OF_DESTINATION 2
#define SCREEN_OF_BOTH 3

/*
 * Of the packet's addresses, its zone and what else tells keys apart. Seeded, so nobody outside can aim at an entry;
 * the generation is part of it, so a commit starts afresh.
 */
static __always_inline __u64 screen_hash(const struct packet *p, __u32 which, __u64 more)
{
	if (!p)
		return 0;
	__u64 hash = mix(config.seed, (__u64)generation.number << 32 | p->from_zone << 8 | which, MIX_LEFT);

	if (p->family == 4) {
		__u64 words = which & SCREEN_OF_SOURCE ? p->key4.be_saddr : 0;

		words |= which & SCREEN_OF_DESTINATION ? (__u64)p->key4.be_daddr << 32 : 0;
		return mix_last(mix(mix(hash, words, MIX_LEFT), more, MIX_RIGHT));
	}
	const __u64 *words = (const __u64 *)&p->key6;

	if (which & SCREEN_OF_SOURCE)
		hash = mix(mix(hash, words[0], MIX_LEFT), words[1], MIX_LEFT);
	if (which & SCREEN_OF_DESTINATION)
		hash = mix(mix(hash, words[2], MIX_RIGHT), words[3], MIX_RIGHT);
	return mix_last(mix(hash, more, MIX_RIGHT));
}

/* Tells the daemon, once a second, screen and CPU: a flood must not become a flood of messages. */
static __noinline int screen_log(const struct packet *p, __u32 reason, __u32 alarm_only)
{
	if (!p)
		return 0;
	struct event *event = event_of(p, EVENT_SCREEN);

	if (!event)
		return 0;
	event->screen = reason;
	event->passed = !!alarm_only;
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* Counts for `show screens`, whatever becomes of the packet. */
static __always_inline void screen_count(const struct packet *p, __u32 reason, __u32 alarm_only)
{
	__u32 zone = p->from_zone;
	struct screen_counters *count = bpf_map_lookup_elem(&screen_counters, &zone);

	if (!count || reason >= REASON_SLOTS)
		return;
	count->hits[reason] += p->segments;
	if (count->logged_at[reason] && p->now - count->logged_at[reason] < config.hz)
		return;
	count->logged_at[reason] = p->now;
	screen_log(p, reason, alarm_only);
}

/* The verdict for a packet that screens of the zone recognise; with alarm-without-drop all of them count it. */
static __noinline int screens_found(struct packet *p, __u32 found, __u32 enabled)
{
	__u32 i;

	if (!p)
		return DROP(TRUNCATED);
	if (!(enabled & SCREEN_ALARM_ONLY)) {
		__u32 reason = SCREEN_BASE + lowest_of_word(found);

		barrier_var(reason); /* else clang checks it before the last shift, which tells the verifier nothing */
		screen_count(p, reason, 0);
		return VERDICT_DROP | reason;
	}
	found &= ~SCREEN_ALARM_ONLY;
	bpf_for (i, 0, 31) {
		if (found >> i & 1)
			screen_count(p, SCREEN_BASE + i, 1);
	}
	return CONTINUE;
}

#endif
