/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The gate: what comes from a zone that demands grants passes to no service without one. Only first packets are asked
 * here; a session remembers its grant, and every packet of it reads that (gate/grant.h).
 *
 * What a service sends into such a zone without being asked is an answer without a question, and needs the grant of
 * whom it is for: else a service that goes on talking would open the way back for whom the gate has just shut out.
 */
#ifndef SLUICE_STAGE_GATE_H
#define SLUICE_STAGE_GATE_H

#include "gate/grant.h"
#include "lib/host_inbound.h"
#include "lib/judge.h"
#include "stage/policy.h"

static __always_inline __u32 service_of_classes(const struct classes *classes)
{
	__s64 found = match_context(generation.gate_context, classes);

	if (found < 0)
		return 0;
	__u32 index = found;
	struct rule *rule = rules_at(index);

	return rule ? rule->policy : 0;
}

/*
 * Id of the first service that has the address and port somebody asks for, 0 = none. With `answers` the opener is the
 * service itself, and its own address and port are looked for.
 */
__noinline __u32 gate_service(struct packet *p, __u32 answers)
{
	if (!p)
		return 0;
	if (!answers) {
		if (!classify(p, AS_TRANSLATED))
			return 0;
		struct classes classes = classes_of(p);

		return service_of_classes(&classes);
	}
	struct service service = {};

	service_of(p, AS_TRANSLATED, &service);
	__u16 port = service.sport;

	service.sport = service.dport;
	service.dport = port;
	__s64 destination = class_of_address(p, address_place(p, AS_SENT, SIDE_SOURCE), SIDE_DESTINATION);
	__s64 ports = service_class(&service);

	if (destination < 0 || ports < 0)
		return 0;
	/* services speak of no source: class 0 is as good as any */
	struct classes classes = {.destination = destination, .service = ports, .family = p->family != 4};

	return service_of_classes(&classes);
}

/* Where the address of the one who needs the grant stands: the opener's own, or whom a service talks to. */
static __always_inline __u32 client_place(const struct packet *p, __u32 answers)
{
	return answers ? address_place(p, AS_TRANSLATED, SIDE_DESTINATION) : address_place(p, AS_SENT, SIDE_SOURCE);
}

/* Words of an address without its host bits. */
static __always_inline __u32 masked_word(__u32 be_word, __s32 bits)
{
	if (bits >= 32)
		return be_word;
	return bits <= 0 ? 0 : be_word & bpf_htonl(~(0xffffffffu >> bits));
}

static __always_inline bool is_ungranted_at(const struct packet *p, __u32 place)
{
	const __u32 *be_client = address_in(p, place);
	__u64 left = be_client[0], right = 0;

	if (p->family != 4) {
		left |= (__u64)be_client[1] << 32;
		right = be_client[2] | (__u64)be_client[3] << 32;
	}
	return is_ungranted(p->family, left, right);
}

static __always_inline __u32 find_handle(const struct packet *p, __u32 place, __u32 service, __u32 length)
{
	const __u32 *be_client = address_in(p, place);
	struct grant_query query = {.what = GRANT_WHAT(service, p->family, length)};

	query.left = masked_word(be_client[0], length);
	if (p->family != 4) {
		query.left |= (__u64)masked_word(be_client[1], (__s32)length - 32) << 32;
		query.right = masked_word(be_client[2], (__s32)length - 64) |
			      (__u64)masked_word(be_client[3], (__s32)length - 96) << 32;
	}
	return grant_look(&query, grant_hash(&query));
}

/* Finds the grant with the longest prefix that holds: 0, or the reason why there is none. */
__noinline __u32 find_grant(struct packet *p, __u32 answers, __u32 service)
{
	__u32 zero = 0, i, refusal = REASON_GATE_NO_GRANT;
	struct grant_lengths *in_use = bpf_map_lookup_elem(&grant_lengths, &zero);
	__u64 now = bpf_jiffies64();

	if (!p || !in_use)
		return refusal;
	__u64 lengths = p->family == 4 ? *(volatile __u64 *)&in_use->lengths4 : *(volatile __u64 *)&in_use->lengths6;
	__u32 length = p->family == 4 ? 32 : 128, place = client_place(p, answers);

	bpf_for (i, 0, GRANT_LENGTHS + 1) {
		__u32 handle = find_handle(p, place, service, length);
		struct grant *grant = handle ? grant_at(handle) : NULL;

		if (grant) {
			__u32 why = grant_refusal(grant, handle, now);

			if (!why) {
				if (!answers)
					grant_used(grant, now);
				p->grant = handle;
				p->grant_use = answers ? 2 : 1;
				return 0;
			}
			refusal = why;
		}
		__u32 next = i < GRANT_LENGTHS ? lengths >> (8 * (i & 7)) & 0xff : 0;

		if (!next)
			break;
		length = next - 1;
	}
	return refusal;
}

/* A first packet; `answers`: of a service, into the zone that demands grants. */
__noinline int gate_first(struct packet *p, __u32 answers)
{
	if (!p)
		return DROP(GATE_NO_GRANT);
	/* hosts without any grant hear the same of the fast path, whatever they ask for */
	if (!answers && !prefixes_granted(p->family) && is_ungranted_at(p, client_place(p, 0)))
		return gate_refuse(p, REASON_GATE_NO_GRANT, 0);
	__u32 service = gate_service(p, answers);

	if (!service)
		return answers ? CONTINUE : gate_refuse(p, REASON_GATE_NO_SERVICE, 0);
	__u32 refusal = find_grant(p, answers, service);

	return refusal ? gate_refuse(p, refusal, service) : CONTINUE;
}

/*
 * A datagram for a fan-out listener whose zone demands grants. It makes no session that could remember its grant, so
 * each one is asked for; its service is the one that has the listener's address and port.
 */
__noinline int gate_datagram(struct packet *p)
{
	if (!p)
		return DROP(GATE_NO_GRANT);
	int verdict = gate_first(p, 0);

	p->grant = 0;
	p->grant_use = 0;
	return verdict;
}

/*
 * A live session that is re-evaluated: it must have a grant, and one for what its service is called by now. That the
 * grant holds was seen when the session was found. A session from before its zone demanded grants has none.
 */
static __always_inline int gate_again(struct packet *p, __u32 answers)
{
	if (!p)
		return DROP(GATE_NO_GRANT);
	struct flow_state *own = flow_state_at(p->family, p->line);
	__u32 service = gate_service(p, answers);

	if (!own)
		return DROP(GATE_NO_GRANT);
	if (!service && answers)
		return CONTINUE;
	struct grant *grant = grant_at((__u32)grant_of(p->family, p->line));

	if (service && grant && (own->marks & MARK_EXTENDED) && grant->service == service)
		return CONTINUE;
	end_granted(p, p->flags & P_LATER ? p->line_tag : p->tag);
	return gate_refuse(p, service ? REASON_GATE_NO_GRANT : REASON_GATE_NO_SERVICE, service);
}

/*
 * A client asks the server that it has its lease of without a broadcast (RFC 2131 4.4.5, RFC 8415 18.2); that
 * host-inbound-traffic lets it in has been seen. What is translated may be for another port.
 */
static __always_inline bool is_lease_request(const struct packet *p)
{
	return (p->flags & P_LOCAL) && !(p->flags & P_TRANSLATED) && is_dhcp_request(p);
}

static __always_inline int stage_gate(hook_ctx *ctx, struct packet *p)
{
	if ((p->flags & (P_KNOWN | P_RELATED)) || is_decided(p))
		return CONTINUE;
	__u32 pair = pair_of(p);
	bool asks = demands_grants(pair / MAX_ZONES), answers = demands_grants(pair % MAX_ZONES);

	if ((!asks && !answers) || is_lease_request(p))
		return CONTINUE;
	return p->flags & P_REEVALUATE ? gate_again(p, !asks) : gate_first(p, !asks);
}

/*
 * What goes to the host without a session. From a zone that demands grants only what hosts need to have an address and
 * neighbours: DHCP (RFC 2131 4.1, RFC 8415 7.2), IGMP, MLD and neighbour discovery.
 */
__noinline int gate_group(struct packet *p)
{
	if (!p)
		return DROP(GATE_GROUP);
	if (!p->family || (p->flags & (P_KNOWN | P_RELATED)) || !demands_grants(p->from_zone))
		return VERDICT_LOCAL;
	return is_heard_always(p) || is_dhcp_request(p) ? VERDICT_LOCAL : gate_refuse(p, REASON_GATE_GROUP, 0);
}

#endif
