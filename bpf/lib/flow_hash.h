/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A seeded 64-bit mix of a flow key, word by word. Keys are read as words, so they stand 8-byte aligned. */
#ifndef SLUICE_LIB_FLOW_HASH_H
#define SLUICE_LIB_FLOW_HASH_H

#include "lib/bpf.h"
#include "abi/abi.h"

#define ALIGNED_KEY __attribute__((aligned(8)))

static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash ^ (hash >> 32);
}

static __always_inline __u64 flow_hash4(__u64 seed, const struct flow_key4 *key)
{
	const __u64 *words = (const __u64 *)key;
	__u64 hash = mix(mix(seed, words[0]), words[1]);

	hash *= 0xbf58476d1ce4e5b9ull;
	return hash ^ (hash >> 29);
}

/* Two lanes side by side, joined at the end: the serial mix of five words would take twice as long. */
static __always_inline __u64 flow_hash6(__u64 seed, const struct flow_key6 *key)
{
	const __u64 *words = (const __u64 *)key;
	__u64 left = mix(mix(seed, words[0]), words[1]);
	__u64 right = mix(mix(seed + 0x632be59bd9b4e019ull, words[2]), words[3]);
	__u64 hash = mix(left ^ (right << 1 | right >> 63), words[4]);

	hash *= 0xbf58476d1ce4e5b9ull;
	return hash ^ (hash >> 29);
}

#endif
