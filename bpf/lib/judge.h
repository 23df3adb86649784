/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What rules judge a session by: classes and service of its forward direction, whichever way this packet travels. */
#ifndef SLUICE_LIB_JUDGE_H
#define SLUICE_LIB_JUDGE_H

#include "flow_table.h"
#include "lib/classifier.h"
#include "nat64/mapping.h"

/* `when` tells which destination port: AS_SENT or AS_TRANSLATED. */
static __always_inline void service_of(const struct packet *p, __u32 when, struct service *service)
{
	service->sport = bpf_ntohs(be_port_in(p, port_place(p, AS_SENT, SIDE_SOURCE)));
	service->dport = bpf_ntohs(be_port_in(p, port_place(p, when, SIDE_DESTINATION)));
	service->proto = p->proto;
	service->icmp_type = p->icmp_type;
	service->icmp_code = p->icmp_code;
	if (!(p->flags & P_RESPONDER))
		return;
	/* the session was opened by a client of the other family */
	if (p->nat64 && p->proto == IPPROTO_ICMP) {
		service->proto = IPPROTO_ICMPV6;
		service->icmp_type = ICMP6_ECHO;
		return;
	}
	/* the session was opened by the request this answers */
	if (p->proto == IPPROTO_ICMP)
		service->icmp_type = ICMP4_ECHO;
	else if (p->proto == IPPROTO_ICMPV6)
		service->icmp_type = ICMP6_ECHO;
}

static __always_inline __s64 class_of_address(const struct packet *p, __u32 place, __u32 side)
{
	const __u32 *address = address_in(p, place);

	if (p->family == 4)
		return address_class(CLASS_TREE_SOURCE4 + 4 * side, bpf_ntohl(address[0]), 0);
	if (p->nat64 && nat64_is_mapped(address))
		return address_class(CLASS_TREE_SOURCE4 + 4 * side, bpf_ntohl(address[3]), 0);
	return address_class(CLASS_TREE_SOURCE6 + 4 * side, (__u64)bpf_ntohl(address[0]) << 32 | bpf_ntohl(address[1]),
			     (__u64)bpf_ntohl(address[2]) << 32 | bpf_ntohl(address[3]));
}

_Static_assert(CLASS_TREE_DESTINATION4 == CLASS_TREE_SOURCE4 + 4 && CLASS_TREE_DESTINATION6 == CLASS_TREE_SOURCE6 + 4,
	       "trees of destinations follow those of sources");

/*
 * Finds the classes that are not known yet: of the original source, and of the destination before or after translation.
 * Who translates a destination takes back what it changes. False if the tables are broken.
 */
__noinline int classify(struct packet *p, __u32 when)
{
	__s64 class;

	if (!p)
		return false;
	if (!(p->classed & CLASSED_SOURCE)) {
		class = class_of_address(p, address_place(p, AS_SENT, SIDE_SOURCE), SIDE_SOURCE);
		if (class < 0)
			return false;
		p->class_source = class;
	}
	if (!(p->classed & CLASSED_DESTINATION)) {
		class = class_of_address(p, address_place(p, when, SIDE_DESTINATION), SIDE_DESTINATION);
		if (class < 0)
			return false;
		p->class_destination = class;
		p->class_family = p->family == 4 ? 0 : p->nat64 && when == AS_TRANSLATED ? CLASSES_NAT64 : 1;
	}
	if (!(p->classed & CLASSED_SERVICE)) {
		struct service service = {};

		service_of(p, when, &service);
		class = service_class(&service);
		if (class < 0)
			return false;
		p->class_service = class;
	}
	p->classed = CLASSED_ALL;
	return true;
}

static __always_inline struct classes classes_of(const struct packet *p)
{
	struct classes classes = {
		.source = p->class_source,
		.destination = p->class_destination,
		.service = p->class_service,
		.family = p->class_family,
	};

	return classes;
}

/* It was decided in this epoch: that stands for both directions, unless a route has left its zone. */
static __always_inline bool is_decided(struct packet *p)
{
	if (!(p->flags & P_REEVALUATE))
		return false;
	struct flow_shared *shared = flow_shared_at(p->family, p->line);

	if (!shared || shared->epoch != ACTIVE_EPOCH(p->active) || shared->generation != generation.number)
		return false;
	if (!(p->flags & P_RESPONDER) && (shared->to_zone != p->to_zone || shared->from_zone != p->from_zone))
		return false;
	p->rule_policy = shared->policy;
	p->timeout_s = shared->timeout_s;
	p->rule_flags = shared->rule_flags;
	return true;
}

/*
 * And since routes or addresses changed last, its translation was looked at again as the other direction went by: that
 * may change without a commit, by the interface that the session leaves through and by its address.
 */
static __always_inline bool is_translation_decided(struct packet *p)
{
	struct flow_state *peer = flow_state_at(p->family, p->line ^ 1);

	return is_decided(p) && peer && peer->stamp == ACTIVE_STAMP(p->active);
}

#endif
