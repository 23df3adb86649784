/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Static NAT of the destination, else destination NAT: before the route, which depends on it. */
#ifndef SLUICE_STAGE_NAT_DESTINATION_H
#define SLUICE_STAGE_NAT_DESTINATION_H

#include "nat/binding.h"

/* What the rule makes of the destination, to `nat_address`. */
static __always_inline bool nat_destination_address(struct packet *p, const struct nat_rule *rule)
{
	if (rule->kind == NAT_PREFIX || rule->kind == NAT_NPTV6)
		return nat_change_prefix(p, rule, address_place(p, AS_SENT, SIDE_DESTINATION));
	if (rule->kind == NAT_NAT64)
		return (config.stage_mask & STAGE_BIT(NAT64)) && nat64_destination(p, rule);
	struct nat_pool *pool = rule->kind == NAT_POOL ? nat_pool_at(rule->pool) : NULL;

	if (!pool || !pool->addresses)
		return false;
	return nat_pool_address(p, rule->pool, nat_source_number(p) % pool->addresses);
}

/* A session that is re-evaluated keeps its destination only if the rules still say so. */
static __always_inline int nat_keep_destination(struct packet *p, bool mapped, const struct nat_rule *rule)
{
	__u32 sent = address_place(p, AS_SENT, SIDE_DESTINATION);
	__u32 now = address_place(p, AS_TRANSLATED, SIDE_DESTINATION);
	__u16 be_port = be_port_in(p, port_place(p, AS_SENT, SIDE_DESTINATION));

	if (mapped) {
		be_port = nat_be_port(rule, p, be_port);
	} else {
		const __u32 *address = address_in(p, sent);

		for (int i = 0; i < 4; i++)
			p->nat_address[i] = address[i];
	}
	if (!nat_address_is(p, now) || be_port != be_port_in(p, port_place(p, AS_TRANSLATED, SIDE_DESTINATION)))
		return DROP(NAT_CHANGED);
	p->classed &= CLASSED_SOURCE;
	return CONTINUE;
}

static __always_inline int nat_apply_destination(struct packet *p, const struct nat_rule *rule)
{
	bool again = p->flags & P_REEVALUATE;

	if (!again)
		nat_count_hit(rule->id);
	if (rule->kind == NAT_OFF)
		return again ? nat_keep_destination(p, false, rule) : CONTINUE;
	p->nat_destination = rule->id;
	if ((rule->flags & NAT_RULE_INSTANCE) && !(p->flags & P_RESPONDER))
		p->route_instance = rule->routing_instance;
	if (!nat_destination_address(p, rule)) {
		if (!again)
			nat_count_failure(rule->id);
		return again ? DROP(NAT_CHANGED) : rule->kind == NAT_NAT64 ? DROP(NAT64_ADDRESS) : DROP(NAT_NO_ADDRESS);
	}
	if (again)
		return nat_keep_destination(p, true, rule);
	nat_set(p, SIDE_DESTINATION, nat_be_port(rule, p, p->key6.be_dport));
	if (p->nat64)
		p->out6.proto = nat64_proto4(p->proto);
	p->classed &= CLASSED_SOURCE;
	return CONTINUE;
}

static __always_inline int stage_nat_destination(hook_ctx *ctx, struct packet *p)
{
	if ((p->flags & (P_KNOWN | P_RELATED)) || is_translation_decided(p))
		return CONTINUE;
	__u32 index = nat_ingress_unit(p);
	struct nat_unit *unit = nat_units_at(index);
	struct nat_rule *rule = NULL;

	if (unit && (unit->static_context | unit->destination_context)) {
		if (!classify(p, AS_SENT))
			return DROP(NAT_NO_ADDRESS);
		int found = nat_match(p, unit->static_context);

		if (found < 0)
			found = nat_match(p, unit->destination_context);
		if (found >= 0)
			rule = nat_rule_at(found);
	}
	if (rule)
		return nat_apply_destination(p, rule);
	if (!(p->flags & P_REEVALUATE))
		return nat_is_persistent() ? nat_binding_destination(p) : CONTINUE;
	if (nat_is_persistent() && nat_binding_keeps(p, SIDE_DESTINATION))
		return CONTINUE;
	return nat_keep_destination(p, false, rule);
}

#endif
