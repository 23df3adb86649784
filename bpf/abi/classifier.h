/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How the first matching rule is found without a scan. The plan gives every address, by direction and family, and every
 * service a class: packets of one class match the same address sets or applications. A context (the rules of a zone
 * pair, or the global ones) has a row of bits for each class, one bit a rule; the first bit that the rows of source,
 * destination and service have in common is the rule.
 *
 * Both tables are arrays of 64-byte lines. Word w of a table is word w % 16 of line w / 16.
 */
#ifndef SLUICE_ABI_CLASSIFIER_H
#define SLUICE_ABI_CLASSIFIER_H

#include <linux/types.h>

#define CLASS_LINE_WORDS 16
struct class_line {
	__u32 word[CLASS_LINE_WORDS];
};
_Static_assert(sizeof(struct class_line) == 64, "class_line is a cache line");

/*
 * A search tree: line `first` + n is node n, eight sorted __u64 keys; node n has the children 9n + 1 to 9n + 9. Slot s
 * is key s % 8 of node s / 8, its value the words `values` + 2s (class of this key and what follows it) and + 2s + 1
 * (if not 0, the place of a tree of the lower half of addresses whose upper half is this key). The lowest key is 0.
 */
struct class_tree {
	__u32 first;
	__u32 nodes;
	__u32 values;
	__u32 zero;
};
_Static_assert(sizeof(struct class_tree) == 16, "class_tree is a quarter of a line");
#define CLASS_TREE_WORDS 4
#define CLASS_TREE_KEYS 8
#define CLASS_TREE_LEVELS 9 /* 9^9 keys are more than a table holds */

/* Table `classes` begins with four trees, then one class_protocol for each IP protocol. */
#define CLASS_TREE_SOURCE4 0
#define CLASS_TREE_DESTINATION4 4
#define CLASS_TREE_SOURCE6 8
#define CLASS_TREE_DESTINATION6 12
#define CLASS_PROTOCOLS 16

/* Word rows + x, x as `kind` says, is the place of a list of classes; word columns + source port the index in it. */
struct class_protocol {
	__u32 rows;
	__u32 columns; /* 0 = every source port has index 0 */
	__u32 kind;    /* CLASS_KEY_* */
	__u32 zero;
};
_Static_assert(sizeof(struct class_protocol) == 16, "class_protocol is a quarter of a line");
#define CLASS_PROTOCOL_WORDS 4
#define CLASS_KEY_PROTOCOL 0 /* x is the protocol */
#define CLASS_KEY_PORT 1     /* destination port */
#define CLASS_KEY_ICMP 2     /* type * 256 + code */

/*
 * Rules that are tried in order. Word source[f] + class of table `rows` is the place of the class's row there (0 = no
 * rule matches), f = 0 for IPv4 and 1 for IPv6. A row has a word for each 512 rules: the line of `rows` with their
 * bits (0 = none). A row of less than 16 words never crosses a line; longer ones begin with a line.
 *
 * Rules of more than one chunk are stored so that those for near addresses share one: a packet then finds few chunks
 * with bits in all three rows. Word orders + place of table `rows` says which rule stands at a place; inside a chunk
 * they stand in order. orders = 0: places are rules.
 */
struct context {
	__u32 source[2];
	__u32 destination[2];
	__u32 service;
	__u32 first_rule;
	__u32 rules;
	__u32 chunks;
	__u32 orders;
	__u32 zero[7];
};
_Static_assert(sizeof(struct context) == 64, "context is a cache line");
#define CLASS_CHUNK_RULES 512

#endif
