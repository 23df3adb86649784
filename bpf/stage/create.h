/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Record the joint decision of the stages before: a new session, or a live one re-evaluated. */
#ifndef SLUICE_STAGE_CREATE_H
#define SLUICE_STAGE_CREATE_H

#include "gate/grant.h"
#include "lib/instance.h"
#include "nat/ports.h"
#include "lib/tcp_state.h"
#include "stage/limits.h"

/* A decision made while the generations change hands is re-evaluated by the next packet. */
static __always_inline __u32 is_behind(const struct packet *p)
{
	return ACTIVE_SLOT(p->active) != config.slot;
}

static __always_inline __u16 decision_stamp(const struct packet *p)
{
	return ACTIVE_STAMP(p->active) - is_behind(p);
}

static __always_inline __u16 decision_epoch(const struct packet *p)
{
	return (ACTIVE_EPOCH(p->active) - is_behind(p)) & EPOCH_MASK;
}

/*
 * Between allocation and insertion the record is this packet's alone, so plain stores do: locked ones would wait for
 * each of its three cache lines in turn. The new tag, set before the key, tells whoever still holds the record's old
 * number; the record lives again when all the rest is there.
 */
static __always_inline void fill_state(struct flow_state *state, const struct packet *p, __u8 zone, __u32 nexthop,
				       __u32 flags)
{
	bool tcp = p->proto == IPPROTO_TCP;

	state->window = 0;
	state->marks = (p->flags & P_TRANSLATED ? MARK_TRANSLATED : 0) | (p->grant ? MARK_EXTENDED : 0);
	state->nexthop = nexthop;
	state->zone = zone;
	state->last_seen = p->now;
	state->bytes = 0;
	state->packets = 0;
	state->tcp_end = 0;
	flags |= FLOW_LIVE | (tcp ? 0 : FLOW_PLAIN);
	publish(flow_life(state), decision_stamp(p) | TCP_DIR_NONE << 16 | flags << 24);
}

/* The first packet's own marks. */
static __always_inline void fill_first(struct flow_state *own, const struct packet *p)
{
	own->marks |= p->grant_use & 1 ? MARK_GRANTEE : 0;
	own->packets = p->segments;
	own->bytes = p->ip_len;
	if (p->proto == IPPROTO_TCP) {
		own->tcp_state = TCP_DIR_SYN;
		own->tcp_end = tcp_segment_end(p);
		tcp_note_window(own, p);
	}
}

/* What an acknowledgement may be ahead of a socket that is still sending what it acknowledges. */
#define RESUMED_AHEAD (1 << 20)

/*
 * The handshake was not seen, so windows are not known: the largest there can be, which the host's own stack narrows.
 * The numbers are its socket's, not the packet's, which may be forged.
 */
static __always_inline void fill_resumed(struct flow_state *own, struct flow_state *peer, const struct packet *p,
					 bool from_host)
{
	struct flow_state *host = from_host ? own : peer, *other = from_host ? peer : own;
	__u32 sent = from_host ? tcp_segment_end(p) : p->tcp_ack;

	own->tcp_state = peer->tcp_state = TCP_DIR_ESTABLISHED;
	own->window = peer->window = 0xffff;
	tcp_set_scale(own, TCP_SCALE_MAX);
	tcp_set_scale(peer, TCP_SCALE_MAX);
	host->tcp_end = sent - p->host_sent <= RESUMED_AHEAD ? sent : p->host_sent;
	other->tcp_end = p->host_got;
}

static __always_inline bool needs_extension(const struct packet *p)
{
	return (config.stage_mask & STAGE_BIT(GATE)) && p->grant;
}

/* What few sessions need, before anybody can find them. False: there is no room for it. */
__noinline int fill_extension(const struct packet *p, __u32 session, __u32 tag)
{
	if (!p)
		return false;
	struct flow_extension *extension = flow_extension_at(p->family, session);
	struct flow_extension filled = {
		.tag = tag,
		.needs = EXTENSION_GRANT,
		.grant_use = p->grant_use,
		.grant = p->grant,
	};

	if (!extension)
		return false;
	*extension = filled;
	return true;
}

static __always_inline void fill_shared(struct flow_shared *shared, const struct packet *p)
{
	shared->policy = p->rule_policy;
	shared->from_zone = p->from_zone;
	shared->to_zone = p->to_zone;
	shared->epoch = decision_epoch(p);
	shared->ingress_unit = p->unit_index;
	shared->timeout_s = p->timeout_s;
	shared->created = p->now;
	shared->syn_end[0] = p->tcp_seq + 1;
	shared->packets_high[0] = shared->packets_high[1] = 0;
	shared->generation = generation.number;
	shared->rule_flags = p->rule_flags & (RULE_LOG_CLOSE | RULE_COUNT);
	shared->limited = p->limited;
	shared->nat64_length = p->nat64;
	shared->nat_destination = p->nat_destination;
	shared->nat_source = p->nat_source;
	shared->nat_bindings[0] = shared->nat_bindings[1] = 0;
}

/*
 * `from_host`: this host opened it (egress program); its answers are delivered locally. Otherwise the answers' next hop
 * is left empty: their first packet asks the FIB (its line starts one stamp behind). A session that is translated is
 * left INSERT_PENDING with its record filled: where its keys go is decided by who calls, with a stack of its own.
 */
#define DEFINE_CREATE(FAMILY, FAMILY_FLAG)                                                                             \
	static __always_inline int create_end##FAMILY(struct packet *p, __u32 session, int result)                     \
	{                                                                                                              \
		__u32 forward = 2 * session, back = forward + 1;                                                       \
		struct flow_line##FAMILY *line0 = bpf_map_lookup_elem(&lines##FAMILY, &forward);                       \
		struct flow_line##FAMILY *line1 = bpf_map_lookup_elem(&lines##FAMILY, &back);                          \
                                                                                                                       \
		if (result != INSERTED && line0 && line1) {                                                            \
			line0->state.flags = 0;                                                                        \
			flow_end(FAMILY, &line1->state);                                                               \
			if (result != INSERT_STUCK)                                                                    \
				flow_release(FAMILY, session);                                                         \
		}                                                                                                      \
		if (result == INSERTED && needs_extension(p))                                                          \
			grant_count(p->grant, 1);                                                                      \
		flow_prepare_next(FAMILY);                                                                             \
		return result;                                                                                         \
	}                                                                                                              \
                                                                                                                       \
	__noinline int create##FAMILY(struct packet *p, __u32 from_host)                                               \
	{                                                                                                              \
		struct flow_key##FAMILY reply ALIGNED_KEY;                                                             \
		if (!p)                                                                                                \
			return INSERT_FULL;                                                                            \
		__u32 *unanswered = unanswered_of(FAMILY);                                                             \
                                                                                                                       \
		/* below 0 for a moment is none */                                                                     \
		if (!unanswered ||                                                                                     \
		    (!from_host && (__s32) * (volatile __u32 *)unanswered >= (__s32)generation.unanswered##FAMILY))    \
			return INSERT_UNANSWERED;                                                                      \
		__u32 session = flow_allocate(FAMILY);                                                                 \
		__u32 forward = 2 * session, back = forward + 1;                                                       \
		struct flow_line##FAMILY *line0 = bpf_map_lookup_elem(&lines##FAMILY, &forward);                       \
		struct flow_line##FAMILY *line1 = bpf_map_lookup_elem(&lines##FAMILY, &back);                          \
		struct flow_shared *shared = bpf_map_lookup_elem(&shared##FAMILY, &session);                           \
                                                                                                                       \
		if (!session || !line0 || !line1 || !shared)                                                           \
			return INSERT_FULL;                                                                            \
		if (needs_extension(p) && !fill_extension(p, session, line0->state.tag + 1)) {                         \
			flow_release(FAMILY, session);                                                                 \
			return INSERT_FULL;                                                                            \
		}                                                                                                      \
		flow_reverse##FAMILY(&p->key##FAMILY, &reply);                                                         \
		if (has_instances() && instance_ahead(p) != p->key4.routing_instance) {                                \
			put_instance((__u64 *)&reply + sizeof(reply) / 8 - 1, instance_ahead(p));                      \
			p->reply_hash = flow_hash##FAMILY(config.seed, &reply);                                        \
		}                                                                                                      \
		bool to_host = p->nexthop == NEXTHOP_LOCAL;                                                            \
                                                                                                                       \
		line1->state.tag = ++line0->state.tag;                                                                 \
		*(volatile __u32 *)flow_life(&line0->state) = 0;                                                       \
		publish(flow_life(&line1->state), 0);                                                                  \
		line0->key = p->key##FAMILY;                                                                           \
		line1->key = reply;                                                                                    \
		line0->grant = line1->grant = p->grant;                                                                \
		fill_state(&line0->state, p, from_host ? ZONE_HOST : p->from_zone, p->nexthop,                         \
			   FAMILY_FLAG | (from_host ? FLOW_FROM_HOST : 0) | (p->timeout_s ? FLOW_OWN_TIMEOUT : 0));    \
		/* nobody counts how long this host waits for answers */                                               \
		fill_state(&line1->state, p, p->to_zone, from_host ? NEXTHOP_LOCAL : NEXTHOP_NONE,                     \
			   FAMILY_FLAG | FLOW_RESPONDER | (to_host ? FLOW_FROM_HOST : 0) |                             \
				   (from_host ? FLOW_ANSWERED : 0));                                                   \
		fill_first(&line0->state, p);                                                                          \
		line1->state.marks |= p->grant_use & 2 ? MARK_GRANTEE : 0;                                             \
		if (p->flags & P_RESUMED)                                                                              \
			fill_resumed(&line0->state, &line1->state, p, from_host);                                      \
		if (!from_host && !to_host)                                                                            \
			line1->state.stamp--;                                                                          \
		fill_shared(shared, p);                                                                                \
		if (!from_host)                                                                                        \
			atomic_add(unanswered, 1);                                                                     \
		p->tag = line0->state.tag;                                                                             \
		p->line = forward;                                                                                     \
		if (p->flags & (P_ALLOCATE | P_TRANSLATED))                                                            \
			return INSERT_PENDING;                                                                         \
		int result = flow_insert##FAMILY(&p->key##FAMILY, &reply, p->hash, p->reply_hash, session, p->tag);    \
                                                                                                                       \
		return create_end##FAMILY(p, session, result);                                                         \
	}

DEFINE_CREATE(4, 0)
DEFINE_CREATE(6, (p->nat64 ? FLOW_NAT64 : 0))

/* Records the session of a first packet that was routed; the rest of translation is decided here. */
static __always_inline int create_session(hook_ctx *ctx, struct packet *p)
{
	int result = p->family == 4 ? create4(p, 0) : create6(p, 0);

	if (result != INSERT_PENDING)
		return result;
	__u32 session = p->line >> 1;

	result = p->flags & P_ALLOCATE ? nat_allocate(ctx, p, session) : nat_record(p, session);
	return p->family == 4 ? create_end4(p, session, result) : create_end6(p, session, result);
}

/* A live session the active configuration permits: this direction's next hop and the decision are renewed. */
static __noinline int renew_session(struct packet *p)
{
	if (!p)
		return CONTINUE;
	struct flow_state *own = flow_state_at(p->family, p->line);
	struct flow_state *peer = flow_state_at(p->family, p->line ^ 1);
	struct flow_shared *shared = flow_shared_at(p->family, p->line);
	struct unit_counters *count = counters_of(p->unit_index);

	if (!own || !peer || !shared || !count)
		return CONTINUE;
	/* of others, the nexthop stage knows it soon */
	if (p->flags & P_LOCAL)
		own->nexthop = p->nexthop;
	__u16 stamp = decision_stamp(p);

	if (own->stamp != stamp && peer->stamp != stamp)
		count->rejudged++; /* once a session, not once a direction */
	own->stamp = stamp;
	if (p->timeout_s)
		flow_set_flags(p->line & 1 ? peer : own, FLOW_OWN_TIMEOUT);
	else
		flow_clear_flags(p->line & 1 ? peer : own, FLOW_OWN_TIMEOUT);
	if (!(p->flags & P_RESPONDER)) {
		if (!(p->flags & P_LOCAL) && peer->zone != p->to_zone)
			peer->zone = p->to_zone; /* the route moved: answers come from there */
		shared->to_zone = p->to_zone;
	}
	shared->policy = p->rule_policy;
	shared->timeout_s = p->timeout_s;
	shared->epoch = decision_epoch(p);
	shared->generation = generation.number;
	shared->rule_flags = p->rule_flags & (RULE_LOG_CLOSE | RULE_COUNT);
	return CONTINUE;
}

/* The packet that recorded its session ends nevertheless. */
static __always_inline void flow_withdraw(struct packet *p)
{
	if (p->family == 4)
		flow_delete4(p->line, p->tag, CLOSE_WITHDRAWN);
	else
		flow_delete6(p->line, p->tag, CLOSE_WITHDRAWN);
	if (needs_extension(p))
		grant_count(p->grant, -1);
	if (nat_is_persistent() && (p->nat_bindings[0] | p->nat_bindings[1]))
		nat_binding_withdraw(p);
	p->flags &= ~P_CREATED;
}

/* The translation of the session that the packet's tuple belongs to since a moment ago. */
static __noinline int nat_recall_twin(struct packet *p)
{
	return p && find_session(p) && (p->flags & P_TRANSLATED);
}

static __always_inline int stage_create(hook_ctx *ctx, struct packet *p)
{
	if (p->flags & (P_KNOWN | P_RELATED))
		return CONTINUE;
	if (p->flags & P_REEVALUATE)
		return renew_session(p);
	if (p->proto == IPPROTO_TCP)
		p->tcp_scale = tcp_scale_of(ctx, p);
	int verdict = limits_enter(p);

	if (verdict != CONTINUE)
		return verdict;
	int result = create_session(ctx, p);

	if (result != INSERTED && p->limited)
		limits_withdraw(p);
	if (result == INSERT_UNANSWERED)
		return DROP(SESSION_UNANSWERED);
	if (result == INSERT_FULL)
		return DROP(SESSION_TABLE_FULL);
	if (result >= INSERT_EXHAUSTED) {
		nat_count_failure(p->nat_source);
		if (nat_is_persistent() && result == INSERT_UNBOUND)
			nat_binding_refused(p);
		return result == INSERT_EXHAUSTED    ? DROP(NAT_PORTS_EXHAUSTED)
		       : result == INSERT_NO_ADDRESS ? DROP(NAT_NO_ADDRESS)
		       : result == INSERT_UNBOUND    ? DROP(NAT_BINDINGS_FULL)
						     : DROP(NAT_BINDING_SESSIONS);
	}
	if (result == INSERT_CONFLICT)
		return DROP(SESSION_CONFLICT);
	if (result == INSERT_BUSY || result == INSERT_STUCK)
		return DROP(SESSION_BUSY);
	if (result == INSERTED) {
		struct unit_counters *count = counters_of(p->unit_index);

		p->flags |= P_CREATED;
		if (count)
			count->sessions++;
	}
	if (p->flags & P_TRANSLATED) {
		/* the session that another CPU recorded has a port of its own */
		if (result == INSERT_TWIN && !nat_recall_twin(p))
			return DROP(SESSION_BUSY);
		if (result == INSERTED)
			nat_count_session(p);
		if (result == INSERTED && nat_is_persistent() && (p->nat_bindings[0] | p->nat_bindings[1]))
			nat_binding_join(p);
	}
	log_packet(p, EVENT_SESSION_CREATE, p->line >> 1);
	return CONTINUE;
}

#endif
