/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Find, insert and remove keys of the flow index (layout: abi/flow_index.h).
 *
 * Readers take no lock. Writers lock a key's first bucket, which serialises everything about that key; a slot of a
 * second bucket is claimed by compare-and-swap, since others may use that bucket as theirs. Insert: line number, then
 * tag, which publishes. Remove: tag, then line number.
 */
#ifndef SLUICE_FLOW_INDEX_H
#define SLUICE_FLOW_INDEX_H

#include "lib/flow_hash.h"
#include "maps.h"

#define LANES_LOW 0x0001000100010001ull
#define LANES_HIGH 0x8000800080008000ull
#define SLOT_HASH 0x100040007000D000ull
#define LOCK_SPINS 4096

#define INDEX_DONE 0
#define INDEX_FULL 1
#define INDEX_EXISTS 2
#define INDEX_BUSY 3 /* the lock could not be had */

/* FLOW_LANES[slot], four bits each: 4 0 5 6 1 3 7 2 */
#define LANE_OF_SLOT(slot) ((0x27316504u >> ((slot) * 4)) & 7)

static __always_inline __u16 tag_of(__u64 hash)
{
	__u16 tag = (__u16)hash;

	return tag ? tag : 1;
}

/* One bit a matching lane; a lane above a match may be reported too, the key comparison settles it. */
static __always_inline __u64 match_tags(const struct flow_bucket *bucket, __u16 tag)
{
	const __u64 *tags = (const __u64 *)bucket->tags;
	__u64 wanted = tag * LANES_LOW;
	__u64 a = tags[0] ^ wanted, b = tags[1] ^ wanted;

	a = (a - LANES_LOW) & ~a & LANES_HIGH;
	b = (b - LANES_LOW) & ~b & LANES_HIGH;
	return a | (b >> 1);
}

static __always_inline __u32 slot_of_bit(__u64 bit)
{
	return ((bit >> 14) * SLOT_HASH) >> 61;
}

static __always_inline bool key_equal4(const struct flow_key4 *a, const struct flow_key4 *b)
{
	const __u64 *x = (const __u64 *)a, *y = (const __u64 *)b;

	return !((x[0] ^ y[0]) | (x[1] ^ y[1]));
}

static __always_inline bool key_equal6(const struct flow_key6 *a, const struct flow_key6 *b)
{
	const __u64 *x = (const __u64 *)a, *y = (const __u64 *)b;

	return !((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]) | (x[4] ^ y[4]));
}

/* Where giving up would leave a key behind. The holder's virtual CPU may have been taken away for a while. */
#define LOCK_SPINS_PATIENT 8000000

static __always_inline bool bucket_lock_within(struct flow_bucket *bucket, __u32 spins)
{
	__u32 i;

	if (__sync_val_compare_and_swap(&bucket->lock, 0, 1) == 0)
		return true;
	bpf_for (i, 0, spins) {
		if (__sync_val_compare_and_swap(&bucket->lock, 0, 1) == 0)
			return true;
	}
	return false;
}

static __always_inline bool bucket_lock(struct flow_bucket *bucket)
{
	return bucket_lock_within(bucket, LOCK_SPINS);
}

/* A plain store: what was written under the lock is visible before it. */
static __always_inline void bucket_unlock(struct flow_bucket *bucket)
{
	publish(&bucket->lock, 0);
}

/*
 * Fetches a cache line without waiting for it. It takes a store, to a word that means nothing at the moment: a load
 * holds up whatever comes a few hundred instructions later until its line is there, a store does not.
 */
static __always_inline void prefetch(__u32 *unused)
{
	*(volatile __u32 *)unused = 0;
}

/* Slot that holds `line`, or FLOW_BUCKET_SLOTS. */
static __always_inline __u32 bucket_slot(const struct flow_bucket *bucket, __u32 line)
{
	for (__u32 slot = 0; slot < FLOW_BUCKET_SLOTS; slot++)
		if (bucket->lines[slot] == line)
			return slot;
	return FLOW_BUCKET_SLOTS;
}

static __always_inline bool bucket_put(struct flow_bucket *bucket, __u16 tag, __u32 line)
{
	for (__u32 slot = 0; slot < FLOW_BUCKET_SLOTS; slot++) {
		if (bucket->lines[slot] || __sync_val_compare_and_swap(&bucket->lines[slot], 0, line))
			continue;
		*(volatile __u16 *)&bucket->tags[LANE_OF_SLOT(slot)] = tag;
		return true;
	}
	return false;
}

static __always_inline bool bucket_drop(struct flow_bucket *bucket, __u32 line)
{
	for (__u32 slot = 0; slot < FLOW_BUCKET_SLOTS; slot++) {
		if (bucket->lines[slot] != line)
			continue;
		*(volatile __u16 *)&bucket->tags[LANE_OF_SLOT(slot)] = 0;
		publish(&bucket->lines[slot], 0);
		return true;
	}
	return false;
}

#define DEFINE_INDEX(FAMILY)                                                                                           \
	static __always_inline struct flow_bucket *bucket_at##FAMILY(__u32 number)                                     \
	{                                                                                                              \
		__u32 masked = number & config.bucket_mask##FAMILY;                                                    \
                                                                                                                       \
		return bpf_map_lookup_elem(&buckets##FAMILY, &masked);                                                 \
	}                                                                                                              \
                                                                                                                       \
	/* The live line with this very key, if it is among the first `tries` matches of its tag. */                   \
	static __always_inline struct flow_state *bucket_find##FAMILY(const struct flow_bucket *bucket,                \
								      const struct flow_key##FAMILY *key, __u16 tag,   \
								      __u32 *number, int tries)                        \
	{                                                                                                              \
		__u64 matches = match_tags(bucket, tag);                                                               \
                                                                                                                       \
		for (int i = 0; i < tries && matches; i++) {                                                           \
			*number = bucket->lines[slot_of_bit(matches & -matches)];                                      \
			struct flow_line##FAMILY *line = bpf_map_lookup_elem(&lines##FAMILY, number);                  \
                                                                                                                       \
			if (line && key_equal##FAMILY(&line->key, key) && (line->state.flags & FLOW_LIVE))             \
				return &line->state;                                                                   \
			matches &= matches - 1;                                                                        \
		}                                                                                                      \
		return NULL;                                                                                           \
	}                                                                                                              \
                                                                                                                       \
	static __always_inline struct flow_state *stash_find##FAMILY(const struct flow_key##FAMILY *key,               \
								     __u32 *number)                                    \
	{                                                                                                              \
		__u32 *stashed = bpf_map_lookup_elem(&stash##FAMILY, key);                                             \
                                                                                                                       \
		if (!stashed)                                                                                          \
			return NULL;                                                                                   \
		*number = *stashed;                                                                                    \
		struct flow_line##FAMILY *line = bpf_map_lookup_elem(&lines##FAMILY, number);                          \
                                                                                                                       \
		if (!line || !key_equal##FAMILY(&line->key, key) || !(line->state.flags & FLOW_LIVE))                  \
			return NULL;                                                                                   \
		return &line->state;                                                                                   \
	}                                                                                                              \
                                                                                                                       \
	/* Few keys stand in their second bucket or in the stash: line of such a one, 0 = there is none. A function,   \
	 * so that the many do not carry its code through the first-level cache. */                                    \
	__noinline __u32 index_elsewhere##FAMILY(const struct flow_key##FAMILY *key, __u64 hash, __u32 stashed)        \
	{                                                                                                              \
		struct flow_bucket *second = bucket_at##FAMILY(hash >> 16);                                            \
		__u32 number = 0;                                                                                      \
                                                                                                                       \
		if (!key || !second)                                                                                   \
			return 0;                                                                                      \
		if (bucket_find##FAMILY(second, key, tag_of(hash), &number, FLOW_BUCKET_SLOTS))                        \
			return number;                                                                                 \
		return stashed && stash_find##FAMILY(key, &number) ? number : 0;                                       \
	}                                                                                                              \
                                                                                                                       \
	static __always_inline struct flow_state *flow_find##FAMILY(const struct flow_key##FAMILY *key, __u64 hash,    \
								    __u32 *number, int tries)                          \
	{                                                                                                              \
		if (config.flags & CONFIG_KERNEL_INDEX)                                                                \
			return stash_find##FAMILY(key, number);                                                        \
		struct flow_bucket *bucket = bucket_at##FAMILY(hash >> 40);                                            \
                                                                                                                       \
		if (!bucket)                                                                                           \
			return NULL;                                                                                   \
		struct flow_state *state = bucket_find##FAMILY(bucket, key, tag_of(hash), number, tries);              \
		__u32 overflow = *(volatile __u32 *)&bucket->overflow;                                                 \
                                                                                                                       \
		if (state || !overflow)                                                                                \
			return state;                                                                                  \
		*number = index_elsewhere##FAMILY(key, hash, overflow >> 16);                                          \
		struct flow_line##FAMILY *line = bpf_map_lookup_elem(&lines##FAMILY, number);                          \
                                                                                                                       \
		if (!*number || !line)                                                                                 \
			return NULL;                                                                                   \
		barrier_var(line);                                                                                     \
		return &line->state;                                                                                   \
	}                                                                                                              \
                                                                                                                       \
	__noinline int index_insert##FAMILY(const struct flow_key##FAMILY *key, __u64 hash, __u32 line)                \
	{                                                                                                              \
		__u32 number = 0;                                                                                      \
                                                                                                                       \
		if (!key)                                                                                              \
			return INDEX_FULL;                                                                             \
		__u16 tag = tag_of(hash);                                                                              \
		struct flow_bucket *first = bucket_at##FAMILY(hash >> 40);                                             \
		struct flow_bucket *second = bucket_at##FAMILY(hash >> 16);                                            \
		int result = INDEX_DONE;                                                                               \
                                                                                                                       \
		if (!first || !second)                                                                                 \
			return INDEX_FULL;                                                                             \
		if (!bucket_lock(first))                                                                               \
			return INDEX_BUSY;                                                                             \
		if (config.flags & CONFIG_KERNEL_INDEX) {                                                              \
			if (stash_find##FAMILY(key, &number))                                                          \
				result = INDEX_EXISTS;                                                                 \
			else if (bpf_map_update_elem(&stash##FAMILY, key, &line, BPF_ANY))                             \
				result = INDEX_FULL;                                                                   \
		} else if (bucket_find##FAMILY(first, key, tag, &number, FLOW_BUCKET_SLOTS) ||                         \
			   (first->overflow && (bucket_find##FAMILY(second, key, tag, &number, FLOW_BUCKET_SLOTS) ||   \
						stash_find##FAMILY(key, &number)))) {                                  \
			result = INDEX_EXISTS;                                                                         \
		} else if (bucket_put(first, tag, line)) {                                                             \
			/* the common case */                                                                          \
		} else if (first != second && bucket_put(second, tag, line)) {                                         \
			first->overflow += 1;                                                                          \
		} else if (!bpf_map_update_elem(&stash##FAMILY, key, &line, BPF_ANY)) {                                \
			first->overflow += 0x10000;                                                                    \
		} else {                                                                                               \
			result = INDEX_FULL;                                                                           \
		}                                                                                                      \
		bucket_unlock(first);                                                                                  \
		return result;                                                                                         \
	}                                                                                                              \
                                                                                                                       \
	/*                                                                                                             \
	 * 1 when this call removed the key of a line with this tag; whoever gets the 1 owns what it led to. The tag   \
	 * changes under the lock: as long as it is the same, the key leads to the line, and to nobody else's session. \
	 */                                                                                                            \
	__noinline int index_remove##FAMILY(const struct flow_key##FAMILY *key, __u32 line, __u32 tag)                 \
	{                                                                                                              \
		if (!key)                                                                                              \
			return 0;                                                                                      \
		__u64 hash = flow_hash##FAMILY(config.seed, key);                                                      \
		struct flow_bucket *first = bucket_at##FAMILY(hash >> 40);                                             \
		struct flow_bucket *second = bucket_at##FAMILY(hash >> 16);                                            \
		struct flow_line##FAMILY *record = bpf_map_lookup_elem(&lines##FAMILY, &line);                         \
		int removed = 1;                                                                                       \
                                                                                                                       \
		if (!first || !second || !record || !bucket_lock_within(first, LOCK_SPINS_PATIENT))                    \
			return 0;                                                                                      \
		if (record->state.tag != (__u16)tag) {                                                                 \
			removed = 0;                                                                                   \
		} else if (!(config.flags & CONFIG_KERNEL_INDEX) && bucket_drop(first, line)) {                        \
			/* the common case */                                                                          \
		} else if (!(config.flags & CONFIG_KERNEL_INDEX) && first != second && bucket_drop(second, line)) {    \
			first->overflow -= 1;                                                                          \
		} else {                                                                                               \
			__u32 *stashed = bpf_map_lookup_elem(&stash##FAMILY, key);                                     \
                                                                                                                       \
			removed = stashed && *stashed == line && !bpf_map_delete_elem(&stash##FAMILY, key);            \
			if (removed && !(config.flags & CONFIG_KERNEL_INDEX))                                          \
				first->overflow -= 0x10000;                                                            \
		}                                                                                                      \
		if (removed)                                                                                           \
			*(volatile __u16 *)&record->state.tag = tag + 1;                                               \
		bucket_unlock(first);                                                                                  \
		return removed;                                                                                        \
	}

DEFINE_INDEX(4)
DEFINE_INDEX(6)

#endif
