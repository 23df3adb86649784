/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A seeded 64-bit mix of a flow key, word by word. Keys are read as words, so they stand 8-byte aligned. Words are
 * taken in host order: what differs between neighbours then stands low, from where multiplication spreads it.
 */
#ifndef SLUICE_LIB_FLOW_HASH_H
#define SLUICE_LIB_FLOW_HASH_H

#include "lib/bpf.h"
#include "abi/abi.h"

#define ALIGNED_KEY __attribute__((aligned(8)))

#define MIX_LEFT 0x9e3779b97f4a7c15ull
#define MIX_RIGHT 0xd6e8feb86659fd93ull
#define MIX_LAST 0xbf58476d1ce4e5b9ull

/* Keys are written in the words they are read in: reading a word that smaller stores have put together is slow. */
static __always_inline __u64 key_last_word(__u32 be_ports, __u16 routing_instance, __u8 proto)
{
	return be_ports | (__u64)routing_instance << 32 | (__u64)proto << 48;
}

static __always_inline __u64 reverse_last_word(__u64 word)
{
	return (word & ~0xffffffffull) | (word >> 16 & 0xffff) | (word & 0xffff) << 16;
}

static __always_inline void flow_reverse4(const struct flow_key4 *key, struct flow_key4 *reverse)
{
	const __u64 *from = (const __u64 *)key;
	__u64 *to = (__u64 *)reverse;

	to[0] = from[0] >> 32 | from[0] << 32;
	to[1] = reverse_last_word(from[1]);
}

static __always_inline void flow_reverse6(const struct flow_key6 *key, struct flow_key6 *reverse)
{
	const __u64 *from = (const __u64 *)key;
	__u64 *to = (__u64 *)reverse;

	to[0] = from[2];
	to[1] = from[3];
	to[2] = from[0];
	to[3] = from[1];
	to[4] = reverse_last_word(from[4]);
}

static __always_inline __u64 mix(__u64 hash, __u64 be_word, __u64 factor)
{
	hash = (hash ^ bpf_be64_to_cpu(be_word)) * factor;
	return hash ^ (hash >> 32);
}

static __always_inline __u64 mix_last(__u64 hash)
{
	hash *= MIX_LAST;
	return hash ^ (hash >> 29);
}

static __always_inline __u64 flow_hash_words4(__u64 seed, __u64 addresses, __u64 last)
{
	return mix_last(mix(mix(seed, addresses, MIX_LEFT), last, MIX_LEFT));
}

static __always_inline __u64 flow_hash4(__u64 seed, const struct flow_key4 *key)
{
	const __u64 *words = (const __u64 *)key;

	return flow_hash_words4(seed, words[0], words[1]);
}

/*
 * The two addresses in lanes side by side, which takes half the time of one after the other. Different factors: with
 * the same one, neighbours in both addresses cancel out when the lanes are joined.
 */
static __always_inline __u64 flow_hash_words6(__u64 seed, const __u64 *source, const __u64 *destination, __u64 last)
{
	__u64 left = mix(mix(seed, source[0], MIX_LEFT), source[1], MIX_LEFT);
	__u64 right = mix(mix(seed, destination[0], MIX_RIGHT), destination[1], MIX_RIGHT);

	return mix_last(mix(left ^ (right << 1 | right >> 63), last, MIX_LEFT));
}

static __always_inline __u64 flow_hash6(__u64 seed, const struct flow_key6 *key)
{
	const __u64 *words = (const __u64 *)key;

	return flow_hash_words6(seed, words, words + 2, words[4]);
}

/* Of the key that answers have, which need not stand anywhere. */
static __always_inline __u64 flow_hash_reply4(__u64 seed, const struct flow_key4 *key)
{
	const __u64 *words = (const __u64 *)key;

	return flow_hash_words4(seed, words[0] >> 32 | words[0] << 32, reverse_last_word(words[1]));
}

static __always_inline __u64 flow_hash_reply6(__u64 seed, const struct flow_key6 *key)
{
	const __u64 *words = (const __u64 *)key;

	return flow_hash_words6(seed, words + 2, words, reverse_last_word(words[4]));
}

#endif
