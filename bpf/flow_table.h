/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The flow table behind five functions a family: find, insert_pair, delete_pair here, sweep and read in user space.
 * Index: two preallocated hash maps, tuple -> {line, tag}. Records: mmapable arrays. A record is filled before its
 * keys are inserted, and `tag` tells a reader that still holds an old reference.
 */
#ifndef SLUICE_FLOW_TABLE_H
#define SLUICE_FLOW_TABLE_H

#include "maps.h"

#define INSERTED 0
#define INSERT_FULL 1
#define INSERT_TWIN 2     /* the same flow was recorded meanwhile, by another CPU */
#define INSERT_CONFLICT 3 /* another session owns the reply's tuple */

/*
 * `flags` shares an aligned word with `epoch` and `tcp_state`. Both CPUs and the daemon change flags, so only with
 * atomics on that word (little endian: flags are the top byte).
 */
_Static_assert(offsetof(struct flow_state, flags) == offsetof(struct flow_state, epoch) + 3, "flags are the top byte");

static __always_inline void flow_set_flags(struct flow_state *state, __u32 flags)
{
	(void)__sync_fetch_and_or((__u32 *)&state->epoch, flags << 24);
}

static __always_inline void flow_clear_flags(struct flow_state *state, __u32 flags)
{
	(void)__sync_fetch_and_and((__u32 *)&state->epoch, ~(flags << 24));
}

static __always_inline bool flow_is(const struct flow_state *state, __u32 tag)
{
	return state->tag == tag && (state->flags & FLOW_LIVE);
}

static __always_inline struct flow_state *flow_find4(const struct flow_key4 *key, __u32 *line_number)
{
	struct flow_ref *ref = bpf_map_lookup_elem(&flows4, key);

	if (!ref)
		return NULL;
	*line_number = ref->line;
	__u32 tag = ref->tag;
	struct flow_line4 *line = bpf_map_lookup_elem(&lines4, line_number);

	return line && flow_is(&line->state, tag) ? &line->state : NULL;
}

static __always_inline struct flow_state *flow_find6(const struct flow_key6 *key, __u32 *line_number)
{
	struct flow_ref *ref = bpf_map_lookup_elem(&flows6, key);

	if (!ref)
		return NULL;
	*line_number = ref->line;
	__u32 tag = ref->tag;
	struct flow_line6 *line = bpf_map_lookup_elem(&lines6, line_number);

	return line && flow_is(&line->state, tag) ? &line->state : NULL;
}

/* The barriers keep the compiler from adding the offset before the null check, which the verifier refuses. */
static __always_inline struct flow_state *flow_state_at(__u8 family, __u32 line_number)
{
	if (family == 4) {
		struct flow_line4 *line = bpf_map_lookup_elem(&lines4, &line_number);

		if (!line)
			return NULL;
		barrier_var(line);
		return &line->state;
	}
	struct flow_line6 *line = bpf_map_lookup_elem(&lines6, &line_number);

	if (!line)
		return NULL;
	barrier_var(line);
	return &line->state;
}

static __always_inline struct flow_shared *flow_shared_at(__u8 family, __u32 line_number)
{
	__u32 session = line_number >> 1;

	if (family == 4)
		return bpf_map_lookup_elem(&shared4, &session);
	return bpf_map_lookup_elem(&shared6, &session);
}

static __always_inline void flow_reverse4(const struct flow_key4 *key, struct flow_key4 *reverse)
{
	reverse->be_saddr = key->be_daddr;
	reverse->be_daddr = key->be_saddr;
	reverse->be_sport = key->be_dport;
	reverse->be_dport = key->be_sport;
	reverse->routing_instance = key->routing_instance;
	reverse->proto = key->proto;
	reverse->zero = 0;
}

static __always_inline void flow_reverse6(const struct flow_key6 *key, struct flow_key6 *reverse)
{
	for (int i = 0; i < 4; i++) {
		reverse->be_saddr[i] = key->be_daddr[i];
		reverse->be_daddr[i] = key->be_saddr[i];
	}
	reverse->be_sport = key->be_dport;
	reverse->be_dport = key->be_sport;
	reverse->routing_instance = key->routing_instance;
	reverse->proto = key->proto;
	reverse->zero = 0;
}

/* A session number: a never-used one while there are any, then the longest free one. 0 = the table is full. */
static __always_inline __u32 flow_allocate(__u8 family)
{
	__u32 zero = 0, session = 0;
	struct watermarks *marks = bpf_map_lookup_elem(&watermarks, &zero);

	if (!marks)
		return 0;
	__u32 *used = family == 4 ? &marks->session4 : &marks->session6;
	__u32 limit = family == 4 ? config.sessions4 : config.sessions6;

	if (*(volatile __u32 *)used < limit) {
		session = __sync_fetch_and_add(used, 1) + 1;
		if (session <= limit)
			return session;
		/* another CPU took the last one; the mark stays one too high, readers clamp it */
	}
	session = 0;
	if (family == 4)
		return bpf_map_pop_elem(&free4, &session) ? 0 : session;
	return bpf_map_pop_elem(&free6, &session) ? 0 : session;
}

static __always_inline void flow_release(__u8 family, __u32 session)
{
	if (family == 4)
		bpf_map_push_elem(&free4, &session, BPF_ANY);
	else
		bpf_map_push_elem(&free6, &session, BPF_ANY);
}

/* Record fill, first half: dead and with a new tag, so that nobody who still holds the old reference reads on. */
static __always_inline __u32 flow_rebirth(struct flow_state *state)
{
	flow_clear_flags(state, 0xff);
	state->tag += 1;
	return state->tag;
}

#define DEFINE_INSERT(FAMILY)                                                                                          \
	static __always_inline int flow_insert##FAMILY(const struct flow_key##FAMILY *key,                             \
						       const struct flow_key##FAMILY *reply, __u32 session,            \
						       __u32 tag0, __u32 tag1)                                         \
	{                                                                                                              \
		struct flow_ref forward = {.line = 2 * session, .tag = tag0};                                          \
		struct flow_ref back = {.line = 2 * session + 1, .tag = tag1};                                         \
		long error = bpf_map_update_elem(&flows##FAMILY, key, &forward, BPF_NOEXIST);                          \
                                                                                                                       \
		if (error)                                                                                             \
			return error == -EEXIST ? INSERT_TWIN : INSERT_FULL;                                           \
		error = bpf_map_update_elem(&flows##FAMILY, reply, &back, BPF_NOEXIST);                                \
		if (!error)                                                                                            \
			return INSERTED;                                                                               \
		bpf_map_delete_elem(&flows##FAMILY, key);                                                              \
		return error == -EEXIST ? INSERT_CONFLICT : INSERT_FULL;                                               \
	}

DEFINE_INSERT(4)
DEFINE_INSERT(6)

/*
 * Whoever deletes the responder's key owns the session: it alone deletes the initiator's key and gives the record
 * back. Until then nobody can own either tuple.
 */
static __noinline int flow_delete4(__u32 line_number)
{
	__u32 forward = line_number & ~1u, back = line_number | 1;
	struct flow_line4 *line0 = bpf_map_lookup_elem(&lines4, &forward);
	struct flow_line4 *line1 = bpf_map_lookup_elem(&lines4, &back);

	if (!line0 || !line1)
		return 0;
	flow_clear_flags(&line0->state, FLOW_LIVE);
	flow_clear_flags(&line1->state, FLOW_LIVE);
	if (bpf_map_delete_elem(&flows4, &line1->key))
		return 0;
	bpf_map_delete_elem(&flows4, &line0->key);
	flow_release(4, forward >> 1);
	return 1;
}

static __noinline int flow_delete6(__u32 line_number)
{
	__u32 forward = line_number & ~1u, back = line_number | 1;
	struct flow_line6 *line0 = bpf_map_lookup_elem(&lines6, &forward);
	struct flow_line6 *line1 = bpf_map_lookup_elem(&lines6, &back);

	if (!line0 || !line1)
		return 0;
	flow_clear_flags(&line0->state, FLOW_LIVE);
	flow_clear_flags(&line1->state, FLOW_LIVE);
	if (bpf_map_delete_elem(&flows6, &line1->key))
		return 0;
	bpf_map_delete_elem(&flows6, &line0->key);
	flow_release(6, forward >> 1);
	return 1;
}

/* A packet of a session passed. Atomics: RSS may move a direction to another CPU. */
static __always_inline void flow_account(struct flow_state *state, __u32 now, __u32 packets, __u32 bytes)
{
	if (state->last_seen != now)
		state->last_seen = now;
	atomic_add(&state->packets, packets);
	atomic_add(&state->bytes, bytes);
}

#endif
