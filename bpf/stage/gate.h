/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The gate: what comes from a zone that demands grants passes to no service without one. Only first packets are asked
 * here; a session remembers its grant, and every packet of it reads that (lib/grant.h).
 *
 * What a service sends into such a zone without being asked is an answer without a question, and needs the grant of
 * whom it is for: else a service that goes on talking would open the way back for whom the gate has just shut out.
 */
#ifndef SLUICE_STAGE_GATE_H
#define SLUICE_STAGE_GATE_H

#include "lib/classifier.h"
#include "lib/grant.h"
#include "stage/policy.h"

#define ICMP6_MLD_FIRST 130
#define ICMP6_MLD_LAST 132
#define ICMP6_MLD2_REPORT 143

/* Who uses what, addresses as keys have them. */
struct gate_tuple {
	__u32 be_client[4];
	__u32 be_service[4];
	struct service service;
	__u8 family;
};

static __always_inline bool demands_grants(__u32 zone)
{
	return config.gate_zones >> (zone & 31) & 1;
}

static __always_inline void turn_service(struct service *service)
{
	__u16 port = service->sport;

	service->sport = service->dport;
	service->dport = port;
}

/* Of a packet, as the stages before have left it. */
static __always_inline void tuple_of_packet(const struct packet *p, struct gate_tuple *t, bool turned)
{
	t->family = p->family;
	t->service.proto = p->proto;
	t->service.icmp_type = p->icmp_type;
	t->service.icmp_code = p->icmp_code;
	t->service.sport = bpf_ntohs(p->key6.be_sport);
	t->service.dport = bpf_ntohs(p->key6.be_dport);
	if (p->family == 4) {
		t->be_client[0] = turned ? p->key4.be_daddr : p->key4.be_saddr;
		t->be_service[0] = turned ? p->key4.be_saddr : p->key4.be_daddr;
	} else {
		__builtin_memcpy(t->be_client, turned ? p->key6.be_daddr : p->key6.be_saddr, 16);
		__builtin_memcpy(t->be_service, turned ? p->key6.be_saddr : p->key6.be_daddr, 16);
	}
	if (turned)
		turn_service(&t->service);
}

/* Id of the first service that has this address and port, 0 = none. */
static __noinline __u32 gate_service(const struct gate_tuple *t)
{
	struct classes classes = {};

	if (!t)
		return 0;
	__s64 service = service_class(&t->service);
	__s64 destination;

	if (t->family == 4) {
		destination = address_class(CLASS_TREE_DESTINATION4, bpf_ntohl(t->be_service[0]), 0);
	} else {
		__u64 upper = (__u64)bpf_ntohl(t->be_service[0]) << 32 | bpf_ntohl(t->be_service[1]);
		__u64 lower = (__u64)bpf_ntohl(t->be_service[2]) << 32 | bpf_ntohl(t->be_service[3]);

		destination = address_class(CLASS_TREE_DESTINATION6, upper, lower);
	}
	if (destination < 0 || service < 0)
		return 0;
	/* services speak of no source: class 0 is as good as any */
	classes.destination = destination;
	classes.service = service;
	classes.family = t->family != 4;
	__s64 found = match_context(config.gate_context, &classes);

	if (found < 0)
		return 0;
	__u32 index = found;
	struct rule *rule = bpf_map_lookup_elem(&rules, &index);

	return rule ? rule->policy : 0;
}

/* Words of an address without its host bits. */
static __always_inline __u32 masked_word(__u32 be_word, __s32 bits)
{
	if (bits >= 32)
		return be_word;
	return bits <= 0 ? 0 : be_word & bpf_htonl(~(0xffffffffu >> bits));
}

static __always_inline __u32 find_handle(const struct gate_tuple *t, __u32 service, __u32 length)
{
	__u32 *handle;

	if (t->family == 4) {
		struct grant_key4 key = {.service = service, .length = length};

		key.be_addr = masked_word(t->be_client[0], length);
		handle = bpf_map_lookup_elem(&grants4, &key);
	} else {
		struct grant_key6 key = {.service = service, .length = length};

		for (__s32 i = 0; i < 4; i++)
			key.be_addr[i] = masked_word(t->be_client[i], (__s32)length - 32 * i);
		handle = bpf_map_lookup_elem(&grants6, &key);
	}
	return handle ? *handle : 0;
}

/* The handle of the grant with the longest prefix that holds, or 0 and the reason in `refusal`. */
static __noinline __u32 find_grant(const struct gate_tuple *t, __u32 service, __u32 *refusal)
{
	__u32 zero = 0, i;
	struct grant_lengths *in_use = bpf_map_lookup_elem(&grant_lengths, &zero);
	__u64 now = bpf_jiffies64();

	if (!t || !refusal)
		return 0;
	*refusal = REASON_GATE_NO_GRANT;
	if (!in_use)
		return 0;
	__u64 lengths = t->family == 4 ? *(volatile __u64 *)&in_use->lengths4 : *(volatile __u64 *)&in_use->lengths6;
	__u32 length = t->family == 4 ? 32 : 128;

	bpf_for (i, 0, GRANT_LENGTHS + 1) {
		__u32 handle = find_handle(t, service, length);
		struct grant *grant = handle ? grant_at(handle) : NULL;

		if (grant) {
			__u32 why = grant_refusal(grant, handle, now);

			if (!why) {
				atomic_add(&grant->sessions, 1);
				grant_used(grant, now);
				return handle;
			}
			*refusal = why;
		}
		__u32 next = i < GRANT_LENGTHS ? lengths >> (8 * (i & 7)) & 0xff : 0;

		if (!next)
			break;
		length = next - 1;
	}
	return 0;
}

/* A first packet; `answers`: of a service, into the zone that demands grants. */
static __noinline int gate_first(struct packet *p, __u32 answers)
{
	struct gate_tuple t = {};
	__u32 refusal = 0;

	if (!p)
		return DROP(GATE_NO_GRANT);
	tuple_of_packet(p, &t, answers);
	__u32 service = gate_service(&t);

	if (!service)
		return answers ? CONTINUE : gate_refuse(p, REASON_GATE_NO_SERVICE, 0);
	p->grant = find_grant(&t, service, &refusal);
	p->grant_marks = MARK_GRANTED | (answers ? 0 : MARK_GRANTEE);
	return p->grant ? CONTINUE : gate_refuse(p, refusal, service);
}

/* The tuple of a live session, in the direction it was opened in, its destination after NAT. */
static __always_inline bool tuple_of_session(const struct packet *p, struct gate_tuple *t)
{
	__u32 forward = p->line & ~1u;

	t->family = p->family;
	t->service.proto = p->proto;
	if (p->family == 4) {
		struct flow_line4 *line = bpf_map_lookup_elem(&lines4, &forward);

		if (!line)
			return false;
		bool changed = line->state.marks & MARK_TRANSLATED;

		t->be_client[0] = line->key.be_saddr;
		t->be_service[0] = changed ? line->be_new_daddr : line->key.be_daddr;
		t->service.sport = bpf_ntohs(line->key.be_sport);
		t->service.dport = bpf_ntohs(changed ? line->be_new_dport : line->key.be_dport);
		t->service.icmp_type = ICMP4_ECHO;
		return true;
	}
	struct flow_line6 *line = bpf_map_lookup_elem(&lines6, &forward);

	if (!line)
		return false;
	bool changed = line->state.marks & MARK_TRANSLATED;

	__builtin_memcpy(t->be_client, line->key.be_saddr, 16);
	__builtin_memcpy(t->be_service, changed ? line->be_new_daddr : line->key.be_daddr, 16);
	t->service.sport = bpf_ntohs(line->key.be_sport);
	t->service.dport = bpf_ntohs(changed ? line->be_new_dport : line->key.be_dport);
	t->service.icmp_type = ICMP6_ECHO;
	return true;
}

static __always_inline void turn_tuple(struct gate_tuple *t)
{
	for (__u32 i = 0; i < 4; i++) {
		__u32 word = t->be_client[i];

		t->be_client[i] = t->be_service[i];
		t->be_service[i] = word;
	}
	turn_service(&t->service);
}

/*
 * A live session that is judged again: it must have a grant, and one for what its service is called by now. That the
 * grant holds was seen when the session was found. A session from before its zone demanded grants has none.
 */
static __noinline int gate_again(struct packet *p, __u32 answers)
{
	struct gate_tuple t = {};

	if (!p)
		return DROP(GATE_NO_GRANT);
	struct flow_state *own = flow_state_at(p->family, p->line);

	if (!own || !tuple_of_session(p, &t))
		return DROP(GATE_NO_GRANT);
	if (answers)
		turn_tuple(&t);
	__u32 service = gate_service(&t);

	if (!service && answers)
		return CONTINUE;
	struct grant *grant = grant_at(grant_of(p->family, p->line));

	if (service && grant && (own->marks & MARK_GRANTED) && grant->service == service)
		return CONTINUE;
	end_granted(p, p->flags & P_LATER ? p->line_tag : p->tag);
	return gate_refuse(p, service ? REASON_GATE_NO_GRANT : REASON_GATE_NO_SERVICE, service);
}

static __noinline int stage_gate(hook_ctx *ctx, struct packet *p)
{
	if (!p)
		return DROP(GATE_NO_GRANT);
	if ((p->flags & (P_KNOWN | P_RELATED)) || is_decided(p))
		return CONTINUE;
	__u32 pair = pair_of(p);
	bool asks = demands_grants(pair / MAX_ZONES), answers = demands_grants(pair % MAX_ZONES);

	if (!asks && !answers)
		return CONTINUE;
	return p->flags & P_REJUDGE ? gate_again(p, !asks) : gate_first(p, !asks);
}

/*
 * What goes to the host without a session. From a zone that demands grants only what hosts need to have an address and
 * neighbours: DHCP (RFC 2131 4.1, RFC 8415 7.2), IGMP, MLD and neighbour discovery.
 */
static __noinline int gate_group(struct packet *p)
{
	if (!p)
		return DROP(GATE_GROUP);
	if (!p->family || (p->flags & (P_KNOWN | P_RELATED)) || !demands_grants(p->from_zone))
		return VERDICT_LOCAL;
	__u16 sport = bpf_ntohs(p->key6.be_sport), dport = bpf_ntohs(p->key6.be_dport);
	bool v4 = p->family == 4, admitted = false;

	if (p->flags & P_FRAGMENT)
		admitted = false;
	else if (p->proto == IPPROTO_UDP)
		admitted = v4 ? (sport == 67 && dport == 68) || (sport == 68 && dport == 67)
			      : (sport == 547 && dport == 546) || (sport == 546 && dport == 547);
	else if (v4)
		admitted = p->proto == IPPROTO_IGMP;
	else if (p->proto == IPPROTO_ICMPV6)
		admitted = (p->icmp_type >= ICMP6_MLD_FIRST && p->icmp_type <= ICMP6_ND_LAST) ||
			   p->icmp_type == ICMP6_MLD2_REPORT;
	return admitted ? VERDICT_LOCAL : gate_refuse(p, REASON_GATE_GROUP, 0);
}

#endif
