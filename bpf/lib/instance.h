/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Routing instances. What arrives on a unit belongs to the unit's instance, and keys of sessions say which: networks of
 * two instances may have the same addresses. A session goes from one to another only where a route does; its answers'
 * key has the instance that they arrive in, and their way is asked for in the one that the session came from.
 */
#ifndef SLUICE_LIB_INSTANCE_H
#define SLUICE_LIB_INSTANCE_H

#include "lib/flow_hash.h"

#define KEY_INSTANCE_SHIFT 32

/* Whether there are others than the main one. */
static __always_inline bool has_instances(void)
{
	return generation.tables[TABLE_ROUTING_INSTANCES].entries;
}

/* Of the last word of a key, see key_last_word(). */
static __always_inline void put_instance(__u64 *word, __u16 instance)
{
	*word = (*word & ~(0xffffull << KEY_INSTANCE_SHIFT)) | (__u64)instance << KEY_INSTANCE_SHIFT;
}

/* The one that the other direction of the packet's session arrives in. A function, for the stack of its callers. */
__noinline __u32 instance_beyond(const struct packet *p)
{
	if (!p)
		return 0;
	__u32 other = p->line ^ 1;

	if (p->family == 4) {
		struct flow_line4 *line = bpf_map_lookup_elem(&lines4, &other);

		return line ? line->key.routing_instance : p->key4.routing_instance;
	}
	struct flow_line6 *line = bpf_map_lookup_elem(&lines6, &other);

	return line ? line->key.routing_instance : p->key6.routing_instance;
}

/* The one that the route of a first packet leads into. */
static __always_inline __u16 instance_ahead(const struct packet *p)
{
	struct unit *unit = p->flags & P_ROUTED ? unit_at(p->route.unit_slot) : NULL;

	return unit ? unit->routing_instance : p->key4.routing_instance;
}

/* Answers go back where the session came from, whatever leads there from where they arrive. */
static __always_inline void route_as_session(struct packet *p)
{
	if ((p->line & 1) && has_instances())
		p->route_instance = instance_beyond(p);
}

/* The device that the kernel is asked by, 0 = nothing is routed. */
static __always_inline __u32 asking_device(const struct packet *p, const struct unit *unit)
{
	if (p->route_instance == unit->routing_instance)
		return unit->host_ifindex;
	struct routing_instance *instance = routing_instances_at(p->route_instance);

	return instance ? instance->ifindex : 0;
}

#endif
