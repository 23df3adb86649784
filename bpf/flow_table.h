/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The flow table behind five functions a family: find (flow_index.h), insert and delete of a pair of keys here, sweep
 * and read in user space. Records are mmapable arrays, filled before their keys are inserted.
 */
#ifndef SLUICE_FLOW_TABLE_H
#define SLUICE_FLOW_TABLE_H

#include "flow_index.h"
#include "lib/events.h"
#include "lib/session_limits.h"

#define INSERTED 0
#define INSERT_FULL 1
#define INSERT_TWIN 2       /* the same flow was recorded meanwhile, by another CPU */
#define INSERT_CONFLICT 3   /* another session owns the reply's tuple */
#define INSERT_BUSY 4       /* a bucket's lock could not be had */
#define INSERT_UNANSWERED 5 /* too many sessions wait for an answer */
#define INSERT_STUCK 6      /* as INSERT_BUSY, and the record must not be used again */
#define INSERT_EXHAUSTED 7  /* every port of the NAT pool is taken */
#define INSERT_NO_ADDRESS 8 /* the NAT pool has no address for it */
#define INSERT_UNBOUND 9    /* no room for one more binding */
#define INSERT_BOUND 10     /* its binding has as many sessions as it may have */
#define INSERT_PENDING 11   /* the record is filled, and has no keys yet */

/*
 * `flags` shares an aligned word with `stamp` and `tcp_state`. Both CPUs and the daemon change flags, so only with
 * atomics on that word (little endian: flags are the top byte).
 */
_Static_assert(offsetof(struct flow_state, flags) == offsetof(struct flow_state, stamp) + 3, "flags are the top byte");

static __always_inline __u32 *flow_life(struct flow_state *state)
{
	return (__u32 *)&state->stamp;
}

static __always_inline void flow_set_flags(struct flow_state *state, __u32 flags)
{
	(void)__sync_fetch_and_or((__u32 *)&state->stamp, flags << 24);
}

/*
 * A record that changes hands gets its new tag, then its contents, then its life. So what is read between two of these
 * belongs to the session with this tag.
 */
static __always_inline bool flow_has_tag(const struct flow_state *state, __u16 tag)
{
	ordered();
	bool same = *(volatile __u16 *)&state->tag == tag;

	ordered();
	same = same && (*(volatile __u8 *)&state->flags & FLOW_LIVE);
	ordered();
	return same;
}

static __always_inline void flow_clear_flags(struct flow_state *state, __u32 flags)
{
	(void)__sync_fetch_and_and((__u32 *)&state->stamp, ~(flags << 24));
}

static __always_inline __u32 *unanswered_of(__u8 family)
{
	__u32 zero = 0;
	struct unanswered *unanswered = bpf_map_lookup_elem(&unanswered_sessions, &zero);

	if (!unanswered)
		return NULL;
	return family == 4 ? &unanswered->count4 : &unanswered->count6;
}

/* The responder has answered. Only who sets the mark on a live session counts it off. */
static __always_inline void flow_answered(__u8 family, struct flow_state *back)
{
	if (back->flags & FLOW_ANSWERED)
		return;
	__u32 before = __sync_fetch_and_or((__u32 *)&back->stamp, FLOW_ANSWERED << 24) >> 24;
	__u32 *count = unanswered_of(family);

	if (count && (before & (FLOW_ANSWERED | FLOW_LIVE)) == FLOW_LIVE)
		atomic_add(count, -1);
}

/* The end of a session; counts it off where no answer came. */
static __always_inline void flow_end(__u8 family, struct flow_state *back)
{
	__u32 before = __sync_fetch_and_and((__u32 *)&back->stamp, ~(FLOW_LIVE << 24)) >> 24;
	__u32 *count = unanswered_of(family);

	if (count && (before & (FLOW_ANSWERED | FLOW_LIVE)) == FLOW_LIVE)
		atomic_add(count, -1);
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

/* NULL as long as no configuration has made use of them. */
static __always_inline struct flow_extension *flow_extension_at(__u8 family, __u32 session)
{
	__u32 number = family == 4 ? session : config.sessions4 + session;

	return bpf_map_lookup_elem(&flow_extensions, &number);
}

/* A session number: a never-used one while there are any, then the longest free one. 0 = the table is full. */
static __always_inline __u32 flow_draw(__u8 family)
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

/*
 * Each CPU keeps the number of its next session, whose records it has fetched already: three cache lines that a first
 * packet need not wait for. They are drawn after a session was made, so a CPU that makes none keeps none.
 */
static __always_inline __u32 *flow_spare(__u8 family)
{
	__u32 zero = 0;
	struct spare_sessions *spares_here = bpf_map_lookup_elem(&spares, &zero);

	if (!spares_here)
		return NULL;
	return family == 4 ? &spares_here->session4 : &spares_here->session6;
}

/* The table is full but for what CPUs keep: takes from any of them. */
__noinline int flow_steal(__u32 family)
{
	__u32 zero = 0, cpu;

	bpf_for (cpu, 0, MAX_CPUS) {
		struct spare_sessions *other = bpf_map_lookup_percpu_elem(&spares, &zero, cpu);

		if (!other)
			break;
		__u32 *spare = family == 4 ? &other->session4 : &other->session6;
		__u32 session = *(volatile __u32 *)spare ? __sync_lock_test_and_set(spare, 0) : 0;

		if (session)
			return session;
	}
	return 0;
}

static __always_inline __u32 flow_allocate(__u8 family)
{
	__u32 *spare = flow_spare(family);
	__u32 session = spare && *(volatile __u32 *)spare ? __sync_lock_test_and_set(spare, 0) : 0;

	if (!session)
		session = flow_draw(family);
	return session ? session : (__u32)flow_steal(family);
}

static __always_inline void flow_prepare_next(__u8 family)
{
	__u32 *spare = flow_spare(family);

	if (!spare || *spare)
		return;
	__u32 session = flow_draw(family);
	struct flow_state *forward = flow_state_at(family, 2 * session);
	struct flow_state *back = flow_state_at(family, 2 * session + 1);
	struct flow_shared *shared = flow_shared_at(family, 2 * session);

	if (!session || !forward || !back || !shared)
		return;
	prefetch(&forward->last_seen);
	prefetch(&back->last_seen);
	prefetch(&shared->created);
	/* from here another CPU may take it; only this one puts one there */
	publish(spare, session);
}

static __always_inline void flow_release(__u8 family, __u32 session)
{
	if (family == 4)
		bpf_map_push_elem(&free4, &session, BPF_ANY);
	else
		bpf_map_push_elem(&free6, &session, BPF_ANY);
}

static __always_inline int insert_result(int index_result, int exists)
{
	return index_result == INDEX_FULL ? INSERT_FULL : index_result == INDEX_BUSY ? INSERT_BUSY : exists;
}

/* A key with this hash will be inserted: its first bucket comes meanwhile. */
static __always_inline void expect_key(__u8 family, __u64 hash)
{
	struct flow_bucket *bucket = family == 4 ? bucket_at4(hash >> 40) : bucket_at6(hash >> 40);

	if (bucket)
		prefetch(bucket->spare);
}

/*
 * Insert: both ends of a session may open it at the same moment, on two CPUs; each then finds the other's first key in
 * the place of its second. The one with the greater hash takes its key back and joins the other's session
 * (INSERT_TWIN), which waits for that. The key may also go between the insertion that found it and the look at whose it
 * is, so only who finds another's twice has a conflict; who waits in vain, since the other lost its CPU, has none
 * either.
 *
 * Delete: whoever removes the responder's key owns the session. It alone removes the initiator's key and gives the
 * record back; until then nobody else can own either tuple.
 */
#define DEFINE_PAIR(FAMILY)                                                                                            \
	/* Whether `key` leads to a session whose other direction is `other`. */                                       \
	static __always_inline bool flow_pairs##FAMILY(const struct flow_key##FAMILY *key, __u64 hash,                 \
						       const struct flow_key##FAMILY *other)                           \
	{                                                                                                              \
		__u32 number = 0;                                                                                      \
                                                                                                                       \
		if (!flow_find##FAMILY(key, hash, &number, FLOW_BUCKET_SLOTS))                                         \
			return false;                                                                                  \
		number ^= 1;                                                                                           \
		struct flow_line##FAMILY *line = bpf_map_lookup_elem(&lines##FAMILY, &number);                         \
                                                                                                                       \
		return line && key_equal##FAMILY(&line->key, other);                                                   \
	}                                                                                                              \
                                                                                                                       \
	static __always_inline int flow_insert##FAMILY(const struct flow_key##FAMILY *key,                             \
						       const struct flow_key##FAMILY *reply, __u64 hash,               \
						       __u64 reply_hash, __u32 session, __u32 tag)                     \
	{                                                                                                              \
		/* its own reply: whoever sent it, there is no other end to wait for */                                \
		if (hash == reply_hash)                                                                                \
			return INSERT_CONFLICT;                                                                        \
		int result = index_insert##FAMILY(key, hash, 2 * session);                                             \
		__u32 i;                                                                                               \
                                                                                                                       \
		if (result != INDEX_DONE)                                                                              \
			return insert_result(result, INSERT_TWIN);                                                     \
		result = index_insert##FAMILY(reply, reply_hash, 2 * session + 1);                                     \
		/* a count of finds, carried through this loop, was seen to stay at 1 on Linux 6.18: none is kept */   \
		bpf_for (i, 0, result == INDEX_EXISTS ? LOCK_SPINS : 0) {                                              \
			if (!flow_pairs##FAMILY(reply, reply_hash, key)) {                                             \
				result = index_insert##FAMILY(reply, reply_hash, 2 * session + 1);                     \
				if (result != INDEX_EXISTS)                                                            \
					break;                                                                         \
				if (!flow_pairs##FAMILY(reply, reply_hash, key))                                       \
					return index_remove##FAMILY(key, 2 * session, tag) ? INSERT_CONFLICT           \
											   : INSERT_STUCK;             \
			}                                                                                              \
			if (reply_hash < hash)                                                                         \
				return index_remove##FAMILY(key, 2 * session, tag) ? INSERT_TWIN : INSERT_STUCK;       \
			result = index_insert##FAMILY(reply, reply_hash, 2 * session + 1);                             \
			if (result != INDEX_EXISTS)                                                                    \
				break;                                                                                 \
		}                                                                                                      \
		if (result == INDEX_DONE)                                                                              \
			return INSERTED;                                                                               \
		if (!index_remove##FAMILY(key, 2 * session, tag))                                                      \
			return INSERT_STUCK;                                                                           \
		return insert_result(result, INSERT_BUSY);                                                             \
	}                                                                                                              \
                                                                                                                       \
	/* Ends the session of a line, if its record still has this tag. 1 when this call ended it. */                 \
	__noinline int flow_delete##FAMILY(__u32 line_number, __u32 tag, __u32 cause)                                  \
	{                                                                                                              \
		__u32 forward = line_number & ~1u, back = line_number | 1, session = forward >> 1;                     \
		struct flow_line##FAMILY *line0 = bpf_map_lookup_elem(&lines##FAMILY, &forward);                       \
		struct flow_line##FAMILY *line1 = bpf_map_lookup_elem(&lines##FAMILY, &back);                          \
		struct flow_shared *shared = bpf_map_lookup_elem(&shared##FAMILY, &session);                           \
                                                                                                                       \
		if (!line0 || !line1 || !shared)                                                                       \
			return 0;                                                                                      \
		if (!flow_has_tag(&line1->state, tag))                                                                 \
			return 0;                                                                                      \
		struct flow_key##FAMILY key ALIGNED_KEY = line1->key;                                                  \
                                                                                                                       \
		if (!flow_has_tag(&line1->state, tag) || !index_remove##FAMILY(&key, back, tag))                       \
			return 0;                                                                                      \
		flow_end(FAMILY, &line1->state);                                                                       \
		bool whole = index_remove##FAMILY(&line0->key, forward, tag);                                          \
                                                                                                                       \
		flow_clear_flags(&line0->state, FLOW_LIVE);                                                            \
		if (shared->rule_flags)                                                                                \
			session_closed##FAMILY(session, cause);                                                        \
		if (shared->limited)                                                                                   \
			limits_leave##FAMILY(&line0->key, shared);                                                     \
		/* a record that a key still leads to is never used again */                                           \
		if (whole)                                                                                             \
			flow_release(FAMILY, session);                                                                 \
		return 1;                                                                                              \
	}

DEFINE_PAIR(4)
DEFINE_PAIR(6)

/* This direction's packets come from another zone from now on: a commit has moved their unit. */
static __always_inline void flow_enter_zone(__u8 family, __u32 line_number, __u16 zone)
{
	__u32 forward = line_number & ~1u;
	struct flow_state *own = flow_state_at(family, line_number);
	struct flow_shared *shared = flow_shared_at(family, line_number);

	if (!own || !shared)
		return;
	own->zone = zone;
	if (line_number & 1) {
		shared->to_zone = zone;
		return;
	}
	/* as one that began before its zone had a limit, it is not counted any more */
	struct flow_line4 *line4 = bpf_map_lookup_elem(&lines4, &forward);
	struct flow_line6 *line6 = bpf_map_lookup_elem(&lines6, &forward);

	if (shared->limited && family == 4 && line4)
		limits_leave4(&line4->key, shared);
	if (shared->limited && family == 6 && line6)
		limits_leave6(&line6->key, shared);
	shared->limited = 0;
	if (shared->from_zone != ZONE_HOST)
		shared->from_zone = zone;
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
