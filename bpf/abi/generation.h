/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a commit changes and programs read: everything but the code. Each of the two slots has a map of 64-byte lines
 * with all tables of its generation, and one word block that says where they begin and what else the generation is.
 * Programs are loaded for a slot and read both at run time, so commit after commit runs the same programs. A slot is
 * only written while none of its programs can run.
 */
#ifndef SLUICE_ABI_GENERATION_H
#define SLUICE_ABI_GENERATION_H

#include <linux/types.h>

#define TABLE_LINE_BYTES 64
struct table_line {
	__u64 word[TABLE_LINE_BYTES / 8];
};
_Static_assert(sizeof(struct table_line) == TABLE_LINE_BYTES, "table_line is a cache line");

enum table {
#define TABLE(ID, name, entry, most, source, help) TABLE_##ID,
#include "../tables.def"
#undef TABLE
	TABLE_COUNT,
};

/* An index from `entries` on is a miss, whatever lies behind. */
struct table_place {
	__u32 line;
	__u32 entries;
};

/* CPUs by shares of the flows in tunnels: the first bits of their hash. */
#define SPREAD_SHARE_BITS 6
#define SPREAD_SHARES (1 << SPREAD_SHARE_BITS)

#define GENERATION_NO_SEQUENCE_CHECK 0x1    /* TCP segments outside of the window pass */
#define GENERATION_REVERSE_ACROSS_ZONES 0x2 /* answers may leave into another zone than their session came from */

/* What every packet reads comes first. */
struct generation {
	__u32 number; /* of the commit */
	__u32 flags;  /* GENERATION_* */
	__u32 unit_multiplier;
	__u32 unit_shift;
	__u32 fanout_multiplier; /* of the table of listeners */
	__u32 gate_context;      /* of the classifier: the services of the gate; 0 = none */
	__u32 tcp_mss;           /* largest in a forwarded SYN; 0 = as it comes */
	__u32 unanswered4;       /* most sessions without an answer */
	__u32 unanswered6;
	__u32 lowest_ipv6_mtu; /* NAT64: what leaves without DF is cut to this (RFC 7915 4) */
	struct table_place tables[TABLE_COUNT];
	__u64 gate_zones[MAX_ZONES / 64]; /* one bit a zone that demands grants */
	__u64 cookie_key[2];              /* of SYN cookies: drawn anew for every generation */
	__u32 spread_limit;               /* most packets on their way to a CPU; 0 = every packet stays where it came */
	__u32 zero;
	__u16 spread[SPREAD_SHARES]; /* CPU of each share */
};

/* Packets for a CPU, as many as ever were: who sends them and who takes them have a cache line each. */
struct spread_queue {
	__u64 sent;
	__u64 spare[7];
	__u64 taken;
	__u64 spare_taken[7];
};

/* Which program stands in a place of the PROG_ARRAYs; user space keeps it there and programs never look. */
struct loaded_program {
	__u64 state;  /* hash of the object and of the state maps it was loaded with */
	__u64 recipe; /* hash of that, of the slot's maps and of the frozen configuration */
	__u32 id;     /* the kernel's; 0 = none */
	__u32 zero;
};

#endif
