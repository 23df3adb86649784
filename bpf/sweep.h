/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The walk over the flow table: ends idle sessions, keeps stamps and packet counters from wrapping unseen.
 *
 * It runs from a kernel timer, a part of the table each tick, so sessions expire whether a daemon lives or not. The
 * timer holds a reference to its program, and stands in a pinned map: it goes on while the pin is there.
 */
#ifndef SLUICE_SWEEP_H
#define SLUICE_SWEEP_H

#include "flow_table.h"
#include "gate/grant.h"
#include "nat/binding.h"

#define EBUSY 16
#define CLOCK_MONOTONIC 1

/* Stamps farther back than this are brought near the current one, so that the 16 bits never come round to it. */
#define OLDEST_STAMP 0x4000

#define SWEPT_DEAD 0
#define SWEPT_LIVE 1
#define SWEPT_ENDED 2

/* Another CPU's clock may be a tick ahead of `now`. */
static __always_inline __u32 jiffies_since(__u32 now, __u32 stamp)
{
	return (__s32)(now - stamp) < 0 ? 0 : now - stamp;
}

/* A global function: the verifier looks at it once, and not at what comes after each way through it. */
__noinline __u32 timeout_kind(__u32 proto, __u32 forward, __u32 back)
{
	if (proto == IPPROTO_UDP)
		return TIMEOUT_UDP;
	if (proto == IPPROTO_ICMP || proto == IPPROTO_ICMPV6)
		return TIMEOUT_ICMP;
	if (proto != IPPROTO_TCP)
		return TIMEOUT_OTHER;
	if (forward & back & TCP_DIR_RESET)
		return TIMEOUT_TCP_RESET;
	if (forward == TCP_DIR_CLOSED && back == TCP_DIR_CLOSED)
		return TIMEOUT_TCP_CLOSED;
	if (forward >= TCP_DIR_FIN || back >= TCP_DIR_FIN)
		return TIMEOUT_TCP_HALF;
	if (forward == TCP_DIR_ESTABLISHED && back == TCP_DIR_ESTABLISHED)
		return TIMEOUT_TCP;
	return TIMEOUT_TCP_INITIAL;
}

static __always_inline __u32 limit_of(const struct sweep_limits *limits, __u32 kind)
{
	barrier_var(kind); /* else clang finds the mask needless, which the verifier does not */
	return limits->timeout_s[kind & 7];
}

/* Whether its idle time ends it. The application's own timeout never prolongs opening or closing of TCP. */
static __always_inline bool is_idle(const struct sweep_limits *limits, __u32 kind, __u32 idle, const __u32 *own_s,
				    bool early)
{
	__u32 limit_s = limit_of(limits, kind);

	if (own_s && (kind == TIMEOUT_TCP || (kind >= TIMEOUT_UDP && kind <= TIMEOUT_OTHER)))
		limit_s = *own_s;
	if (early && limits->early_ageout_s < limit_s)
		return idle > (__u64)limits->early_ageout_s * config.hz;
	return limit_s != TIMEOUT_FOREVER && idle > (__u64)limit_s * config.hz;
}

static __always_inline bool is_far_back(__u16 stamp, __u16 current)
{
	return (__u16)(current - stamp) > OLDEST_STAMP && stamp != (__u16)(current + 1);
}

/* The like for an epoch, which has a bit less. */
static __always_inline void age_epoch(struct flow_shared *shared, __u16 current)
{
	if (is_far_back(shared->epoch << 1, current << 1))
		shared->epoch = (current - 1) & EPOCH_MASK;
}

/* Replaces a stamp that nobody renewed meanwhile. */
static __always_inline __u32 age_stamp(struct flow_state *state, __u16 current)
{
	__u32 marks = *(volatile __u32 *)&state->stamp;

	if (!is_far_back((__u16)marks, current))
		return 0;
	return __sync_val_compare_and_swap((__u32 *)&state->stamp, marks,
					   (marks & 0xffff0000) | (__u16)(current - 1)) == marks;
}

/* Counts a change of the packet counter's top bit. */
static __always_inline void carry_packets(struct flow_state *state, struct flow_shared *shared, __u32 side)
{
	if (!(state->packets >> 31) == !(state->flags & FLOW_CARRY))
		return;
	shared->packets_high[side & 1]++;
	(void)__sync_fetch_and_xor((__u32 *)&state->stamp, (__u32)FLOW_CARRY << 24);
}

/*
 * The bindings of a session live as long as it does, and their own time from its end. A global function without
 * conditions around its call, so that the verifier looks at it once and not behind every way through a look at a
 * session.
 */
__noinline int sweep_bindings_of(const struct sweep *sweep, __u32 family, __u32 number, __u32 swept)
{
	struct flow_shared *shared = flow_shared_at(family, 2 * number);

	if (!sweep || !sweep->bound || swept == SWEPT_DEAD || !shared)
		return 0;
	nat_binding_seen(shared->nat_bindings[0], sweep->now, swept == SWEPT_LIVE);
	nat_binding_seen(shared->nat_bindings[1], sweep->now, swept == SWEPT_LIVE);
	return 0;
}

#define DEFINE_SWEEP(FAMILY)                                                                                           \
	/* The shared record is only touched where the lines give a reason: it is a cache line more. A global          \
	 * function: the verifier looks at it once, not at every way through the loop that calls it. */                \
	__noinline int sweep_session##FAMILY(struct sweep *sweep, __u32 number)                                        \
	{                                                                                                              \
		__u32 forward = 2 * number, back = forward + 1;                                                        \
		struct flow_line##FAMILY *line0 = bpf_map_lookup_elem(&lines##FAMILY, &forward);                       \
		struct flow_line##FAMILY *line1 = bpf_map_lookup_elem(&lines##FAMILY, &back);                          \
		struct flow_shared *shared = NULL;                                                                     \
		__u32 zero = 0;                                                                                        \
		struct sweep_limits *limits = bpf_map_lookup_elem(&sweep_limits, &zero);                               \
                                                                                                                       \
		if (!sweep || !limits || !line0 || !line1)                                                             \
			return SWEPT_DEAD;                                                                             \
		__u16 tag = *(volatile __u16 *)&line1->state.tag;                                                      \
                                                                                                                       \
		/* what follows is of this session, or the end of it fails on its tag */                               \
		if (!flow_has_tag(&line1->state, tag) || !(line0->state.flags & FLOW_LIVE))                            \
			return SWEPT_DEAD;                                                                             \
		__u32 idle = jiffies_since(sweep->now, line0->state.last_seen);                                        \
		__u32 other = jiffies_since(sweep->now, line1->state.last_seen);                                       \
		__u32 kind = timeout_kind(line0->key.proto, line0->state.tcp_state, line1->state.tcp_state);           \
		bool own_timeout = line0->state.flags & FLOW_OWN_TIMEOUT;                                              \
		__u16 stamp = ACTIVE_STAMP(active);                                                                    \
		bool old = is_far_back(line0->state.stamp, stamp) || is_far_back(line1->state.stamp, stamp);           \
		bool carry = !(line0->state.packets >> 31) != !(line0->state.flags & FLOW_CARRY) ||                    \
			     !(line1->state.packets >> 31) != !(line1->state.flags & FLOW_CARRY);                      \
                                                                                                                       \
		if ((line0->state.marks & MARK_EXTENDED) && session_refusal(FAMILY, forward, 0))                       \
			return flow_delete##FAMILY(back, tag, CLOSE_GRANT) ? SWEPT_ENDED : SWEPT_DEAD;                 \
                                                                                                                       \
		idle = other < idle ? other : idle;                                                                    \
		if (own_timeout || old || carry) {                                                                     \
			shared = bpf_map_lookup_elem(&shared##FAMILY, &number);                                        \
			if (!shared)                                                                                   \
				return SWEPT_DEAD;                                                                     \
		}                                                                                                      \
		if (is_idle(limits, kind, idle, own_timeout && shared ? &shared->timeout_s : NULL,                     \
			    sweep->early##FAMILY))                                                                     \
			return flow_delete##FAMILY(back, tag, CLOSE_IDLE) ? SWEPT_ENDED : SWEPT_DEAD;                  \
		if (old && shared) {                                                                                   \
			sweep->aged += age_stamp(&line0->state, stamp) + age_stamp(&line1->state, stamp);              \
			age_epoch(shared, ACTIVE_EPOCH(active));                                                       \
		}                                                                                                      \
		if (carry && shared) {                                                                                 \
			carry_packets(&line0->state, shared, 0);                                                       \
			carry_packets(&line1->state, shared, 1);                                                       \
		}                                                                                                      \
		return SWEPT_LIVE;                                                                                     \
	}                                                                                                              \
                                                                                                                       \
	/*                                                                                                             \
	 * Nearly every session is UDP or open TCP, not idle for long, without a timeout of its own, and nothing       \
	 * is about to wrap. What is seen while its record changes hands decides nothing: the next pass looks again.   \
	 */                                                                                                            \
	static __always_inline bool sweep_leaves##FAMILY(struct sweep *sweep, const struct sweep_limits *limits,       \
							 const struct flow_line##FAMILY *line0,                        \
							 const struct flow_line##FAMILY *line1, __u16 stamp)           \
	{                                                                                                              \
		const struct flow_state *forward = &line0->state, *back = &line1->state;                               \
		__u32 idle = jiffies_since(sweep->now, forward->last_seen);                                            \
		__u32 other = jiffies_since(sweep->now, back->last_seen);                                              \
		__u8 proto = line0->key.proto;                                                                         \
		__u32 kind = proto == IPPROTO_UDP ? TIMEOUT_UDP : TIMEOUT_TCP;                                         \
		bool usual =                                                                                           \
			proto == IPPROTO_UDP || (proto == IPPROTO_TCP && forward->tcp_state == TCP_DIR_ESTABLISHED &&  \
						 back->tcp_state == TCP_DIR_ESTABLISHED);                              \
		__u32 flags = (forward->flags | back->flags) & (FLOW_OWN_TIMEOUT | FLOW_CARRY);                        \
		__u32 wraps = (forward->packets | back->packets) >> 31;                                                \
                                                                                                                       \
		idle = other < idle ? other : idle;                                                                    \
		return usual &&                                                                                        \
		       !(flags | wraps | sweep->early##FAMILY | (forward->marks & (MARK_EXTENDED | sweep->bound))) &&  \
		       (__u16)(stamp - forward->stamp) < OLDEST_STAMP &&                                               \
		       (__u16)(stamp - back->stamp) < OLDEST_STAMP &&                                                  \
		       idle <= (__u64)limit_of(limits, kind) * config.hz;                                              \
	}                                                                                                              \
                                                                                                                       \
	/* Goes on until the end of the family (true), or as far as it may. */                                         \
	__noinline int sweep_part##FAMILY(struct sweep *sweep, __u32 most_ended)                                       \
	{                                                                                                              \
		__u32 zero = 0, i;                                                                                     \
		struct sweep_limits *limits = bpf_map_lookup_elem(&sweep_limits, &zero);                               \
		struct watermarks *marks = bpf_map_lookup_elem(&watermarks, &zero);                                    \
                                                                                                                       \
		if (!sweep || !marks || !limits)                                                                       \
			return 1;                                                                                      \
		__u32 last = marks->session##FAMILY;                                                                   \
		__u64 before = sweep->expired##FAMILY;                                                                 \
		__u16 stamp = ACTIVE_STAMP(active);                                                                    \
                                                                                                                       \
		last = last < config.sessions##FAMILY ? last : config.sessions##FAMILY;                                \
		bpf_for (i, 0, SWEEP_SESSIONS) {                                                                       \
			__u32 number = *(volatile __u32 *)&sweep->cursor;                                              \
                                                                                                                       \
			if (number > last)                                                                             \
				return 1;                                                                              \
			sweep->cursor = number + 1;                                                                    \
			__u32 forward = 2 * number, back = forward + 1;                                                \
			struct flow_line##FAMILY *line0 = bpf_map_lookup_elem(&lines##FAMILY, &forward);               \
			struct flow_line##FAMILY *line1 = bpf_map_lookup_elem(&lines##FAMILY, &back);                  \
                                                                                                                       \
			if (!line0 || !line1)                                                                          \
				return 1;                                                                              \
			if (!(line0->state.flags & line1->state.flags & FLOW_LIVE))                                    \
				continue;                                                                              \
			if (sweep_leaves##FAMILY(sweep, limits, line0, line1, stamp)) {                                \
				sweep->live++;                                                                         \
				continue;                                                                              \
			}                                                                                              \
			int swept = sweep_session##FAMILY(sweep, number);                                              \
                                                                                                                       \
			sweep_bindings_of(sweep, FAMILY, number, swept);                                               \
			sweep->live += swept == SWEPT_LIVE;                                                            \
			sweep->expired##FAMILY += swept == SWEPT_ENDED;                                                \
			if (sweep->expired##FAMILY - before >= most_ended)                                             \
				return 0;                                                                              \
		}                                                                                                      \
		return 0;                                                                                              \
	}                                                                                                              \
                                                                                                                       \
	/* Early ageout begins above one mark and ends below another. */                                               \
	static __always_inline void sweep_finish##FAMILY(struct sweep *sweep)                                          \
	{                                                                                                              \
		__u32 zero = 0;                                                                                        \
		struct sweep_limits *limits = bpf_map_lookup_elem(&sweep_limits, &zero);                               \
                                                                                                                       \
		sweep->live##FAMILY = sweep->live;                                                                     \
		sweep->live = 0;                                                                                       \
		if (!limits || !limits->early_ageout_s)                                                                \
			sweep->early##FAMILY = 0;                                                                      \
		else if (sweep->live##FAMILY >= limits->high_watermark##FAMILY)                                        \
			sweep->early##FAMILY = 1;                                                                      \
		else if (sweep->live##FAMILY < limits->low_watermark##FAMILY)                                          \
			sweep->early##FAMILY = 0;                                                                      \
	}

DEFINE_SWEEP(4)
DEFINE_SWEEP(6)

/* The part of bindings, as far as one tick goes; true at its end. */
__noinline int sweep_bindings(struct sweep *sweep)
{
	struct nat_binding *all = nat_binding_number(0);
	__u32 i;

	if (!sweep || !all)
		return 1;
	bpf_for (i, 0, SWEEP_SESSIONS) {
		__u32 number = *(volatile __u32 *)&sweep->cursor;

		if (number > all->NAT_BINDINGS_HIGHEST)
			return 1;
		sweep->cursor = number + 1;
		sweep->unbound += nat_binding_sweep(number, sweep->now);
	}
	return 0;
}

static __always_inline bool sweep_has_bindings(void)
{
	struct nat_binding *all = nat_binding_number(0);

	return all && all->NAT_BINDINGS_LIVE;
}

/* One part of a pass; true when the pass is over. */
__noinline int sweep_step(struct sweep *sweep, __u32 most_ended)
{
	if (!sweep)
		return 1;
	if (sweep->family == SWEEP_BINDINGS) {
		if (!sweep_bindings(sweep))
			return 0;
		sweep->family = 0;
		sweep->passes++;
		return 1;
	}
	if (!sweep->family) {
		sweep->bound = sweep_has_bindings() ? MARK_TRANSLATED : 0;
		sweep->family = 4;
		sweep->cursor = 1;
		sweep->live = 0;
	}
	if (sweep->family == 4) {
		if (!sweep_part4(sweep, most_ended))
			return 0;
		sweep_finish4(sweep);
		sweep->family = 6;
		sweep->cursor = 1;
		return 0;
	}
	if (!sweep_part6(sweep, most_ended))
		return 0;
	sweep_finish6(sweep);
	sweep->family = sweep->bound ? SWEEP_BINDINGS : 0;
	sweep->cursor = 1;
	sweep->passes += !sweep->bound;
	return !sweep->bound;
}

static int sweep_tick(void *map, __u32 *key, struct sweep_timer *timer)
{
	__u32 zero = SWEEP_OF_TIMER;
	struct sweep *sweep = bpf_map_lookup_elem(&sweeps, &zero);

	if (!sweep)
		return 0;
	__u64 now_ns = bpf_ktime_get_ns(), before = sweep->expired4 + sweep->expired6, delay = SWEEP_TICK_NS;

	if (!sweep->family)
		sweep->started_ns = now_ns;
	sweep->now = jiffies_now();
	sweep->ticks++;
	if (sweep_step(sweep, SWEEP_ENDS)) {
		__u64 took = now_ns - sweep->started_ns;

		if (took + delay < SWEEP_PASS_NS)
			delay = SWEEP_PASS_NS - took;
	} else if (sweep->expired4 + sweep->expired6 - before >= SWEEP_ENDS) {
		delay = SWEEP_BUSY_NS;
	}
	bpf_timer_start(&timer->timer, delay, 0);
	return 0;
}

/* Starts the timer, or has the one that runs continue with this program. */
static __always_inline int sweep_from_now_on(void)
{
	__u32 zero = 0;
	struct sweep_timer *timer = bpf_map_lookup_elem(&sweep_timer, &zero);

	if (!timer)
		return XDP_ABORTED;
	long error = bpf_timer_init(&timer->timer, &sweep_timer, CLOCK_MONOTONIC);

	if (error && error != -EBUSY)
		return XDP_ABORTED;
	if (bpf_timer_set_callback(&timer->timer, sweep_tick) || bpf_timer_start(&timer->timer, SWEEP_TICK_NS, 0))
		return XDP_ABORTED;
	return XDP_PASS;
}

/* A whole pass, at the time that `sweeps` says. */
static __always_inline int sweep_at_once(void)
{
	__u32 own = SWEEP_OF_RUN, i;
	struct sweep *sweep = bpf_map_lookup_elem(&sweeps, &own);

	if (!sweep)
		return XDP_ABORTED;
	sweep->family = 0;
	bpf_for (i, 0, 16384) {
		if (sweep_step(sweep, 0xffffffff))
			return XDP_PASS;
	}
	return XDP_ABORTED;
}

/* One program for both, by the first byte of what it is run with: the verifier goes through the walk once. */
SEC("xdp")
int xdp_sweep(struct xdp_md *ctx)
{
	__u8 *which = (void *)(long)ctx->data;

	if ((void *)(which + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	return *which == SWEEP_OF_TIMER ? sweep_from_now_on() : sweep_at_once();
}

#endif
