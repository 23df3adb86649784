/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Security policies: first match of the zone pair, then of the global ones, in the session's forward direction. */
#ifndef SLUICE_STAGE_POLICY_H
#define SLUICE_STAGE_POLICY_H

#include "flow_table.h"
#include "lib/classifier.h"

/* The forward direction of the session, host byte order. */
struct judged {
	struct service service;
	struct classes classes;
};

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

/* Finds the classes; false if the tables are broken. */
static __always_inline bool judge_classes(const struct packet *p, struct judged *j)
{
	bool turned = p->flags & P_RESPONDER;
	__s64 source, destination, service = service_class(&j->service);

	if (p->family == 4) {
		__u32 saddr = bpf_ntohl(turned ? p->key4.be_daddr : p->key4.be_saddr);
		__u32 daddr = bpf_ntohl(turned ? p->key4.be_saddr : p->key4.be_daddr);

		source = address_class(CLASS_TREE_SOURCE4, saddr, 0);
		destination = address_class(CLASS_TREE_DESTINATION4, daddr, 0);
	} else {
		const __u64 *saddr = (const __u64 *)(turned ? p->key6.be_daddr : p->key6.be_saddr);
		const __u64 *daddr = (const __u64 *)(turned ? p->key6.be_saddr : p->key6.be_daddr);

		source = address_class(CLASS_TREE_SOURCE6, bpf_be64_to_cpu(saddr[0]), bpf_be64_to_cpu(saddr[1]));
		destination =
			address_class(CLASS_TREE_DESTINATION6, bpf_be64_to_cpu(daddr[0]), bpf_be64_to_cpu(daddr[1]));
	}
	j->classes.source = source;
	j->classes.destination = destination;
	j->classes.service = service;
	j->classes.family = p->family != 4;
	return source >= 0 && destination >= 0 && service >= 0;
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
	__s64 found = match_context(pair->context, &j->classes);

	if (found < 0)
		found = match_context(pair->global, &j->classes);
	if (found < 0)
		return act(p, pair->default_action, DROP(POLICY_DEFAULT));
	__u32 index = found;
	struct rule *rule = bpf_map_lookup_elem(&rules, &index);

	if (!rule)
		return DROP(POLICY_DEFAULT);
	int timeout = rule->timeout_s;

	if (rule->service_count)
		timeout = services_match(&j->service, rule->service_first, rule->service_count);
	p->rule_policy = rule->policy;
	p->rule_flags = rule->flags;
	p->timeout_s = timeout < 0 ? 0 : timeout;
	count_policy(rule->policy, rule->action == ACTION_PERMIT);
	if (rule->action != ACTION_PERMIT && !(p->flags & P_REJUDGE))
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
	if (!judge_classes(p, &judged))
		return DROP(POLICY_DEFAULT);
	return first_match(p, &judged, pair);
}

#endif
