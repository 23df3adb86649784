/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* First matching rule by classes and rows of bits; the layouts are in abi/classifier.h. */
#ifndef SLUICE_LIB_CLASSIFIER_H
#define SLUICE_LIB_CLASSIFIER_H

#include "maps.h"
#include "lib/services.h"

/* Not a word, class or rule. */
#define NO_CLASS (-1)

/* Classes of one packet. */
#define CLASSES_NAT64 2 /* source IPv6, destination IPv4 */

struct classes {
	__u32 source;
	__u32 destination;
	__u32 service;
	__u32 family; /* 0 = IPv4, 1 = IPv6, or CLASSES_NAT64 */
};

static __always_inline __s64 word_of(const struct class_line *line, __u32 at)
{
	return line->word[at % CLASS_LINE_WORDS];
}

static __always_inline __s64 class_word(__u32 at)
{
	__u32 index = at / CLASS_LINE_WORDS;
	struct class_line *line = classes_at(index);

	return line ? word_of(line, at) : NO_CLASS;
}

static __always_inline struct class_line *line_of(__u32 at)
{
	__u32 index = at / CLASS_LINE_WORDS;

	return rows_at(index);
}

static __always_inline __s64 row_word(__u32 at)
{
	const struct class_line *line = line_of(at);

	return line ? word_of(line, at) : NO_CLASS;
}

/* 1 if key > x: the borrow of x - key. As arithmetic, because the processor cannot predict these comparisons. */
static __always_inline __u64 above(__u64 key, __u64 x)
{
	__u64 borrow = (~x & key) | ((~x | key) & (x - key));

	barrier_var(borrow); /* else clang makes a branch of the shift, and the verifier follows both ways of each */
	return borrow >> 63;
}

/* Slot of the highest key that is not above x. */
__noinline __s64 tree_search(__u32 first, __u32 nodes, __u64 x)
{
	__u32 node = nodes ? 0 : 1, best = 0;

	for (__u32 level = 0; level < CLASS_TREE_LEVELS && node < nodes; level++) {
		__u32 index = first + node;
		const __u64 *key = (const void *)classes_at(index);

		if (!key)
			return NO_CLASS;
		__u32 below =
			CLASS_TREE_KEYS - (above(key[0], x) + above(key[1], x) + above(key[2], x) + above(key[3], x) +
					   above(key[4], x) + above(key[5], x) + above(key[6], x) + above(key[7], x));
		/* all ones if a key of this node is the highest so far; no branch, which would double the ways each
		 * level */
		__u32 found = -((below + CLASS_TREE_KEYS - 1) / CLASS_TREE_KEYS);

		barrier_var(found);
		best = (best & ~found) | ((node * CLASS_TREE_KEYS + below - 1) & found);
		node = node * (CLASS_TREE_KEYS + 1) + 1 + below;
		barrier_var(node);
	}
	return best;
}

static __always_inline bool key_is(__u32 first, __u32 slot, __u64 x)
{
	__u32 index = first + slot / CLASS_TREE_KEYS;
	const __u64 *key = (const void *)classes_at(index);

	return key && key[slot % CLASS_TREE_KEYS] == x;
}

/* Value of x in the tree at a place: its class, or in `below` the place of the tree that tells by the lower half. */
static __always_inline __s64 tree_value(__u32 at, __u64 x, __u32 *below)
{
	__u32 index = at / CLASS_LINE_WORDS;
	struct class_line *line = classes_at(index);

	*below = 0;
	if (!line)
		return NO_CLASS;
	const struct class_tree *tree =
		(void *)&line->word[at % CLASS_LINE_WORDS / CLASS_TREE_WORDS * CLASS_TREE_WORDS];
	__s64 slot = tree_search(tree->first, tree->nodes, x);

	if (slot < 0)
		return NO_CLASS;
	__u32 value = tree->values + 2 * slot;
	__s64 lower = class_word(value + 1);

	if (lower > 0 && key_is(tree->first, slot, x))
		*below = lower;
	return class_word(value);
}

/* IPv4 addresses are the upper half; the lower one is not asked for. */
__noinline __s64 address_class(__u32 tree, __u64 upper, __u64 lower)
{
	__u32 below, none;
	__s64 class = tree_value(tree, upper, &below);

	return below ? tree_value(below, lower, &none) : class;
}

static __noinline __s64 service_class(const struct service *service)
{
	if (!service)
		return NO_CLASS;
	__u32 at = CLASS_PROTOCOLS + service->proto * CLASS_PROTOCOL_WORDS;
	__u32 index = at / CLASS_LINE_WORDS;
	struct class_line *line = classes_at(index);
	__u32 x = service->proto;

	if (!line)
		return NO_CLASS;
	const struct class_protocol *of =
		(void *)&line->word[at % CLASS_LINE_WORDS / CLASS_PROTOCOL_WORDS * CLASS_PROTOCOL_WORDS];

	if (of->kind == CLASS_KEY_PORT)
		x = service->dport;
	else if (of->kind == CLASS_KEY_ICMP)
		x = service->icmp_type << 8 | service->icmp_code;
	__s64 list = class_word(of->rows + x);
	__s64 column = of->columns ? class_word(of->columns + service->sport) : 0;

	return list < 0 || column < 0 ? NO_CLASS : class_word(list + column);
}

/* First rule of a context among those of one chunk, whose lines of bits these are. `place` is the chunk's first. */
__noinline __s64 match_chunk(__u32 a, __u32 b, __u32 c, __u32 place, __u32 orders)
{
	const __u64 *left = (const void *)rows_at(a);
	const __u64 *middle = (const void *)rows_at(b);
	const __u64 *right = (const void *)rows_at(c);
	__u64 any = 0;

	if (!left || !middle || !right)
		return NO_CLASS;
	/* most lines have nothing in common: one branch that the processor can predict instead of eight */
	for (__u32 i = 0; i < CLASS_CHUNK_RULES / 64; i++)
		any |= left[i] & middle[i] & right[i];
	if (!any)
		return NO_CLASS;
	for (__u32 i = 0; i < CLASS_CHUNK_RULES / 64; i++) {
		__u64 common = left[i] & middle[i] & right[i];

		if (!common)
			continue;
		place += i * 64 + lowest_of_word(common);
		return orders ? row_word(orders + place) : place;
	}
	return NO_CLASS;
}

/* 1 if a word is not 0, without a branch. */
static __always_inline __u64 is_set(__u64 word)
{
	return (word + 0xffffffff) >> 32;
}

/*
 * Which of the sixteen chunks from these places on have bits in all three rows, bit n for chunk n. All in one go,
 * because the processor cannot predict which.
 */
__noinline __s64 shared_chunks(__u32 source, __u32 destination, __u32 service)
{
	__u32 indexes[] = {source / CLASS_LINE_WORDS, destination / CLASS_LINE_WORDS, service / CLASS_LINE_WORDS};
	struct class_line *sources = rows_at(indexes[0]);
	struct class_line *destinations = rows_at(indexes[1]);
	struct class_line *services = rows_at(indexes[2]);
	__u64 shared = 0;

	if (!sources || !destinations || !services)
		return 0;
	for (__u32 i = 0; i < CLASS_LINE_WORDS; i++)
		shared |= (is_set(sources->word[(source + i) % CLASS_LINE_WORDS]) &
			   is_set(destinations->word[(destination + i) % CLASS_LINE_WORDS]) &
			   is_set(services->word[(service + i) % CLASS_LINE_WORDS]))
			  << i;
	return shared;
}

/* First rule of a context among up to 16 chunks, whose words lie in one line of each row. */
__noinline __s64 match_group(__u32 index, __u32 first, __u32 source, __u32 destination, __u32 service)
{
	struct context *context = contexts_at(index);
	__s64 best = NO_CLASS;
	__u32 i;

	if (!context)
		return NO_CLASS;
	__u64 shared = shared_chunks(source + first, destination + first, service + first);
	__u32 chunks = context->chunks - first;

	if (chunks < CLASS_LINE_WORDS)
		shared &= (1 << chunks) - 1; /* what follows belongs to other rows */
	bpf_for (i, 0, CLASS_LINE_WORDS) {
		if (!shared)
			break;
		__u32 chunk = first + lowest_of_word(shared);
		__u32 at[] = {source + chunk, destination + chunk, service + chunk};
		struct class_line *sources = line_of(at[0]), *destinations = line_of(at[1]), *services = line_of(at[2]);

		/* one way out for all three: the verifier follows each */
		if (!sources || !destinations || !services)
			break;
		__s64 rule = match_chunk(word_of(sources, at[0]), word_of(destinations, at[1]),
					 word_of(services, at[2]), chunk * CLASS_CHUNK_RULES, context->orders);

		if (rule >= 0 && (best < 0 || rule < best))
			best = rule;
		shared &= shared - 1;
	}
	return best;
}

/* Index in `rules` of the first rule of a context that matches. */
static __noinline __s64 match_context(__u32 index, const struct classes *of)
{
	struct context *context = contexts_at(index);
	__s64 best = NO_CLASS;
	__u32 group;

	if (!context || !of || !context->chunks)
		return NO_CLASS;
	__u32 family = of->family & 1, from = of->family ? 1 : 0;
	__s64 source = row_word(context->source[from] + of->source);
	__s64 destination = row_word(context->destination[family] + of->destination);
	__s64 service = row_word(context->service + of->service);

	if (source <= 0 || destination <= 0 || service <= 0)
		return NO_CLASS;
	bpf_for (group, 0, MAX_RULES / CLASS_CHUNK_RULES / CLASS_LINE_WORDS) {
		__u32 first = group * CLASS_LINE_WORDS;

		if (first >= context->chunks)
			break;
		__s64 rule = match_group(index, first, source, destination, service);

		if (rule >= 0 && (best < 0 || rule < best))
			best = rule;
	}
	return best < 0 ? NO_CLASS : context->first_rule + best;
}

#endif
