/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Security policies: first match of the zone pair, in the session's forward direction. */
#ifndef SLUICE_STAGE_POLICY_H
#define SLUICE_STAGE_POLICY_H

#include "flow_table.h"
#include "lib/services.h"

/* The forward direction of the session, host byte order where ranges are compared. */
struct judged {
	struct service service;
	__u32 family;
	__u32 saddr4, daddr4;
	__u64 saddr6[2], daddr6[2];
};

static __noinline int addresses4_match(__u32 addr, __u32 first, __u32 count)
{
	__u32 i;

	if (count > MAX_ADDRESS_TERMS_PER_RULE)
		count = MAX_ADDRESS_TERMS_PER_RULE;
	bpf_for (i, 0, count) {
		__u32 index = first + i;
		struct address4_term *term = bpf_map_lookup_elem(&addresses4, &index);

		if (!term)
			return 0;
		if (addr >= term->low && addr <= term->high)
			return 1;
	}
	return 0;
}

static __always_inline bool not_below(const __u64 *a, const __u64 *b)
{
	return a[0] > b[0] || (a[0] == b[0] && a[1] >= b[1]);
}

static __noinline int addresses6_match(const __u64 *high, const __u64 *low, __u32 first, __u32 count)
{
	__u32 i;

	if (!high || !low)
		return 0;
	__u64 addr[2] = {*high, *low};

	if (count > MAX_ADDRESS_TERMS_PER_RULE)
		count = MAX_ADDRESS_TERMS_PER_RULE;
	bpf_for (i, 0, count) {
		__u32 index = first + i;
		struct address6_term *term = bpf_map_lookup_elem(&addresses6, &index);

		if (!term)
			return 0;
		if (not_below(addr, term->low) && not_below(term->high, addr))
			return 1;
	}
	return 0;
}

static __always_inline bool addresses_match(const struct judged *j, const struct rule *rule)
{
	if (j->family == 4)
		return ((rule->flags & RULE_SOURCE_ANY) ||
			addresses4_match(j->saddr4, rule->source4_first, rule->source4_count)) &&
		       ((rule->flags & RULE_DESTINATION_ANY) ||
			addresses4_match(j->daddr4, rule->destination4_first, rule->destination4_count));
	return ((rule->flags & RULE_SOURCE_ANY) ||
		addresses6_match(&j->saddr6[0], &j->saddr6[1], rule->source6_first, rule->source6_count)) &&
	       ((rule->flags & RULE_DESTINATION_ANY) ||
		addresses6_match(&j->daddr6[0], &j->daddr6[1], rule->destination6_first, rule->destination6_count));
}

static __always_inline void judge_service(const struct packet *p, struct judged *j)
{
	j->service.sport = bpf_ntohs(p->key6.be_sport);
	j->service.dport = bpf_ntohs(p->key6.be_dport);
	j->service.proto = p->proto;
	j->service.icmp_type = p->icmp_type;
	j->service.icmp_code = p->icmp_code;
	if (!(p->flags & P_RESPONDER))
		return;
	j->service.sport = bpf_ntohs(p->key6.be_dport);
	j->service.dport = bpf_ntohs(p->key6.be_sport);
	/* the session was opened by the request this answers */
	if (p->proto == IPPROTO_ICMP)
		j->service.icmp_type = ICMP4_ECHO;
	else if (p->proto == IPPROTO_ICMPV6)
		j->service.icmp_type = ICMP6_ECHO;
}

static __always_inline void judge_addresses(const struct packet *p, struct judged *j)
{
	bool turned = p->flags & P_RESPONDER;

	j->family = p->family;
	if (p->family == 4) {
		j->saddr4 = bpf_ntohl(turned ? p->key4.be_daddr : p->key4.be_saddr);
		j->daddr4 = bpf_ntohl(turned ? p->key4.be_saddr : p->key4.be_daddr);
		return;
	}
	const __u64 *saddr = (const __u64 *)(turned ? p->key6.be_daddr : p->key6.be_saddr);
	const __u64 *daddr = (const __u64 *)(turned ? p->key6.be_saddr : p->key6.be_daddr);

	j->saddr6[0] = bpf_be64_to_cpu(saddr[0]);
	j->saddr6[1] = bpf_be64_to_cpu(saddr[1]);
	j->daddr6[0] = bpf_be64_to_cpu(daddr[0]);
	j->daddr6[1] = bpf_be64_to_cpu(daddr[1]);
}

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

static __always_inline int first_match(struct packet *p, const struct judged *j, const struct zone_pair *pair)
{
	__u32 count = pair->count;
	__u32 i;

	if (count > MAX_RULES_PER_PAIR)
		return DROP(POLICY_DEFAULT);
	bpf_for (i, 0, count) {
		__u32 index = pair->first + i;
		struct rule *rule = bpf_map_lookup_elem(&rules, &index);
		int timeout = 0;

		if (!rule)
			return DROP(POLICY_DEFAULT);
		if (!addresses_match(j, rule))
			continue;
		if (!(rule->flags & RULE_APPLICATION_ANY))
			timeout = services_match(&j->service, rule->service_first, rule->service_count);
		if (timeout < 0)
			continue;
		p->rule_policy = rule->policy;
		p->rule_flags = rule->flags;
		p->timeout_s = timeout;
		count_policy(rule->policy, rule->action == ACTION_PERMIT);
		if (rule->action != ACTION_PERMIT && !(p->flags & P_REJUDGE))
			log_packet(p, EVENT_SESSION_DENY, 0);
		return act(p, rule->action, DROP(POLICY_DENY));
	}
	return act(p, pair->default_action, DROP(POLICY_DEFAULT));
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

/* The other direction was judged in this epoch: the decision stands for both. */
static __always_inline bool is_decided(struct packet *p)
{
	if (!(p->flags & P_REJUDGE))
		return false;
	struct flow_shared *shared = flow_shared_at(p->family, p->line);

	if (!shared || shared->epoch != ACTIVE_EPOCH(p->active) || shared->generation != config.generation)
		return false;
	p->rule_policy = shared->policy;
	p->timeout_s = shared->timeout_s;
	p->rule_flags = shared->rule_flags;
	return true;
}

static __noinline int stage_policy(hook_ctx *ctx, struct packet *p)
{
	struct judged judged = {};

	if (!p)
		return DROP(POLICY_DEFAULT);
	if ((p->flags & (P_KNOWN | P_LOCAL | P_RELATED)) || is_decided(p))
		return CONTINUE;
	__u32 index = pair_of(p);
	struct zone_pair *pair = bpf_map_lookup_elem(&zone_pairs, &index);

	if (!pair)
		return DROP(POLICY_DEFAULT);
	judge_service(p, &judged);
	judge_addresses(p, &judged);
	return first_match(p, &judged, pair);
}

#endif
