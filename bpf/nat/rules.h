/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What NAT rules make of addresses; layouts and order are in abi/nat.h. */
#ifndef SLUICE_NAT_RULES_H
#define SLUICE_NAT_RULES_H

#include "lib/checksum.h"
#include "lib/judge.h"
#include "nat64/mapping.h"

#define NO_RULE 0xffffffff
#define MAX_NAT_ADDRESSES_TRIED 16 /* of a pool, by one packet that finds their ports taken */

static __always_inline struct nat_rule *nat_rule_at(__u32 index)
{
	return nat_rules_at(index);
}

static __always_inline struct nat_pool *nat_pool_at(__u32 index)
{
	return nat_pools_at(index);
}

static __always_inline struct nat_rule_counters *nat_rule_count(__u32 id)
{
	return bpf_map_lookup_elem(&nat_rule_counters, &id);
}

static __always_inline void nat_count_hit(__u32 id)
{
	struct nat_rule_counters *count = nat_rule_count(id);

	if (count)
		count->hits++;
}

static __always_inline void nat_count_failure(__u32 id)
{
	struct nat_rule_counters *count = nat_rule_count(id);

	if (count && id)
		count->failed++;
}

static __always_inline void nat_count_session(const struct packet *p)
{
	__u32 ids[] = {p->nat_destination, p->nat_source};

	for (int i = 0; i < 2; i++) {
		struct nat_rule_counters *count = ids[i] ? nat_rule_count(ids[i]) : NULL;

		if (count)
			count->sessions++;
	}
}

/* The rule of a context that matches the classes found so far, or NO_RULE. */
__noinline int nat_match(const struct packet *p, __u32 context)
{
	if (!p || !context)
		return NO_RULE;
	struct classes classes = classes_of(p);

	return match_context(context, &classes);
}

/* One's complement sum of the address in `words`, folded. */
static __always_inline __u32 address_sum(const __u32 *words)
{
	__u64 sum = (__u64)words[0] + words[1] + words[2] + words[3];

	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	return csum_fold_only(sum);
}

/*
 * RFC 6296 3.4 to 3.6: the difference that the new prefix makes to sums is taken back in the 16 bits behind a prefix of
 * at most 48 bits, or in the first of the interface identifier's words that is not all ones. False where there is none:
 * such an address cannot be translated.
 */
static __always_inline bool nptv6_balance(struct packet *p, const __u32 *from, __u32 length)
{
	__u32 difference = address_sum(from) + (__u16)~address_sum(p->nat_address);

	for (__u32 word = 3; word < 8; word++) {
		__u32 shift = word & 1 ? 16 : 0; /* of its bytes, in a word in network order */
		__u32 *holder = &p->nat_address[word / 2];
		__u16 old = *holder >> shift;

		if (word == 3 && length > 48)
			continue;
		if (old == 0xffff) {
			if (length <= 48)
				return false;
			continue;
		}
		__u32 new = csum_fold_only((__u32)old + csum_fold_only(difference));

		new = new == 0xffff ? 0 : new;
		*holder = (*holder & ~(0xffffu << shift)) | new << shift;
		return true;
	}
	return false;
}

/* The address at `place` with another prefix, to `nat_address`. */
__noinline int nat_change_prefix(struct packet *p, const struct nat_rule *rule, __u32 place)
{
	if (!p || !rule)
		return false;
	const __u32 *from = address_in(p, place);
	__u32 length = rule->target_len;

	for (__u32 i = 0; i < 4; i++) {
		__u32 bits = length > 32 * i ? length - 32 * i : 0;
		__u32 keep = bits >= 32 ? 0xffffffff : ~(0xffffffffu >> bits);

		keep = bpf_htonl(keep);
		p->nat_address[i] = p->family == 4 && i ? 0 : (rule->be_target[i] & keep) | (from[i] & ~keep);
	}
	return rule->kind != NAT_NPTV6 || nptv6_balance(p, from, length);
}

/* The IPv4 address behind a NAT64 prefix, to `nat_address`; false if it must not be translated. */
__noinline int nat64_destination(struct packet *p, const struct nat_rule *rule)
{
	if (!p || !rule || p->family != 6)
		return false;
	const __u32 *address = address_in(p, address_place(p, AS_SENT, SIDE_DESTINATION));
	__u32 be_seen[4];

	for (int i = 0; i < 4; i++)
		be_seen[i] = address[i];
	__u32 be_addr4 = nat64_extract(be_seen, rule->target_len);

	if (nat64_bad_address(be_addr4, rule->be_match, rule->target_len))
		return false;
	nat64_map(be_addr4, p->nat_address);
	p->nat64 = rule->target_len;
	return true;
}

/* Which family the source has after translation. */
static __always_inline __u32 nat_source_family(const struct packet *p)
{
	return p->nat64 ? 4 : p->family;
}

/* `nat_address` holds an IPv4 address, also where the session is one of the IPv6 table. */
static __always_inline void nat_found4(struct packet *p, __u32 be_addr4)
{
	if (p->family == 4)
		p->nat_address[0] = be_addr4;
	else
		nat64_map(be_addr4, p->nat_address);
}

/* Address `number` of a pool, to `nat_address`. */
__noinline int nat_pool_address(struct packet *p, __u32 index, __u32 number)
{
	struct nat_pool *pool = nat_pool_at(index);
	__u32 i;

	if (!p || !pool || (pool->family && pool->family != nat_source_family(p)))
		return false;
	bpf_for (i, 0, MAX_NAT_POOL_RANGES) {
		__u32 at = pool->first_range + i;
		struct nat_range *range = nat_ranges_at(at);

		if (!range || i >= pool->ranges)
			break;
		__u32 offset = number - range->first;

		if (number < range->first || offset >= range->count)
			continue;
		if (nat_source_family(p) == 4) {
			nat_found4(p, bpf_htonl(bpf_ntohl(range->be_low[0]) + offset));
			return true;
		}
		for (int word = 3; word >= 0; word--) {
			__u64 sum = (__u64)bpf_ntohl(range->be_low[word]) + offset;

			p->nat_address[word] = bpf_htonl((__u32)sum);
			offset = sum >> 32;
		}
		return true;
	}
	return false;
}

/* Whether the address at `place` is one of a pool. */
__noinline int nat_pool_has(const struct packet *p, __u32 index, __u32 place)
{
	struct nat_pool *pool = nat_pool_at(index);
	__u32 i;

	if (!p || !pool)
		return false;
	const __u32 *address = address_in(p, place);
	__u32 words = nat_source_family(p) == 4 ? 1 : 4, be_addr4 = address[p->nat64 ? 3 : 0];

	bpf_for (i, 0, MAX_NAT_POOL_RANGES) {
		__u32 at = pool->first_range + i;
		struct nat_range *range = nat_ranges_at(at);

		if (!range || i >= pool->ranges)
			break;
		if (words == 1) {
			if (bpf_ntohl(be_addr4) - bpf_ntohl(range->be_low[0]) < range->count)
				return true;
			continue;
		}
		/* 128 bits: a difference below 2^32 has no upper part */
		__u64 low = (__u64)bpf_ntohl(range->be_low[2]) << 32 | bpf_ntohl(range->be_low[3]);
		__u64 high = (__u64)bpf_ntohl(range->be_low[0]) << 32 | bpf_ntohl(range->be_low[1]);
		__u64 own_low = (__u64)bpf_ntohl(address[2]) << 32 | bpf_ntohl(address[3]);
		__u64 own_high = (__u64)bpf_ntohl(address[0]) << 32 | bpf_ntohl(address[1]);

		if (own_high - high - (own_low < low) == 0 && own_low - low < range->count)
			return true;
	}
	return false;
}

/* The address of the unit that a session leaves by, to `nat_address`; false if it has none of the family. */
__noinline int nat_interface_address(struct packet *p)
{
	if (!p)
		return false;
	/* the address that the source was to leave with is the one that it asks */
	if (p->nat_hairpin) {
		const __u32 *asked = address_in(p, address_place(p, AS_SENT, SIDE_DESTINATION));

		for (int i = 0; i < 4; i++)
			p->nat_address[i] = p->family == 4 && i ? 0 : asked[i];
		return true;
	}

	/* an answer arrives where its session left */
	struct unit *unit = p->flags & P_RESPONDER ? unit_at(p->unit_slot)
			    : p->flags & P_ROUTED  ? unit_at(p->route.unit_slot)
						   : NULL;

	if (!unit)
		return false;
	if (p->nat64) {
		nat64_map(unit->be_addr4, p->nat_address);
		return unit->be_addr4 != 0;
	}
	p->nat_address[0] = p->family == 4 ? unit->be_addr4 : unit->be_addr6[0];
	for (int i = 1; i < 4; i++)
		p->nat_address[i] = p->family == 4 ? 0 : unit->be_addr6[i];
	return (p->nat_address[0] | p->nat_address[1] | p->nat_address[2] | p->nat_address[3]) != 0;
}

static __always_inline bool nat_address_is(const struct packet *p, __u32 place)
{
	const __u32 *address = address_in(p, place);

	if (p->family == 4)
		return address[0] == p->nat_address[0];
	return !((address[0] ^ p->nat_address[0]) | (address[1] ^ p->nat_address[1]) |
		 (address[2] ^ p->nat_address[2]) | (address[3] ^ p->nat_address[3]));
}

/* A number that depends on the source alone, so that a source has one address of a pool. */
static __always_inline __u32 nat_source_number(const struct packet *p)
{
	const __u32 *address = address_in(p, address_place(p, AS_SENT, SIDE_SOURCE));
	__u32 x = address[0];

	if (p->family != 4)
		x ^= address[1] * 0x9e3779b1u ^ address[2] * 0x85ebca6bu ^ address[3] * 0xc2b2ae35u;
	return ((__u64)(x * 0x9e3779b1u) * 0xd6e8feb86659fd93ull) >> 32;
}

/*
 * Whose port a pool may change. The checksum of SCTP covers its ports and everything else (RFC 9260 6.8), so it is
 * translated by address only, as are DCCP and UDP-Lite.
 */
static __always_inline bool nat_has_ports(const struct packet *p)
{
	return p->proto == IPPROTO_TCP || p->proto == IPPROTO_UDP || p->proto == IPPROTO_ICMP ||
	       p->proto == IPPROTO_ICMPV6;
}

/* A port of TCP and UDP after a rule. */
static __always_inline __u16 nat_be_port(const struct nat_rule *rule, const struct packet *p, __u16 be_port)
{
	if (!(rule->flags & NAT_RULE_PORT) || (p->proto != IPPROTO_TCP && p->proto != IPPROTO_UDP))
		return be_port;
	__u16 offset = rule->flags & NAT_RULE_PORT_RANGE ? bpf_ntohs(be_port) - rule->port_low : 0;

	return bpf_htons(rule->new_port + offset);
}

/*
 * The tuple leaves as it came, until something is changed in it. All of it is written in the words it is read in, see
 * key_last_word(): a read that has to wait for smaller stores waits for every store before them too.
 */
static __always_inline void nat_begin(struct packet *p)
{
	if (p->flags & P_TRANSLATED)
		return;
	for (int i = 0; i < 2; i++)
		((__u64 *)&p->out4)[i] = ((__u64 *)&p->key4)[i];
	for (int i = 0; i < 5; i++)
		((__u64 *)&p->out6)[i] = ((__u64 *)&p->key6)[i];
	p->flags |= P_TRANSLATED;
}

static __always_inline void nat_set_port(struct packet *p, __u32 side, __u16 be_port)
{
	__u32 shift = side == SIDE_SOURCE ? 0 : 16;
	__u64 word = ((__u64 *)&p->out6)[4];

	word = (word & ~(0xffffull << shift)) | (__u64)be_port << shift;
	((__u64 *)&p->out4)[1] = ((__u64 *)&p->out6)[4] = word;
}

/* Of a first packet: the address in `nat_address` and a port become those of a side. */
static __always_inline void nat_set(struct packet *p, __u32 side, __u16 be_port)
{
	nat_begin(p);
	if (p->family == 4) {
		__u32 shift = side == SIDE_SOURCE ? 0 : 32;
		__u64 word = *(__u64 *)&p->out4;

		*(__u64 *)&p->out4 = (word & ~(0xffffffffull << shift)) | (__u64)p->nat_address[0] << shift;
	} else {
		__u64 *words = (__u64 *)&p->out6 + (side == SIDE_SOURCE ? 0 : 2);

		words[0] = p->nat_address[0] | (__u64)p->nat_address[1] << 32;
		words[1] = p->nat_address[2] | (__u64)p->nat_address[3] << 32;
	}
	nat_set_port(p, side, be_port);
}

/* Index of the unit that the session's first packet arrived on. */
static __always_inline __u32 nat_ingress_unit(const struct packet *p)
{
	if (!(p->flags & P_REEVALUATE))
		return p->unit_index;
	struct flow_shared *shared = flow_shared_at(p->family, p->line);

	return shared ? shared->ingress_unit : 0;
}

/* The bucket of the key that answers to `out*` have comes meanwhile. */
static __always_inline void expect_answers(struct packet *p)
{
	if (p->family == 4)
		expect_key(4, flow_hash_reply4(config.seed, &p->out4));
	else
		expect_key(6, flow_hash_reply6(config.seed, &p->out6));
}

#endif
