/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Every map of the data plane: state that outlives a configuration first, then the generation in force. */
#ifndef SLUICE_MAPS_H
#define SLUICE_MAPS_H

#include "lib/bpf.h"
#include "abi/abi.h"
#include "lib/packet.h"
#include "nat64/mapping.h"

/* Frozen with the program. Its own section: clang puts tables of its own making into .rodata. */
const volatile struct program_config config SEC(".rodata.config") = {};

/*
 * Other CPUs see what was read and written before as before what follows. x86 keeps stores among each other in order,
 * and loads, so the compiler is all that has to be told; elsewhere an exchange is the full barrier that BPF has on
 * every kernel (its own loads and stores with an order came with 6.15). Atomics whose result is used are such barriers
 * too.
 */
static __always_inline void ordered(void)
{
	barrier();
	if (config.flags & CONFIG_WEAK_ORDER) {
		volatile __u64 word = 0;

		(void)__sync_lock_test_and_set(&word, 1);
	}
	barrier();
}

/* A store that orders as well: it needs no memory besides. */
static __always_inline void publish(__u32 *word, __u32 value)
{
	barrier();
	if (config.flags & CONFIG_WEAK_ORDER)
		(void)__sync_lock_test_and_set(word, value);
	else
		*(volatile __u32 *)word = value;
	barrier();
}
const volatile __u32 root_variant SEC(".rodata.config") = 0;

/* Not mmapable, so alone in its map. */
struct sweep_timer {
	struct bpf_timer timer;
};

/*
 * Whose state this is, and what numbers in it mean: a later program reads the enumerations from the map's types. Not in
 * abi/, whose numbers have fixed widths.
 */
struct identity {
	__u64 programs; /* hash of the objects that call what stands in the PROG_ARRAYs */
	enum reason reasons;
	enum stage stages;
	struct event event;
	struct dropped dropped;
};

/* Written by the daemon, see abi/control.h. */
volatile __u32 active SEC(".data.active") = 0;

/* What a CPU needs for one packet at a time. One map, because a program may use no more than 64. */
struct cpu_memory {
	struct packet packet;
	struct fragment_key fragment;
	struct tick_budget rejudged;
	__u32 untold; /* drops that the daemon was not told of since the last one that it was */
	__u32 zero;
	struct handover handover;
	struct bpf_fib_lookup fib;
	struct nat_binding_key inside;
	struct nat64_work nat64_work;
	struct gtpu_work gtpu;
};

#define ARRAY_MAP(NAME, TYPE, ENTRIES, FLAGS)                                                                          \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                                      \
		__uint(max_entries, ENTRIES);                                                                          \
		__uint(map_flags, FLAGS);                                                                              \
		__type(key, __u32);                                                                                    \
		__type(value, TYPE);                                                                                   \
	} NAME SEC(".maps")

#define PERCPU_MAP(NAME, TYPE, ENTRIES)                                                                                \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);                                                               \
		__uint(max_entries, ENTRIES);                                                                          \
		__type(key, __u32);                                                                                    \
		__type(value, TYPE);                                                                                   \
	} NAME SEC(".maps")

#define MAP_ARRAY(NAME, KEY, VALUE, ENTRIES, FLAGS) ARRAY_MAP(NAME, VALUE, ENTRIES, FLAGS)
#define MAP_PERCPU(NAME, KEY, VALUE, ENTRIES, FLAGS) PERCPU_MAP(NAME, VALUE, ENTRIES)
#define KEYED_MAP(TYPE, NAME, KEY, VALUE, ENTRIES, FLAGS)                                                              \
	struct {                                                                                                       \
		__uint(type, TYPE);                                                                                    \
		__uint(max_entries, ENTRIES);                                                                          \
		__uint(map_flags, FLAGS);                                                                              \
		__type(key, KEY);                                                                                      \
		__type(value, VALUE);                                                                                  \
	} NAME SEC(".maps")

#define MAP_HASH(...) KEYED_MAP(BPF_MAP_TYPE_HASH, __VA_ARGS__)
#define MAP_PROGRAMS(...) KEYED_MAP(BPF_MAP_TYPE_PROG_ARRAY, __VA_ARGS__)
#define MAP_CPUS(...) KEYED_MAP(BPF_MAP_TYPE_CPUMAP, __VA_ARGS__)

#define MAP_QUEUE(NAME, KEY, VALUE, ENTRIES, FLAGS)                                                                    \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_QUEUE);                                                                      \
		__uint(max_entries, ENTRIES);                                                                          \
		__type(value, VALUE);                                                                                  \
	} NAME SEC(".maps")

#define MAP_RINGBUF(NAME, KEY, VALUE, BYTES, FLAGS)                                                                    \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_RINGBUF);                                                                    \
		__uint(max_entries, BYTES);                                                                            \
	} NAME SEC(".maps")

#define MAP(class, kind, name, key, value, entries, flags, help) MAP_##kind(name, key, value, entries, flags);
#include "maps.def"
#undef MAP

/* The generation in this program's slot, see abi/generation.h: made with the slot, for its programs on both hooks. */
ARRAY_MAP(tables, struct table_line, 1, BPF_F_MMAPABLE);
struct generation generation SEC(".data.generation") = {};

/* The line of a table where an entry begins, or the `part`th one behind; NULL from the table's end on. */
static __always_inline void *table_at(enum table table, __u32 size, __u32 index, __u32 part)
{
	const struct table_place *place = &generation.tables[table];
	__u32 at = 0, line;

	if (index >= place->entries)
		return NULL;
	if (size < TABLE_LINE_BYTES) {
		__u32 in_line = TABLE_LINE_BYTES / size;

		line = place->line + index / in_line;
		at = index % in_line * size;
	} else {
		line = place->line + index * ((size + TABLE_LINE_BYTES - 1) / TABLE_LINE_BYTES) + part;
	}
	void *found = bpf_map_lookup_elem(&tables, &line);

	return found ? found + at : NULL;
}

/* units_at(index) and the like; of an entry of several lines, only what is in the first. */
#define TABLE(ID, name, entry, most, source, help)                                                                     \
	_Static_assert(sizeof(struct entry) >= TABLE_LINE_BYTES || TABLE_LINE_BYTES % sizeof(struct entry) == 0,       \
		       #entry " divides a line");                                                                      \
	static __always_inline struct entry *name##_at(__u32 index)                                                    \
	{                                                                                                              \
		return table_at(TABLE_##ID, sizeof(struct entry), index, 0);                                           \
	}
#include "tables.def"
#undef TABLE

static __always_inline struct unit *unit_at(__u32 slot)
{
	return units_at(slot);
}

/* The netdev that carries a tagged unit's addresses sends its frames without tags. */
static __always_inline bool unit_is(const struct unit *unit, __u32 ifindex, __u32 vlan)
{
	return unit->ifindex == ifindex && vlan == (unit->flags & UNIT_HOST_SIDE ? 0 : unit->vlan) &&
	       (unit->flags & UNIT_VALID);
}

/* The slot of an entry that went on from its own; another's when there is none. Hardly ever asked. */
__noinline __u32 unit_beyond(__u32 ifindex, __u32 vlan, __u32 slot)
{
	for (__u32 i = 1; i < UNIT_PROBES; i++) {
		struct unit *unit = unit_at(slot + i);

		if (!unit || unit_is(unit, ifindex, vlan) || !(unit->flags & UNIT_CROWDED))
			return slot + i;
	}
	return slot;
}

/* The unit that frames with these tags belong to, on any netdev. */
static __always_inline struct unit *unit_find(__u32 ifindex, __u32 vlan, __u32 *slot)
{
	*slot = UNIT_SLOT(ifindex, vlan, generation.unit_multiplier, generation.unit_shift & 31);
	struct unit *unit = unit_at(*slot);

	if (unit && unit_is(unit, ifindex, vlan))
		return unit;
	if (!unit || !(unit->flags & UNIT_CROWDED))
		return NULL;
	*slot = unit_beyond(ifindex, vlan, *slot);
	unit = unit_at(*slot);
	return unit && unit_is(unit, ifindex, vlan) ? unit : NULL;
}

/* The same of frames that arrive: nothing arrives on the netdev that carries a tagged unit's addresses. */
static __always_inline struct unit *unit_arriving(__u32 ifindex, __u32 vlan, __u32 *slot)
{
	struct unit *unit = unit_find(ifindex, vlan, slot);

	return unit && !(unit->flags & UNIT_HOST_SIDE) ? unit : NULL;
}

static __always_inline struct unit_counters *counters_of(__u32 unit_index)
{
	return bpf_map_lookup_elem(&counters, &unit_index);
}

static __always_inline void count_reason(struct drop_counters *count, __u32 reason, __u32 segments)
{
	if (count && reason < REASON_SLOTS)
		count->packets[reason] += segments;
}

/* Every drop is counted here, once, at the unit it happened to. */
static __always_inline void count_drop(__u32 unit_index, __u32 reason, __u32 segments)
{
	count_reason(bpf_map_lookup_elem(&drops, &unit_index), reason, segments);
}

static __always_inline struct nexthop *nexthop_at(__u32 index)
{
	return bpf_map_lookup_elem(&nexthops, &index);
}

/* Whether the table has what a record says: it may have been made anew since. */
static __always_inline bool nexthop_is_known(__u32 index)
{
	struct nexthop *nexthop = nexthop_at(index);

	return index == NEXTHOP_LOCAL || (nexthop && (nexthop->flags & NEXTHOP_VALID));
}

static __always_inline __u32 jiffies_now(void)
{
	return (__u32)bpf_jiffies64();
}

#endif
