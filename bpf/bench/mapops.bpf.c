// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What the kernel's maps cost a program: each program does one operation on many distinct keys and stamps the clock
 * before and after. `none_lookup` makes the keys and does nothing with them.
 */
#include "lib/bpf.h"
#include "bench/mapops.h"

struct mapops_state mapops SEC(".data.mapops") = {};

#define MAP(NAME, TYPE, KEY, FLAGS)                                                                                    \
	struct {                                                                                                       \
		__uint(type, TYPE);                                                                                    \
		__uint(max_entries, 1);                                                                                \
		__uint(map_flags, FLAGS);                                                                              \
		__type(key, KEY);                                                                                      \
		__type(value, __u64);                                                                                  \
	} NAME SEC(".maps")

MAP(hash, BPF_MAP_TYPE_HASH, struct mapops_key, 0);
MAP(lru, BPF_MAP_TYPE_LRU_HASH, struct mapops_key, 0);
MAP(array, BPF_MAP_TYPE_ARRAY, __u32, 0);
MAP(lpm, BPF_MAP_TYPE_LPM_TRIE, struct mapops_prefix, BPF_F_NO_PREALLOC);

/* A lookup whose value nobody reads costs an array nothing at all. */
static __always_inline bool readable(const __u64 *found, __u64 *value)
{
	if (found)
		*value = *found;
	return found;
}

static __always_inline __u32 nth(__u32 i)
{
	return mapops.first + ((__u64)mapops.start + i) * mapops.stride % mapops.range;
}

/* Multiplication by an odd number maps one to one. */
static __always_inline void make_wide(struct mapops_key *key, __u32 number)
{
	key->mixed = number * 0x9e3779b97f4a7c15ULL;
	key->number = number;
}

static __always_inline void make_index(__u32 *key, __u32 number)
{
	*key = number;
}

static __always_inline void make_prefix(struct mapops_prefix *key, __u32 number)
{
	key->bits = 32;
	key->be_address = number * 0x9e3779b1U;
}

/*
 * `WORKED` is whether the operation on `key` did what it should. The next key depends on `value`, which a lookup has
 * read (`none` is 0, which nobody knows): the CPU must wait for it, as it must where a packet's fate depends on it.
 */
#define OPERATION(NAME, KEY, MAKE, WORKED)                                                                             \
	SEC("xdp") int NAME(struct xdp_md *ctx)                                                                        \
	{                                                                                                              \
		__u64 began = bpf_ktime_get_ns(), done = 0, value = 0;                                                 \
		int i;                                                                                                 \
                                                                                                                       \
		bpf_for (i, 0, mapops.count) {                                                                         \
			KEY key;                                                                                       \
                                                                                                                       \
			MAKE(&key, nth(i + (value & mapops.none)));                                                    \
			if (WORKED)                                                                                    \
				done++;                                                                                \
			barrier_var(value);                                                                            \
		}                                                                                                      \
		mapops.ns = bpf_ktime_get_ns() - began;                                                                \
		mapops.done = done;                                                                                    \
		mapops.failed = mapops.count - done;                                                                   \
		return XDP_DROP;                                                                                       \
	}

#define OPERATIONS(MAP, KEY, MAKE)                                                                                     \
	OPERATION(MAP##_lookup, KEY, MAKE, readable(bpf_map_lookup_elem(&MAP, &key), &value))                          \
	OPERATION(MAP##_update, KEY, MAKE, !bpf_map_update_elem(&MAP, &key, &value, BPF_ANY))                          \
	OPERATION(MAP##_delete, KEY, MAKE, !bpf_map_delete_elem(&MAP, &key))

static __always_inline bool use(void *key)
{
	barrier_var(key);
	barrier();
	return key;
}

OPERATION(none_lookup, struct mapops_key, make_wide, use(&key))
OPERATIONS(hash, struct mapops_key, make_wide)
OPERATIONS(lru, struct mapops_key, make_wide)
OPERATIONS(lpm, struct mapops_prefix, make_prefix)
OPERATION(array_lookup, __u32, make_index, readable(bpf_map_lookup_elem(&array, &key), &value))
OPERATION(array_update, __u32, make_index, !bpf_map_update_elem(&array, &key, &value, BPF_ANY))

char LICENSE[] SEC("license") = "Dual BSD/GPL";
