/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Counts the live sessions of an address, exactly: in when a session is made, out when its record is given back. */
#ifndef SLUICE_LIB_SESSION_LIMITS_H
#define SLUICE_LIB_SESSION_LIMITS_H

#include "flow_index.h"

#define LIMIT_COUNTED 0
#define LIMIT_REACHED 1
#define LIMIT_NO_ROOM 2

static __always_inline __u64 limit_hash4(__u32 zone, __u32 which, __u32 be_addr)
{
	return mix_last(mix(mix(config.seed, (__u64)zone << 8 | which, MIX_RIGHT), be_addr, MIX_LEFT));
}

static __always_inline __u64 limit_hash6(__u32 zone, __u32 which, const __u32 *be_addr)
{
	const __u64 *words = (const __u64 *)be_addr;
	__u64 hash = mix(config.seed, (__u64)zone << 8 | which | 0x80, MIX_RIGHT);

	return mix_last(mix(mix(hash, words[0], MIX_LEFT), words[1], MIX_RIGHT));
}

static __always_inline struct limit_set *limit_set_of(__u64 hash)
{
	__u32 number = (hash >> 32) % LIMIT_SETS;

	return bpf_map_lookup_elem(&session_limits, &number);
}

static __always_inline bool limit_lock(struct limit_set *set, __u32 spins)
{
	return bucket_lock_within((struct flow_bucket *)set, spins);
}

static __always_inline void limit_unlock(struct limit_set *set)
{
	bucket_unlock((struct flow_bucket *)set);
}

/* One more session of this address, unless it has as many as it may; `alarm_only` counts it even then. */
__noinline int limit_enter(__u64 hash, __u32 limit, __u32 alarm_only)
{
	struct limit_set *set = limit_set_of(hash);
	struct limit_slot *found = NULL;
	__u32 tag = (__u32)hash;
	int result = LIMIT_NO_ROOM;

	if (!set || !limit_lock(set, LOCK_SPINS))
		return LIMIT_NO_ROOM;
	for (__u32 i = 0; i < LIMIT_SLOTS; i++) {
		struct limit_slot *slot = &set->slots[i];

		if (slot->count && slot->tag == tag) {
			result = slot->count < limit ? LIMIT_COUNTED : LIMIT_REACHED;
			if (result == LIMIT_COUNTED || alarm_only)
				slot->count++;
			found = NULL;
			break;
		}
		if (!slot->count)
			found = slot;
	}
	if (found) {
		found->tag = tag;
		found->count = 1;
		result = LIMIT_COUNTED;
	}
	limit_unlock(set);
	return result;
}

/* One session less. */
__noinline int limit_leave(__u64 hash)
{
	struct limit_set *set = limit_set_of(hash);
	__u32 tag = (__u32)hash;

	if (!set || !limit_lock(set, LOCK_SPINS_PATIENT))
		return 0;
	for (__u32 i = 0; i < LIMIT_SLOTS; i++) {
		struct limit_slot *slot = &set->slots[i];

		if (slot->count && slot->tag == tag) {
			slot->count--;
			break;
		}
	}
	limit_unlock(set);
	return 0;
}

static __always_inline void limits_leave4(const struct flow_key4 *key, const struct flow_shared *shared)
{
	if (shared->limited & LIMIT_SOURCE)
		limit_leave(limit_hash4(shared->from_zone, LIMIT_SOURCE, key->be_saddr));
	if (shared->limited & LIMIT_DESTINATION)
		limit_leave(limit_hash4(shared->from_zone, LIMIT_DESTINATION, key->be_daddr));
}

static __always_inline void limits_leave6(const struct flow_key6 *key, const struct flow_shared *shared)
{
	if (shared->limited & LIMIT_SOURCE)
		limit_leave(limit_hash6(shared->from_zone, LIMIT_SOURCE, key->be_saddr));
	if (shared->limited & LIMIT_DESTINATION)
		limit_leave(limit_hash6(shared->from_zone, LIMIT_DESTINATION, key->be_daddr));
}

#endif
