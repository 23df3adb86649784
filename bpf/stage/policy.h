/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Security policies: first match of the zone pair, then of the global ones, in the session's forward direction. */
#ifndef SLUICE_STAGE_POLICY_H
#define SLUICE_STAGE_POLICY_H

#include "flow_table.h"
#include "lib/judge.h"

static __always_inline void count_policy(__u32 policy, bool permitted)
{
	struct policy_counters *count = bpf_map_lookup_elem(&policy_counters, &policy);

	if (!count)
		return;
	if (permitted)
		count->sessions++;
	else
		count->denied++;
}

static __always_inline int act(struct packet *p, __u8 action, int denied)
{
	if (action == ACTION_PERMIT)
		return CONTINUE;
	if (action == ACTION_DENY)
		return denied;
	p->reply = p->proto == IPPROTO_TCP ? REPLY_RESET : p->proto == IPPROTO_UDP ? REPLY_PORT : REPLY_PROHIBITED;
	return DROP_AND_REPLY(POLICY_REJECT);
}

static __always_inline int first_match(struct packet *p, const struct service *service, const struct zone_pair *pair)
{
	struct classes classes = classes_of(p);
	__s64 found = match_context(pair->context, &classes);

	if (found < 0)
		found = match_context(pair->global, &classes);
	if (found < 0)
		return act(p, pair->default_action, DROP(POLICY_DEFAULT));
	__u32 index = found;
	struct rule *rule = rules_at(index);

	if (!rule)
		return DROP(POLICY_DEFAULT);
	int timeout = rule->timeout_s;

	if (rule->service_count)
		timeout = services_match(service, rule->service_first, rule->service_count);
	p->rule_policy = rule->policy;
	p->rule_flags = rule->flags;
	p->timeout_s = timeout < 0 ? 0 : timeout;
	count_policy(rule->policy, rule->action == ACTION_PERMIT);
	if (rule->action != ACTION_PERMIT && !(p->flags & P_REEVALUATE))
		log_packet(p, EVENT_SESSION_DENY, 0);
	return act(p, rule->action, DROP(POLICY_DENY));
}

/* Zones of the session's forward direction, whichever way this packet travels. */
static __always_inline __u32 pair_of(const struct packet *p)
{
	__u32 from = p->from_zone, to = p->to_zone;

	if (p->flags & P_RESPONDER) {
		struct flow_shared *shared = flow_shared_at(p->family, p->line);

		to = p->from_zone;
		from = shared ? shared->from_zone : ZONE_NONE;
	}
	return (from % MAX_ZONES) * MAX_ZONES + to % MAX_ZONES;
}

static __always_inline int stage_policy(hook_ctx *ctx, struct packet *p)
{
	struct service service = {};

	if ((p->flags & (P_KNOWN | P_LOCAL | P_RELATED)) || is_decided(p))
		return CONTINUE;
	__u32 index = pair_of(p);
	struct zone_pair *pair = zone_pairs_at(index);

	if (!pair)
		return DROP(POLICY_DEFAULT);
	if (!classify(p, AS_TRANSLATED))
		return DROP(POLICY_DEFAULT);
	service_of(p, AS_TRANSLATED, &service);
	return first_match(p, &service, pair);
}

#endif
