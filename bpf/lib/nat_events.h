/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A pool has nothing free toward a destination: told at most once a second for each on each CPU. */
#ifndef SLUICE_LIB_NAT_EVENTS_H
#define SLUICE_LIB_NAT_EVENTS_H

#include "lib/events.h"

static __noinline int log_exhausted(const struct packet *p, __u32 pool)
{
	if (!p)
		return 0;
	struct event *event = event_begin(p->unit_index);

	if (!event)
		return 0;
	__builtin_memset(event, 0, sizeof(*event));
	if (p->family == 4)
		event_key4(event, &p->key4);
	else
		event_key6(event, &p->key6);
	event->kind = EVENT_NAT_EXHAUSTED;
	event->family = p->family;
	event->ingress_unit = p->unit_index;
	event->policy = pool;
	event->session = p->nat_source;
	event->from_zone = p->from_zone;
	event->to_zone = p->to_zone;
	bpf_ringbuf_submit(event, 0);
	return 0;
}

#endif
