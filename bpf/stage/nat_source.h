/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Static NAT of the source, else source NAT: behind the policies, which judge the original source. Which port of a
 * pool's address it will be is decided where the session is recorded (nat/ports.h).
 */
#ifndef SLUICE_STAGE_NAT_SOURCE_H
#define SLUICE_STAGE_NAT_SOURCE_H

#include "nat/ports.h"
#include "stage/nat_destination.h"

/* Index of the unit that the session's forward direction leaves by. */
static __always_inline __u32 nat_egress_unit(const struct packet *p)
{
	if (p->flags & P_RESPONDER)
		return p->unit_index;
	return p->flags & P_ROUTED ? p->route.unit : 0;
}

/* May the session keep the address and port that a pool gave it? */
__noinline int nat_pool_still_gives(struct packet *p, __u32 index)
{
	struct nat_pool *pool = nat_pool_at(index);

	if (!p || !pool)
		return false;
	__u32 place = address_place(p, AS_TRANSLATED, SIDE_SOURCE);
	__u16 be_sent = be_port_in(p, port_place(p, AS_SENT, SIDE_SOURCE));
	__u16 be_port = be_port_in(p, port_place(p, AS_TRANSLATED, SIDE_SOURCE));
	__u16 port = bpf_ntohs(be_port);

	if (pool->flags & NAT_POOL_INTERFACE) {
		if (!nat_interface_address(p) || !nat_address_is(p, place))
			return false;
	} else if (!nat_pool_has(p, index, place)) {
		return false;
	}
	if ((pool->flags & NAT_POOL_NO_TRANSLATION) || !nat_has_ports(p))
		return be_port == be_sent;
	return port >= pool->port_low && port <= pool->port_high;
}

static __always_inline bool nat_source_is_kept(struct packet *p, const struct nat_rule *rule)
{
	__u32 sent = address_place(p, AS_SENT, SIDE_SOURCE), now = address_place(p, AS_TRANSLATED, SIDE_SOURCE);
	__u16 be_port = be_port_in(p, port_place(p, AS_SENT, SIDE_SOURCE));

	if (rule && (rule->kind == NAT_POOL || rule->kind == NAT_INTERFACE)) {
		struct nat_pool *pool = nat_pool_at(rule->pool);

		if (nat_pool_still_gives(p, rule->pool))
			return true;
		return pool && (pool->flags & NAT_POOL_OVERFLOW) && nat_pool_still_gives(p, pool->overflow);
	}
	if (rule && rule->kind != NAT_OFF) {
		if (!nat_change_prefix(p, rule, sent))
			return false;
		be_port = nat_be_port(rule, p, be_port);
	} else {
		const __u32 *address = address_in(p, sent);

		for (int i = 0; i < 4; i++)
			p->nat_address[i] = address[i];
	}
	return nat_address_is(p, now) && be_port == be_port_in(p, port_place(p, AS_TRANSLATED, SIDE_SOURCE));
}

static __always_inline int nat_apply_source(struct packet *p, const struct nat_rule *rule)
{
	nat_count_hit(rule->id);
	if (p->nat64 && rule->kind != NAT_POOL && rule->kind != NAT_INTERFACE)
		return DROP(NAT64_NO_POOL);
	if (rule->kind == NAT_OFF)
		return CONTINUE;
	p->nat_source = rule->id;
	if (rule->kind == NAT_PREFIX || rule->kind == NAT_NPTV6) {
		if (nat_change_prefix(p, rule, address_place(p, AS_SENT, SIDE_SOURCE))) {
			nat_set(p, SIDE_SOURCE, nat_be_port(rule, p, p->key6.be_sport));
			return CONTINUE;
		}
	} else if (rule->kind == NAT_POOL || rule->kind == NAT_INTERFACE) {
		nat_begin(p);
		p->nat_pool = rule->pool;
		p->flags |= P_ALLOCATE;
		return CONTINUE;
	}
	nat_count_failure(rule->id);
	return DROP(NAT_NO_ADDRESS);
}

/*
 * Who asks for another's outside endpoint, and whose source no rule translates on the way there, appears with its own
 * (RFC 4787 REQ-9a): as if it left where the other's sessions do.
 */
__noinline int nat_find_hairpin(struct packet *p)
{
	struct nat_binding *binding = p ? nat_binding_at(p->nat_bindings[1]) : NULL;

	if (!p || !binding)
		return NO_RULE;
	__u32 egress = binding->unit;
	int found = nat_find_source(p, egress);
	struct nat_rule *rule = found < 0 ? NULL : nat_rule_at(found);
	struct nat_pool *pool =
		rule && (rule->kind == NAT_POOL || rule->kind == NAT_INTERFACE) ? nat_pool_at(rule->pool) : NULL;

	if (!pool || !pool->persistent)
		return NO_RULE;
	p->nat_unit = egress;
	p->nat_hairpin = true;
	return found;
}

static __always_inline int nat_source(struct packet *p)
{
	if ((p->flags & (P_KNOWN | P_RELATED | P_LOCAL)) || is_translation_decided(p))
		return CONTINUE;
	p->nat_unit = nat_egress_unit(p);
	int found = nat_find_source(p, p->nat_unit);

	if (found < 0 && nat_is_persistent() && p->nat_bindings[1])
		found = nat_find_hairpin(p);
	struct nat_rule *rule = found < 0 ? NULL : nat_rule_at(found);

	if (p->flags & P_REEVALUATE) {
		/* an interface's address is that of the one the session leaves by, bound or not */
		bool bound = nat_is_persistent() && !(rule && rule->kind == NAT_INTERFACE);

		if (!nat_source_is_kept(p, rule) && !(bound && nat_binding_keeps(p, SIDE_SOURCE)))
			return DROP(NAT_CHANGED);
		p->nat_source = rule && rule->kind != NAT_OFF ? rule->id : 0;
		return CONTINUE;
	}
	if (!rule)
		return p->nat64 ? DROP(NAT64_NO_POOL) : CONTINUE;
	return nat_apply_source(p, rule);
}

static __always_inline int stage_nat_source(hook_ctx *ctx, struct packet *p)
{
	int verdict = nat_source(p);

	if (verdict != CONTINUE || !(p->flags & P_NEW))
		return verdict;
	if ((p->flags & P_TRANSLATED) && has_instances()) {
		put_instance((__u64 *)&p->out6 + 4, instance_ahead(p));
		((__u64 *)&p->out4)[1] = ((__u64 *)&p->out6)[4];
	}
	if (p->flags & P_ALLOCATE)
		nat_predict(p);
	else if (p->flags & P_TRANSLATED)
		expect_answers(p);
	else
		expect_key(p->family, p->reply_hash);
	return CONTINUE;
}

#endif
