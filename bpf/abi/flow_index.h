/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The index of the flow table: tuple -> line. A key has a first and a second bucket; what fits in neither goes to a
 * small kernel hash, the stash. Keys never move, so a reader cannot miss one.
 *
 *   hash    a seeded mix of the key's 64-bit words, see lib/flow_hash.h; its three parts have no bit in common, else
 *           keys that share a second bucket would share part of their tags
 *   first  (hash >> 40) & bucket_mask     second  (hash >> 16) & bucket_mask     tag  hash & 0xffff, 0 becomes 1
 *
 * Slots are searched without branches: the matching tag's lane is turned into its slot by a perfect hash of the eight
 * possible bits, which is why slot s keeps its tag in lane FLOW_LANES[s].
 */
#ifndef SLUICE_ABI_FLOW_INDEX_H
#define SLUICE_ABI_FLOW_INDEX_H

#include <linux/types.h>

#define FLOW_BUCKET_SLOTS 8
#define FLOW_STASH_SHIFT 6 /* the stash holds sessions >> 6 keys, at least FLOW_STASH_MIN */
#define FLOW_STASH_MIN 64

struct flow_bucket {
	__u32 lock;     /* taken with atomics, only where softirqs are off */
	__u32 overflow; /* keys of this first bucket elsewhere: low half in second buckets, high half in the stash */
	__u16 tags[8];  /* by lane, 0 = none */
	__u32 lines[8]; /* by slot, 0 = empty */
	__u32 spare[2];
};
_Static_assert(sizeof(struct flow_bucket) == 64, "flow_bucket is one cache line");

/* Sessions for the data plane to end: user space must not take bucket locks. */
#define REAP_MAX 8192

struct reap_entry {
	__u32 line; /* either of the session's; 0 ends the list */
	__u32 tag;  /* of its lines when it was chosen; both have the same */
};

struct reap_header {
	__u32 family; /* 4 or 6 */
	__u32 count;
	__u32 reaped; /* out */
	__u32 spare;
};

#endif
