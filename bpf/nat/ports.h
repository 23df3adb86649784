/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Recording a translated session. The flow index is the table of ports: a port of an address is free toward a
 * destination exactly when the key of the answers is not in the index, so taking it is inserting that key. Two CPUs
 * cannot take the same one, and whatever ends a session frees its port.
 */
#ifndef SLUICE_NAT_PORTS_H
#define SLUICE_NAT_PORTS_H

#include "nat/binding.h"

/* Candidates that one packet may look at, and steps it may take to find them. */
#define NAT_TRIES 4096
#define NAT_STEPS (2 * NAT_TRIES + 64)

/* Answers of the search. */
#define NAT_TAKEN INSERT_CONFLICT

static __always_inline struct nat_pool_counters *nat_pool_count(__u32 id)
{
	return bpf_map_lookup_elem(&nat_pool_counters, &id);
}

/* A socket of this host has the port, with this peer or with all (RFC 4787 does not know of such; nobody else may). */
__noinline int nat_port_of_host(hook_ctx *ctx, struct packet *p)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *sock;
	__u32 size = sizeof(tuple.ipv4);

	if (!p)
		return true;
	if (nat_source_family(p) == 4) {
		tuple.ipv4.saddr = p->nat64 ? p->out6.be_daddr[3] : p->out4.be_daddr;
		tuple.ipv4.daddr = p->nat64 ? p->out6.be_saddr[3] : p->out4.be_saddr;
		tuple.ipv4.sport = p->out4.be_dport;
		tuple.ipv4.dport = p->out4.be_sport;
	} else {
		for (int i = 0; i < 4; i++) {
			tuple.ipv6.saddr[i] = p->out6.be_daddr[i];
			tuple.ipv6.daddr[i] = p->out6.be_saddr[i];
		}
		tuple.ipv6.sport = p->out6.be_dport;
		tuple.ipv6.dport = p->out6.be_sport;
		size = sizeof(tuple.ipv6);
	}
	if (p->proto == IPPROTO_TCP)
		sock = bpf_skc_lookup_tcp(ctx, &tuple, size, BPF_F_CURRENT_NETNS, 0);
	else if (p->proto == IPPROTO_UDP)
		sock = bpf_sk_lookup_udp(ctx, &tuple, size, BPF_F_CURRENT_NETNS, 0);
	else
		return false; /* echo identifiers of this host stand in the index, as all its flows do */
	if (!sock)
		return false;
	bpf_sk_release(sock);
	return true;
}

static __always_inline void note_growth4(const struct packet *p, struct flow_line4 *line0, struct flow_line4 *line1)
{
	/* a line of IPv4 is full, and has little to add up */
}

/*
 * What translation adds to sums, so that replay need not look at eight words. IPv4-mapped addresses add 0xffff to what
 * the IPv4 address alone does, which is nothing. Answers take back what the other direction adds.
 */
static __always_inline void note_growth6(const struct packet *p, struct flow_line6 *line0, struct flow_line6 *line1)
{
	__u64 sum = 0;

	for (int i = 0; i < 4; i++)
		sum += (__u64)(__u32)~p->key6.be_saddr[i] + p->out6.be_saddr[i] + (__u32)~p->key6.be_daddr[i] +
		       p->out6.be_daddr[i];
	__u16 addresses = csum_fold_sum(sum);
	__u32 be_before = *(const __u32 *)&p->key6.be_sport, be_after = *(const __u32 *)&p->out6.be_sport;
	__u16 all = csum_fold_sum((__u64)addresses + (__u32)~be_before + be_after);

	line0->address_growth = addresses;
	line0->growth = all;
	line1->address_growth = ~addresses;
	line1->growth = ~all;
}

/*
 * Fills both lines with the translation, then inserts the answers' key, then the packet's. Nobody else owns the session
 * before the second, so nobody can have ended it; who did so in between finds its key only here.
 */
#define DEFINE_NAT_RECORD(FAMILY, COPY)                                                                                \
	__noinline int nat_record##FAMILY(struct packet *p, __u32 session)                                             \
	{                                                                                                              \
		__u32 forward = 2 * session, back = forward + 1;                                                       \
		struct flow_line##FAMILY *line0 = bpf_map_lookup_elem(&lines##FAMILY, &forward);                       \
		struct flow_line##FAMILY *line1 = bpf_map_lookup_elem(&lines##FAMILY, &back);                          \
                                                                                                                       \
		if (!p || !line0 || !line1)                                                                            \
			return INSERT_FULL;                                                                            \
		flow_reverse##FAMILY(&p->out##FAMILY, &line1->key);                                                    \
		COPY(line0->be_new_saddr, p->out##FAMILY.be_saddr);                                                    \
		COPY(line0->be_new_daddr, p->out##FAMILY.be_daddr);                                                    \
		COPY(line1->be_new_saddr, p->key##FAMILY.be_daddr);                                                    \
		COPY(line1->be_new_daddr, p->key##FAMILY.be_saddr);                                                    \
		*(__u32 *)&line0->be_new_sport = *(const __u32 *)&p->out##FAMILY.be_sport;                             \
		*(__u32 *)&line1->be_new_sport = reverse_last_word(*(const __u32 *)&p->key##FAMILY.be_sport);          \
		note_growth##FAMILY(p, line0, line1);                                                                  \
		barrier();                                                                                             \
		int result = index_insert##FAMILY(&line1->key, flow_hash##FAMILY(config.seed, &line1->key), back);     \
                                                                                                                       \
		if (result != INDEX_DONE)                                                                              \
			return insert_result(result, NAT_TAKEN);                                                       \
		result = index_insert##FAMILY(&p->key##FAMILY, p->hash, forward);                                      \
		if (result == INDEX_DONE && flow_has_tag(&line1->state, p->tag))                                       \
			return INSERTED;                                                                               \
		if (result == INDEX_DONE)                                                                              \
			return index_remove##FAMILY(&p->key##FAMILY, forward, p->tag) ? INSERT_BUSY : INSERT_STUCK;    \
		if (!index_remove##FAMILY(&line1->key, back, p->tag))                                                  \
			return INSERT_STUCK;                                                                           \
		return insert_result(result, INSERT_TWIN);                                                             \
	}

#define COPY_ADDRESS4(to, from) (to) = (from)
#define COPY_ADDRESS6(to, from) __builtin_memcpy(to, from, 16)
DEFINE_NAT_RECORD(4, COPY_ADDRESS4)
DEFINE_NAT_RECORD(6, COPY_ADDRESS6)

static __always_inline int nat_record(struct packet *p, __u32 session)
{
	return p->family == 4 ? nat_record4(p, session) : nat_record6(p, session);
}

/*
 * Answers to IPv4 addresses of ours have their keys in one index if the session is of one family, in the other if it is
 * of two. Who takes a port looks into the other one first; two CPUs that take the same at once are seen by the fast
 * line as one session of IPv4, and the other's answers do not come.
 */
__noinline int nat64_other_index_has(const struct packet *p)
{
	__u64 words[5];
	__u32 line;

	if (!p)
		return true;
	const __u64 *out = p->nat64 ? (const __u64 *)&p->out6 : (const __u64 *)&p->out4;

	if (p->nat64) {
		words[0] = (__u32)(out[3] >> 32) | (out[1] >> 32) << 32;
		words[1] = reverse_last_word(out[4]);
		return !!flow_find4((void *)words, flow_hash4(config.seed, (void *)words), &line, FLOW_BUCKET_SLOTS);
	}
	if (p->family != 4)
		return false;
	words[0] = words[2] = 0;
	words[1] = (out[0] & ~0xffffffffull) | bpf_htonl(NAT64_MAPPED_WORD);
	words[3] = out[0] << 32 | bpf_htonl(NAT64_MAPPED_WORD);
	words[4] = reverse_last_word(out[1]);
	return !!flow_find6((void *)words, flow_hash6(config.seed, (void *)words), &line, FLOW_BUCKET_SLOTS);
}

/* Tries one port. A port of this host's is as good as taken. */
static __always_inline int nat_try(hook_ctx *ctx, struct packet *p, __u32 session, __u32 port, __u32 host)
{
	nat_set_port(p, SIDE_SOURCE, bpf_htons(port));
	/* who asks for an echo has the identifier, and the other side's place in the key stays what it is */
	if (host && nat_port_of_host(ctx, p))
		return NAT_TAKEN;
	if ((config.stage_mask & STAGE_BIT(NAT64)) && nat64_other_index_has(p))
		return NAT_TAKEN;
	if (!nat_is_persistent())
		return nat_record(p, session);
	int result = nat_binding_claim(p);

	if (result != INSERTED)
		return result;
	result = nat_record(p, session);
	if (result != INSERTED && p->nat_bindings[0])
		nat_binding_end(p->nat_bindings[0]);
	return result;
}

/*
 * Number `position` of a pool's ports. In random order every position of a power of two is mapped to another one by
 * steps that can be undone, so none is left out or comes twice; what lies beyond the range is passed over. The order
 * differs by destination and CPU, and who does not know the seed cannot tell the next one (RFC 6056 3.3.3).
 */
static __always_inline __u32 nat_candidate(__u32 position, __u32 count, __u32 tag, bool random)
{
	if (!random)
		return position % count;
	__u32 mask = count - 1;

	mask |= mask >> 1;
	mask |= mask >> 2;
	mask |= mask >> 4;
	mask |= mask >> 8;
	__u32 shift = mask > 0xff ? 7 : mask > 0xf ? 3 : 1;
	__u32 x = (position * 0x9e3779b1u + tag) & mask;

	x ^= x >> shift;
	x = (x * 0x85ebca6bu + (tag >> 16)) & mask;
	x ^= x >> shift;
	return x;
}

/* The address for `out*`: number `number` of a pool. */
static __always_inline bool nat_take_address(struct packet *p, __u32 index, const struct nat_pool *pool, __u32 number)
{
	if (!(pool->flags & NAT_POOL_INTERFACE) ? !nat_pool_address(p, index, number) : !nat_interface_address(p))
		return false;
	nat_set(p, SIDE_SOURCE, p->key6.be_sport);
	return true;
}

/* Behind the last address of any pool. */
#define NAT_NO_NUMBER 0xffffffffu

/* How far the source is from `host-address-base`, in 128 bits where it is of IPv6. */
static __always_inline __u32 nat_shifted_number(const struct packet *p, const struct nat_pool *pool)
{
	const __u32 *source = address_in(p, address_place(p, AS_SENT, SIDE_SOURCE)), *base = pool->be_base;

	if (p->family == 4)
		return bpf_ntohl(source[0]) - bpf_ntohl(base[0]);
	/* a base of IPv4 is no IPv6 source's */
	if (pool->family != 6)
		return NAT_NO_NUMBER;
	__u64 high = (__u64)bpf_ntohl(source[0]) << 32 | bpf_ntohl(source[1]);
	__u64 low = (__u64)bpf_ntohl(source[2]) << 32 | bpf_ntohl(source[3]);
	__u64 base_high = (__u64)bpf_ntohl(base[0]) << 32 | bpf_ntohl(base[1]);
	__u64 base_low = (__u64)bpf_ntohl(base[2]) << 32 | bpf_ntohl(base[3]);

	return high - base_high - (low < base_low) || (low - base_low) >> 32 ? NAT_NO_NUMBER : low - base_low;
}

/* Number of the address that serves this packet first. */
static __always_inline __u32 nat_first_address(const struct packet *p, const struct nat_pool *pool)
{
	if (pool->flags & NAT_POOL_SHIFT)
		return nat_shifted_number(p, pool);
	__u32 number = nat_source_number(p);

	if (!(pool->flags & NAT_POOL_PERSISTENT))
		number ^= p->hash >> 17;
	return pool->addresses ? number % pool->addresses : 0;
}

/* Where this CPU's search for ports of an address, toward a destination, goes on. */
struct nat_place {
	struct nat_cursor *cursor;
	__u32 tag; /* of the cursor that is meant; it may be another's */
	__u32 start;
	__u32 salt;
	__u32 count; /* ports of the pool */
};

static __always_inline bool nat_find_place(struct packet *p, const struct nat_pool *pool, struct nat_place *place)
{
	nat_set_port(p, SIDE_SOURCE, 0);
	__u64 hash = p->family == 4 ? flow_hash4(config.seed, &p->out4) : flow_hash6(config.seed, &p->out6);
	__u32 cpu = bpf_get_smp_processor_id();
	__u32 index = (hash >> 32) % NAT_CURSORS + cpu % NAT_CURSOR_CPUS * NAT_CURSORS;

	place->cursor = bpf_map_lookup_elem(&nat_cursors, &index);
	place->tag = (__u32)hash | 1;
	place->start = cpu * 4099;
	place->salt = place->tag + cpu * 0x27d4eb2fu;
	place->count = pool->port_high - pool->port_low + 1u;
	return place->cursor && pool->port_high >= pool->port_low;
}

/*
 * Of a first packet, before its session is recorded: the address it will have, and the bucket of the answers' key with
 * the port that will be tried first, which comes meanwhile.
 */
__noinline int nat_predict(struct packet *p)
{
	struct nat_place place;

	if (!p)
		return 0;
	__u32 index = p->nat_pool;
	struct nat_pool *pool = nat_pool_at(index);

	if (!pool || (pool->flags & (NAT_POOL_SHIFT | NAT_POOL_NO_TRANSLATION | NAT_POOL_PRESERVE)) ||
	    (nat_is_persistent() && pool->persistent) || !nat_has_ports(p))
		return 0;
	if (!nat_take_address(p, index, pool, nat_first_address(p, pool)) || !nat_find_place(p, pool, &place))
		return 0;
	p->nat_predicted = true;
	__u32 number = nat_candidate(place.start + place.cursor->position, place.count, place.salt,
				     pool->flags & NAT_POOL_RANDOM);

	nat_set_port(p, SIDE_SOURCE, bpf_htons(pool->port_low + number));
	expect_answers(p);
	return 0;
}

/* The next candidate. NAT_TAKEN also of one that lies outside of the range. */
static __always_inline int nat_try_next(hook_ctx *ctx, struct packet *p, __u32 session, const struct nat_pool *pool,
					const struct nat_place *place, struct nat_pool_counters *counts)
{
	struct nat_cursor *cursor = place->cursor;
	__u32 number = nat_candidate(place->start + cursor->position++, place->count, place->salt,
				     pool->flags & NAT_POOL_RANDOM);

	if (number >= place->count)
		return NAT_TAKEN;
	p->nat_looked++;
	int result = nat_try(ctx, p, session, pool->port_low + number, pool->flags & NAT_POOL_HOST);

	if (result != NAT_TAKEN) {
		cursor->misses = 0;
		counts->ports += result == INSERTED;
		return result;
	}
	cursor->misses++;
	counts->searched++;
	return NAT_TAKEN;
}

/* The address had no port for anybody a moment ago. */
static __always_inline bool nat_was_full(const struct nat_cursor *cursor, __u32 now)
{
	return now - cursor->full_at < NAT_FULL_MS * config.hz / 1000;
}

/* Ports of the address in `out*`, from where this CPU's last search toward the destination ended. */
__noinline int nat_search(hook_ctx *ctx, struct packet *p, __u32 session, __u32 index)
{
	struct nat_pool *pool = nat_pool_at(index);
	struct nat_place place;
	__u32 step;

	if (!p || !pool || !nat_find_place(p, pool, &place))
		return INSERT_FULL;
	struct nat_cursor *cursor = place.cursor;
	struct nat_pool_counters *counts = nat_pool_count(pool->id);

	if (!counts)
		return INSERT_FULL;
	p->nat_looked = 0;
	if (cursor->tag != place.tag) {
		cursor->tag = place.tag;
		cursor->misses = 0;
		cursor->full_at = 0;
	}
	if (pool->flags & NAT_POOL_PRESERVE) {
		__u32 port = bpf_ntohs(p->key6.be_sport);
		int result = NAT_TAKEN;

		if (port >= pool->port_low && port <= pool->port_high)
			result = nat_try(ctx, p, session, port, pool->flags & NAT_POOL_HOST);
		if (result != NAT_TAKEN) {
			counts->ports += result == INSERTED;
			return result;
		}
	}
	if (cursor->misses >= place.count && nat_was_full(cursor, p->now))
		return NAT_TAKEN;
	/* most find one at once; each turn of a loop is a call */
	int result = nat_try_next(ctx, p, session, pool, &place, counts);

	if (result != NAT_TAKEN)
		return result;
	bpf_for (step, 0, NAT_STEPS) {
		if (p->nat_looked >= NAT_TRIES || p->nat_looked >= place.count)
			break;
		result = nat_try_next(ctx, p, session, pool, &place, counts);
		if (result != NAT_TAKEN)
			return result;
	}
	if (cursor->misses >= place.count) {
		if (!cursor->full_at || p->now - cursor->full_at >= config.hz)
			log_exhausted(p, pool->id);
		cursor->full_at = p->now ? p->now : 1;
	}
	return NAT_TAKEN;
}

/* An address and a port of one pool. */
__noinline int nat_take(hook_ctx *ctx, struct packet *p, __u32 session, __u32 index)
{
	struct nat_pool *pool = nat_pool_at(index);
	__u32 attempt;
	int result = INSERT_NO_ADDRESS;

	if (!p || !pool)
		return result;
	bool shifted = pool->flags & NAT_POOL_SHIFT,
	     ports = !(pool->flags & NAT_POOL_NO_TRANSLATION) && nat_has_ports(p);
	__u32 number = nat_first_address(p, pool);
	bool fixed = shifted || (pool->flags & NAT_POOL_PERSISTENT);

	bool predicted = p->nat_predicted;

	p->nat_predicted = false;
	if (!predicted && !nat_take_address(p, index, pool, number))
		return INSERT_NO_ADDRESS;
	result = ports ? nat_search(ctx, p, session, index) : nat_record(p, session);
	if (result != NAT_TAKEN || fixed || pool->addresses < 2)
		return result;
	bpf_for (attempt, 1, MAX_NAT_ADDRESSES_TRIED) {
		if (attempt >= pool->addresses)
			break;
		number = number + 1 < pool->addresses ? number + 1 : 0;
		if (!nat_take_address(p, index, pool, number))
			return result;
		result = ports ? nat_search(ctx, p, session, index) : nat_record(p, session);
		if (result != NAT_TAKEN)
			return result;
	}
	return result;
}

/* Records a session whose source comes from a pool. */
static __always_inline int nat_allocate(hook_ctx *ctx, struct packet *p, __u32 session)
{
	__u32 index = p->nat_pool;
	struct nat_pool *pool = nat_pool_at(index);

	if (nat_is_persistent() && pool && pool->persistent && nat_has_ports(p)) {
		int recalled = nat_binding_recall(p);

		/* a session of another rule may have the endpoint toward this one destination: INSERT_CONFLICT */
		if (recalled != BINDING_NONE)
			return recalled == BINDING_REFUSED ? INSERT_BOUND : nat_record(p, session);
	}
	int result = nat_take(ctx, p, session, index);

	if (result != NAT_TAKEN || !pool)
		return result;
	struct nat_pool_counters *counts = nat_pool_count(pool->id);

	if (counts)
		counts->exhausted++;
	if (!(pool->flags & NAT_POOL_OVERFLOW))
		return INSERT_EXHAUSTED;
	struct nat_pool *overflow = nat_pool_at(pool->overflow);

	result = nat_take(ctx, p, session, pool->overflow);
	if (result == INSERTED && counts)
		counts->overflow++;
	if (result != NAT_TAKEN)
		return result;
	counts = overflow ? nat_pool_count(overflow->id) : NULL;
	if (counts)
		counts->exhausted++;
	return INSERT_EXHAUSTED;
}

#endif
