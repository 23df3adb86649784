/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Log events: what a policy's `then log` and `then count` ask for. Never on the established path. */
#ifndef SLUICE_LIB_EVENTS_H
#define SLUICE_LIB_EVENTS_H

#include "maps.h"

static __always_inline struct event *event_begin(__u32 unit_index)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (event)
		return event;
	struct unit_counters *count = counters_of(unit_index);

	if (count)
		count->events_lost++;
	return NULL;
}

static __always_inline void event_key4(struct flow_key6 *to, const struct flow_key4 *key)
{
	to->be_saddr[0] = key->be_saddr;
	to->be_daddr[0] = key->be_daddr;
	to->be_sport = key->be_sport;
	to->be_dport = key->be_dport;
	to->routing_instance = key->routing_instance;
	to->proto = key->proto;
}

static __always_inline void event_key6(struct flow_key6 *to, const struct flow_key6 *key)
{
	*to = *key;
}

/* How the first packets leave, as the answers' key tells: written in place, for the sweep has no stack to spare. */
static __always_inline void event_out4(struct flow_key6 *to, const struct flow_key4 *answer)
{
	to->be_saddr[0] = answer->be_daddr;
	to->be_daddr[0] = answer->be_saddr;
	to->be_sport = answer->be_dport;
	to->be_dport = answer->be_sport;
	to->routing_instance = answer->routing_instance;
	to->proto = answer->proto;
}

static __always_inline void event_out6(struct flow_key6 *to, const struct flow_key6 *answer)
{
	for (int i = 0; i < 4; i++) {
		to->be_saddr[i] = answer->be_daddr[i];
		to->be_daddr[i] = answer->be_saddr[i];
	}
	to->be_sport = answer->be_dport;
	to->be_dport = answer->be_sport;
	to->routing_instance = answer->routing_instance;
	to->proto = answer->proto;
}

/* An event with what it says of a packet, to be completed and submitted. */
static __always_inline struct event *event_of(const struct packet *p, __u32 kind)
{
	struct event *event = event_begin(p->unit_index);

	if (!event)
		return NULL;
	__builtin_memset(event, 0, sizeof(*event));
	if (p->family == 4)
		event_key4(&event->key, &p->key4);
	else
		event_key6(&event->key, &p->key6);
	/* fragments have no ports, and their protocol is no part of the key */
	event->key.proto = p->proto;
	event->kind = kind;
	event->family = p->family;
	event->icmp_type = p->icmp_type;
	event->ingress_unit = p->unit_index;
	event->from_zone = p->from_zone;
	return event;
}

/* Whether there is room for what nobody limits: first packets that are refused must leave half of it to sessions. */
static __always_inline bool event_has_room(const struct packet *p)
{
	if (bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) < EVENT_BUFFER_BYTES / 2)
		return true;
	struct unit_counters *count = counters_of(p->unit_index);

	if (count)
		count->events_lost++;
	return false;
}

/* A session that begins, or a first packet that a policy does not permit. */
static __noinline int log_packet(const struct packet *p, __u32 kind, __u32 session)
{
	if (!p || !(p->rule_flags & RULE_LOG_INIT))
		return 0;
	if (kind == EVENT_SESSION_DENY && !event_has_room(p))
		return 0;
	struct event *event = event_of(p, kind);

	if (!event)
		return 0;
	event->policy = p->rule_policy;
	event->to_zone = p->to_zone;
	event->session = session;
	if (kind == EVENT_SESSION_CREATE) {
		if (p->family == 4)
			event_key4(&event->out, leaving4(p));
		else
			event_key6(&event->out, leaving6(p));
		event->nat_destination = p->nat_destination;
		event->nat_source = p->nat_source;
	}
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* All packets of a direction: `high` counts how often the sweep found bit 31 of `low` changed. */
static __always_inline __u64 whole_count(__u32 low, __u32 high)
{
	high += (high ^ (low >> 31)) & 1;
	return (__u64)(high >> 1) << 32 | low;
}

static __always_inline void log_close(struct event *event, const struct flow_state *forward,
				      const struct flow_state *back, const struct flow_shared *shared, __u32 cause)
{
	__u32 ended = (__s32)(back->last_seen - forward->last_seen) > 0 ? back->last_seen : forward->last_seen;

	event->kind = EVENT_SESSION_CLOSE;
	event->close = cause;
	event->tcp_state[0] = forward->tcp_state;
	event->tcp_state[1] = back->tcp_state;
	event->ingress_unit = shared->ingress_unit;
	event->policy = shared->policy;
	event->from_zone = shared->from_zone;
	event->to_zone = shared->to_zone;
	event->nat_destination = shared->nat_destination;
	event->nat_source = shared->nat_source;
	event->bytes[0] = forward->bytes;
	event->bytes[1] = back->bytes;
	event->packets[0] = whole_count(forward->packets, shared->packets_high[0]);
	event->packets[1] = whole_count(back->packets, shared->packets_high[1]);
	event->age = ended - shared->created;
}

static __always_inline void count_closed(const struct flow_state *forward, const struct flow_state *back,
					 const struct flow_shared *shared)
{
	__u32 policy = shared->policy;
	struct policy_counters *count = bpf_map_lookup_elem(&policy_counters, &policy);

	if (!count)
		return;
	count->packets += whole_count(forward->packets, shared->packets_high[0]) +
			  whole_count(back->packets, shared->packets_high[1]);
	count->bytes += forward->bytes + back->bytes;
}

/* What the policy of a session that has just ended wants to be told. The record is the caller's alone. */
#define DEFINE_CLOSED(FAMILY)                                                                                          \
	__noinline int session_closed##FAMILY(__u32 session, __u32 cause)                                              \
	{                                                                                                              \
		__u32 forward = 2 * session, back = forward + 1;                                                       \
		const struct flow_line##FAMILY *line0 = bpf_map_lookup_elem(&lines##FAMILY, &forward);                 \
		const struct flow_line##FAMILY *line1 = bpf_map_lookup_elem(&lines##FAMILY, &back);                    \
		const struct flow_shared *shared = bpf_map_lookup_elem(&shared##FAMILY, &session);                     \
                                                                                                                       \
		if (!line0 || !line1 || !shared)                                                                       \
			return 0;                                                                                      \
		if (shared->rule_flags & RULE_COUNT)                                                                   \
			count_closed(&line0->state, &line1->state, shared);                                            \
		if (!(shared->rule_flags & RULE_LOG_CLOSE))                                                            \
			return 0;                                                                                      \
		struct event *event = event_begin(shared->ingress_unit);                                               \
                                                                                                                       \
		if (!event)                                                                                            \
			return 0;                                                                                      \
		__builtin_memset(event, 0, sizeof(*event));                                                            \
		event_key##FAMILY(&event->key, &line0->key);                                                           \
		event_out##FAMILY(&event->out, &line1->key);                                                           \
		event->family = FAMILY;                                                                                \
		event->session = session;                                                                              \
		log_close(event, &line0->state, &line1->state, shared, cause);                                         \
		bpf_ringbuf_submit(event, 0);                                                                          \
		return 0;                                                                                              \
	}

DEFINE_CLOSED(4)
DEFINE_CLOSED(6)

#endif
