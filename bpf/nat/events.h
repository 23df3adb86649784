/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A pool has nothing free toward a destination: told at most once a second for each on each CPU. */
#ifndef SLUICE_NAT_EVENTS_H
#define SLUICE_NAT_EVENTS_H

#include "lib/events.h"

static __noinline int log_exhausted(const struct packet *p, __u32 pool)
{
	if (!p)
		return 0;
	struct event *event = event_of(p, EVENT_NAT_EXHAUSTED);

	if (!event)
		return 0;
	event->policy = pool;
	event->session = p->nat_source;
	event->to_zone = p->to_zone;
	bpf_ringbuf_submit(event, 0);
	return 0;
}

#endif
