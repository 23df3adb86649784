// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The functions that look at the clock, at times of a test's choice and with any length of a tick frozen. */
#pragma clang diagnostic ignored "-Wunused-function"

#include "lib/hook_xdp.h"
#include "lib/fragment.h"
#include "gate/grant.h"
#include "nat/ports.h"
#include "lib/rate.h"
#include "lib/reply.h"
#include "sweep.h"
#include "stress/clock.h"

ARRAY_MAP(questions, struct clock_question, 1, BPF_F_MMAPABLE);

static __always_inline void ask_reply(struct clock_question *question, struct packet *p)
{
	__u32 zone = p->from_zone;
	struct token_bucket *bucket = bpf_map_lookup_elem(&reply_tokens, &zone);

	if (!bucket)
		return;
	bucket->tick = question->then;
	bucket->tokens = question->tokens;
	question->answer = reply_allowed(p);
	question->tokens = bucket->tokens;
	question->tick = bucket->tick;
}

static __always_inline void ask_screen(struct clock_question *question, struct packet *p)
{
	__u32 zone = p->from_zone;
	struct screen_counters *count = bpf_map_lookup_elem(&screen_counters, &zone);

	if (!count)
		return;
	count->logged_at[REASON_LAND] = question->then;
	screen_count(p, REASON_LAND, 0);
	question->answer = count->logged_at[REASON_LAND] == question->now;
}

static __always_inline void ask(struct clock_question *question, struct packet *p)
{
	struct fragment_datagram datagram = {.first_seen = question->then};
	struct nat_cursor cursor = {.full_at = question->then};
	struct grant grant = {.last_use = question->then};
	struct sweep_limits limits = {.timeout_s = {[TIMEOUT_UDP] = question->limit_s}};

	switch (question->ask) {
	case ASK_REPLY:
		ask_reply(question, p);
		break;
	case ASK_RATE:
		p->now = question->then;
		rate_count(p, SCREEN_OF_SOURCE, RATE_UDP);
		p->now = question->now;
		question->answer = rate_count(p, SCREEN_OF_SOURCE, RATE_UDP);
		break;
	case ASK_KNOWN:
		p->now = question->then;
		source_learn(p);
		p->now = question->now;
		question->answer = source_known(p);
		break;
	case ASK_FRAGMENT:
		question->answer = fragment_over(&datagram, question->now);
		break;
	case ASK_IDLE:
		question->answer =
			is_idle(&limits, TIMEOUT_UDP, jiffies_since(question->now, question->then), NULL, false);
		break;
	case ASK_NAT_FULL:
		question->answer = nat_was_full(&cursor, question->now);
		break;
	case ASK_GRANT_USED:
		grant_used(&grant, question->now);
		question->answer = grant.last_use == question->now;
		break;
	case ASK_SCREEN_LOGGED:
		ask_screen(question, p);
		break;
	}
}

SEC("syscall")
int clock_ask(void *ctx)
{
	__u32 zero = 0;
	struct clock_question *question = bpf_map_lookup_elem(&questions, &zero);
	struct packet *p = bpf_map_lookup_elem(&scratch, &zero);

	if (!question || !p)
		return 1;
	p->now = question->now;
	p->segments = 1;
	p->family = 4;
	p->from_zone = 2;
	p->key4.be_saddr = question->number;
	ask(question, p);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
