/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * persistent-nat: an inside endpoint keeps its outside endpoint whatever it talks to (RFC 4787 REQ-1), and is reached
 * there (REQ-8). Layout and states: abi/nat_binding.h.
 *
 * Whoever makes a binding inserts its outside key first; that insertion decides whose the outside endpoint is. A
 * record gets its contents, then its life, and loses its life before its keys.
 */
#ifndef SLUICE_NAT_BINDING_H
#define SLUICE_NAT_BINDING_H

#include "nat/rules.h"
#include "nat/events.h"

/* Of nat_binding_recall(). */
#define BINDING_NONE 0
#define BINDING_FOUND 1
#define BINDING_REFUSED 2

static __always_inline bool nat_is_persistent(void)
{
	return config.flags & CONFIG_PERSISTENT_NAT;
}

static __always_inline struct nat_binding *nat_binding_number(__u32 number)
{
	return bpf_map_lookup_elem(&nat_bindings, &number);
}

/* The live binding of a handle. */
static __always_inline struct nat_binding *nat_binding_at(__u32 handle)
{
	__u32 number = handle & NAT_BINDING_NUMBER;
	struct nat_binding *binding = number ? nat_binding_number(number) : NULL;

	if (!binding)
		return NULL;
	barrier_var(binding);
	__u32 state = *(volatile __u32 *)&binding->state;

	return state == (NAT_BINDING_LIVE | handle >> NAT_BINDING_TAG_SHIFT) ? binding : NULL;
}

static __always_inline void nat_binding_address(const struct packet *p, const __u32 *address, __u32 *be_addr)
{
	if (p->family == 4) {
		nat64_map(address[0], be_addr);
		return;
	}
	for (int i = 0; i < 4; i++)
		be_addr[i] = address[i];
}

static __always_inline bool same_address(const __u32 *a, const __u32 *b)
{
	return !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]));
}

/* The endpoint of a side of the session's forward direction, before or after translation. */
static __always_inline void nat_binding_endpoint(const struct packet *p, __u32 when, __u32 side,
						 struct nat_binding_key *key)
{
	nat_binding_address(p, address_in(p, address_place(p, when, side)), key->be_addr);
	key->be_port = be_port_in(p, port_place(p, when, side));
	key->routing_instance = forward_tuple(p, when, &side) ? p->out4.routing_instance : p->key4.routing_instance;
	/* out6 has the protocol of the family that the packet leaves in */
	key->proto = when == AS_TRANSLATED && p->nat64 ? p->out6.proto : p->proto;
}

/* Handle of the binding that a key leads to; 0 = none. */
__noinline __u32 nat_binding_find(const struct nat_binding_key *key)
{
	if (!key)
		return 0;
	__u32 *number = bpf_map_lookup_elem(&nat_binding_index, key);
	struct nat_binding *binding = number ? nat_binding_number(*number) : NULL;

	if (!binding || !*number)
		return 0;
	__u32 state = *(volatile __u32 *)&binding->state, handle = *number;
	bool inside = key->side == NAT_BINDING_INSIDE;

	ordered();
	/* the record may have changed hands since the index was asked */
	if (!same_address(inside ? binding->be_inside : binding->be_outside, key->be_addr) ||
	    (inside ? binding->be_inside_port : binding->be_outside_port) != key->be_port ||
	    (inside ? binding->routing_instance : binding->outside_instance) != key->routing_instance)
		return 0;
	ordered();
	if (!(state & NAT_BINDING_LIVE) || *(volatile __u32 *)&binding->state != state)
		return 0;
	return (handle & NAT_BINDING_NUMBER) | (state & NAT_BINDING_TAG) << NAT_BINDING_TAG_SHIFT;
}

/* Whom a binding remembers. With the table's seed, so that nobody can find two hosts that look the same. */
static __always_inline __u64 nat_binding_peer(const struct nat_binding *binding, const struct nat_binding_key *peer)
{
	const __u64 *words = (const __u64 *)peer->be_addr;
	__u64 hash = mix(mix(config.seed, words[0], MIX_LEFT), words[1], MIX_LEFT);

	if (binding->permit == NAT_PERSISTENT_TARGET_PORT)
		hash = mix(hash, peer->be_port, MIX_RIGHT);
	hash = mix_last(hash);
	return hash ? hash : 1;
}

static __always_inline bool nat_binding_knows(const struct nat_binding *binding, __u64 hash)
{
	bool known = false;

	for (int i = 0; i < NAT_BINDING_PEERS; i++)
		known |= binding->peers[i] == hash;
	return known;
}

/* The source rule for what leaves by a unit, or NO_RULE. */
__noinline int nat_find_source(struct packet *p, __u32 egress)
{
	if (!p)
		return NO_RULE;
	struct nat_unit *unit = nat_units_at(egress), *from = nat_units_at(nat_ingress_unit(p));

	if (!unit || !from)
		return NO_RULE;
	__u32 cell = from->source_row + unit->source_column;
	__u32 reverse = unit->reverse_context ? unit->reverse_context + from->reverse_class : 0;
	struct nat_source *source = nat_sources_at(cell / NAT_SOURCE_CELLS);

	barrier_var(cell);
	__u32 context = source ? source->context[cell % NAT_SOURCE_CELLS] : 0;

	if (!(reverse | context) || !classify(p, AS_TRANSLATED))
		return NO_RULE;
	int found = nat_match(p, reverse);

	return found < 0 ? nat_match(p, context) : found;
}

/*
 * RFC 4787 5: whether the sender may reach the inside endpoint. One that has a binding itself is known by its outside
 * endpoint (REQ-9).
 */
static __always_inline bool nat_binding_permits(struct packet *p, __u32 handle)
{
	struct nat_binding_key key ALIGNED_KEY = {.side = NAT_BINDING_INSIDE};

	struct nat_binding *binding = nat_binding_at(handle);

	if (!binding || binding->permit == NAT_PERSISTENT_ANY_HOST)
		return !!binding;
	int found = nat_find_source(p, binding->unit);
	struct nat_rule *rule = found < 0 ? NULL : nat_rule_at(found);

	nat_binding_endpoint(p, AS_SENT, SIDE_SOURCE, &key);
	key.rule = rule ? rule->id : 0;
	struct nat_binding *own = rule ? nat_binding_at(nat_binding_find(&key)) : NULL;

	if (own) {
		for (int i = 0; i < 4; i++)
			key.be_addr[i] = own->be_outside[i];
		key.be_port = own->be_outside_port;
	}
	return nat_binding_knows(binding, nat_binding_peer(binding, &key));
}

/*
 * A first packet whose destination no rule translates: perhaps it is a binding's. No function of its own: the search
 * for a rule below is as deep as calls may be.
 */
static __always_inline int nat_binding_destination(struct packet *p)
{
	struct nat_binding_key key ALIGNED_KEY = {.side = NAT_BINDING_OUTSIDE};

	if (p->proto != IPPROTO_TCP && p->proto != IPPROTO_UDP)
		return CONTINUE;
	nat_binding_endpoint(p, AS_SENT, SIDE_DESTINATION, &key);
	__u32 handle = nat_binding_find(&key);
	struct nat_binding *binding = nat_binding_at(handle);

	/* sessions between the families begin at their IPv6 end */
	if (!binding || nat64_is_mapped(binding->be_inside) != (p->family == 4) || !nat_binding_permits(p, handle))
		return CONTINUE;
	if (binding->sessions >= binding->most)
		return DROP(NAT_BINDING_SESSIONS);
	for (int i = 0; i < 4; i++)
		p->nat_address[i] = binding->be_inside[p->family == 4 ? 3 : i];
	nat_set(p, SIDE_DESTINATION, binding->be_inside_port);
	p->nat_bindings[1] = handle;
	p->route_instance = binding->routing_instance;
	p->classed &= CLASSED_SOURCE;
	return CONTINUE;
}

/* May a session that is re-evaluated keep what a binding has made of one of its sides? */
__noinline int nat_binding_keeps(struct packet *p, __u32 side)
{
	if (!p)
		return false;
	struct flow_shared *shared = flow_shared_at(p->family, p->line);
	struct nat_binding *binding = shared ? nat_binding_at(shared->nat_bindings[side & 1]) : NULL;

	if (!binding)
		return false;
	__u16 be_port = be_port_in(p, port_place(p, AS_TRANSLATED, side));

	if (side == SIDE_SOURCE)
		return be_port == binding->be_outside_port;
	p->classed &= CLASSED_SOURCE;
	if (!(p->flags & P_RESPONDER))
		p->route_instance = binding->routing_instance;
	return be_port == binding->be_inside_port;
}

/* A record becomes this packet's if it is nobody's. */
static __always_inline bool nat_binding_take(__u32 number)
{
	struct nat_binding *binding = nat_binding_number(number);

	if (!binding)
		return false;
	__u32 state = *(volatile __u32 *)&binding->state, next = NAT_BINDING_BUSY | ((state + 1) & NAT_BINDING_TAG);

	return !(state & (NAT_BINDING_LIVE | NAT_BINDING_BUSY)) &&
	       __sync_val_compare_and_swap(&binding->state, state, next) == state;
}

/*
 * A record for this packet; 0 = there is none. Numbers are used again once a fifth of those in use so far is free, so
 * that the sweep need not go far; until then the next one is taken. Each try is a draw of its own: the used ones stand
 * close together, so looking on from one of them finds more of them.
 */
static __always_inline __u32 nat_binding_draw(struct nat_binding *all)
{
	__u32 live = *(volatile __u32 *)&all->NAT_BINDINGS_LIVE, slots = config.nat_binding_slots, i;
	__u32 span = *(volatile __u32 *)&all->NAT_BINDINGS_HIGHEST;

	if (span < slots && span < live + live / 4 + NAT_BINDING_TRIES) {
		__u32 number = 1 + __sync_fetch_and_add(&all->NAT_BINDINGS_HIGHEST, 1);

		if (number <= slots && nat_binding_take(number))
			return number;
	}
	span = span < slots ? span : slots;
	if (!span)
		return 0;
	bpf_for (i, 0, NAT_BINDING_TRIES) {
		__u32 number = 1 + bpf_get_prandom_u32() % span;

		if (nat_binding_take(number))
			return number;
	}
	return 0;
}

static __always_inline void nat_binding_keys(const struct nat_binding *binding, struct nat_binding_key *inside,
					     struct nat_binding_key *outside)
{
	for (int i = 0; i < 4; i++) {
		inside->be_addr[i] = binding->be_inside[i];
		outside->be_addr[i] = binding->be_outside[i];
	}
	inside->be_port = binding->be_inside_port;
	outside->be_port = binding->be_outside_port;
	inside->routing_instance = binding->routing_instance;
	outside->routing_instance = binding->outside_instance;
	inside->rule = binding->rule;
	outside->rule = 0;
	inside->proto = binding->proto;
	outside->proto = binding->outside_proto;
	inside->side = NAT_BINDING_INSIDE;
	outside->side = NAT_BINDING_OUTSIDE;
}

static __always_inline void nat_binding_free(struct nat_binding *binding)
{
	__u32 tag = binding->state & NAT_BINDING_TAG;

	publish(&binding->state, tag);
}

/* Ends a binding, if it is this one still. */
__noinline int nat_binding_end(__u32 handle)
{
	struct nat_binding_key inside ALIGNED_KEY, outside ALIGNED_KEY;
	struct nat_binding *binding = nat_binding_at(handle), *all = nat_binding_number(0);
	__u32 tag = handle >> NAT_BINDING_TAG_SHIFT;

	if (!binding || !all ||
	    __sync_val_compare_and_swap(&binding->state, NAT_BINDING_LIVE | tag, NAT_BINDING_BUSY | tag) !=
		    (NAT_BINDING_LIVE | tag))
		return 0;
	nat_binding_keys(binding, &inside, &outside);
	bpf_map_delete_elem(&nat_binding_index, &inside);
	bpf_map_delete_elem(&nat_binding_index, &outside);
	atomic_add(&all->NAT_BINDINGS_LIVE, -1);
	nat_binding_free(binding);
	return 1;
}

/* Of the interface's address: the binding is of another one than the packet leaves by now. */
static __always_inline bool nat_binding_is_elsewhere(struct packet *p, const struct nat_binding *binding)
{
	struct nat_pool *pool = nat_pool_at(p->nat_pool);
	__u32 be_addr[4];

	if (!pool || !(pool->flags & NAT_POOL_INTERFACE) || p->nat_hairpin || !nat_interface_address(p))
		return false;
	if (p->nat64 || p->family != 4) {
		for (int i = 0; i < 4; i++)
			be_addr[i] = p->nat_address[i];
	} else {
		nat64_map(p->nat_address[0], be_addr);
	}
	return !same_address(be_addr, binding->be_outside);
}

/* The source's binding under the rule that matched, to `out*`. */
__noinline int nat_binding_recall(struct packet *p)
{
	struct nat_binding_key key ALIGNED_KEY = {.side = NAT_BINDING_INSIDE};

	if (!p)
		return BINDING_NONE;
	p->nat_bindings[0] = 0;
	nat_binding_endpoint(p, AS_SENT, SIDE_SOURCE, &key);
	key.rule = p->nat_source;
	__u32 handle = nat_binding_find(&key);
	struct nat_binding *binding = nat_binding_at(handle);

	if (!binding)
		return BINDING_NONE;
	if (nat_binding_is_elsewhere(p, binding)) {
		nat_binding_end(handle);
		return BINDING_NONE;
	}
	if (binding->sessions >= binding->most)
		return BINDING_REFUSED;
	for (int i = 0; i < 4; i++)
		p->nat_address[i] = binding->be_outside[p->family == 4 ? 3 : i];
	nat_set(p, SIDE_SOURCE, binding->be_outside_port);
	p->nat_bindings[0] = handle;
	return BINDING_FOUND;
}

static __always_inline void nat_binding_fill(struct nat_binding *binding, const struct packet *p,
					     const struct nat_pool *pool, const struct nat_binding_key *inside,
					     const struct nat_binding_key *outside)
{
	for (int i = 0; i < 4; i++) {
		binding->be_inside[i] = inside->be_addr[i];
		binding->be_outside[i] = outside->be_addr[i];
	}
	binding->be_inside_port = inside->be_port;
	binding->be_outside_port = outside->be_port;
	binding->proto = inside->proto;
	binding->outside_proto = outside->proto;
	binding->routing_instance = inside->routing_instance;
	binding->outside_instance = outside->routing_instance;
	binding->rule = p->nat_source;
	binding->permit = pool->persistent;
	binding->last_used = p->now;
	binding->timeout_s = pool->persistent_timeout_s;
	binding->most = pool->persistent_sessions;
	binding->sessions = binding->counted = 0;
	binding->unit = p->nat_unit;
	binding->next_peer = 0;
	for (int i = 0; i < NAT_BINDING_PEERS; i++)
		binding->peers[i] = 0;
}

/*
 * A candidate for an outside endpoint, in `out*`. INSERTED: it is nobody's; where the rule has persistent-nat it is the
 * source's from here on. INSERT_CONFLICT: a binding has it.
 */
__noinline int nat_binding_claim(struct packet *p)
{
	struct nat_binding_key outside ALIGNED_KEY = {.side = NAT_BINDING_OUTSIDE};
	__u32 zero = 0;
	struct cpu_memory *memory = bpf_map_lookup_elem(&scratch, &zero);

	if (!p || !memory)
		return INSERT_UNBOUND;
	/* the end of the longest chain of calls: the stack has no room for both keys */
	struct nat_binding_key *inside = &memory->inside;

	p->nat_bindings[0] = 0;
	struct nat_pool *pool = nat_pool_at(p->nat_pool);
	struct nat_binding *all = nat_binding_number(0);

	if (!pool || !all)
		return INSERT_UNBOUND;
	nat_binding_endpoint(p, AS_TRANSLATED, SIDE_SOURCE, &outside);
	if (bpf_map_lookup_elem(&nat_binding_index, &outside))
		return INSERT_CONFLICT;
	if (!pool->persistent)
		return INSERTED;
	__u32 number = nat_binding_draw(all);
	struct nat_binding *binding = number ? nat_binding_number(number) : NULL;

	if (!binding)
		return INSERT_UNBOUND;
	__builtin_memset(inside, 0, sizeof(*inside));
	inside->side = NAT_BINDING_INSIDE;
	nat_binding_endpoint(p, AS_SENT, SIDE_SOURCE, inside);
	inside->rule = p->nat_source;
	nat_binding_fill(binding, p, pool, inside, &outside);
	long error = bpf_map_update_elem(&nat_binding_index, &outside, &number, BPF_NOEXIST);

	if (error) {
		nat_binding_free(binding);
		return error == -EEXIST ? INSERT_CONFLICT : INSERT_UNBOUND;
	}
	error = bpf_map_update_elem(&nat_binding_index, inside, &number, BPF_NOEXIST);
	if (error) {
		bpf_map_delete_elem(&nat_binding_index, &outside);
		nat_binding_free(binding);
		/* another CPU gave the source its binding at this moment: its next packet finds it */
		return error == -EEXIST ? INSERT_BUSY : INSERT_UNBOUND;
	}
	__u32 tag = binding->state & NAT_BINDING_TAG;

	atomic_add(&all->NAT_BINDINGS_LIVE, 1);
	publish(&binding->state, NAT_BINDING_LIVE | tag);
	p->nat_bindings[0] = number | tag << NAT_BINDING_TAG_SHIFT;
	p->flags |= P_BOUND;
	return INSERTED;
}

/* There was no room for a binding: told at most once a second. */
static __always_inline void nat_binding_refused(const struct packet *p)
{
	struct nat_binding *all = nat_binding_number(0);
	struct nat_pool *pool = nat_pool_at(p->nat_pool);

	if (!all || !pool || (all->NAT_BINDINGS_TOLD && p->now - all->NAT_BINDINGS_TOLD < config.hz))
		return;
	all->NAT_BINDINGS_TOLD = p->now | 1;
	log_exhausted(p, pool->id);
}

/* A session was made under the bindings of its source and destination. */
__noinline int nat_binding_join(struct packet *p)
{
	if (!p)
		return 0;
	struct flow_shared *shared = flow_shared_at(p->family, p->line);
	struct nat_binding *source = nat_binding_at(p->nat_bindings[0]);
	struct nat_binding *destination = nat_binding_at(p->nat_bindings[1]);

	if (!shared)
		return 0;
	if (destination) {
		shared->nat_bindings[1] = p->nat_bindings[1];
		destination->last_used = p->now;
		atomic_add(&destination->sessions, 1);
	}
	if (!source)
		return 0;
	shared->nat_bindings[0] = p->nat_bindings[0];
	source->last_used = p->now;
	atomic_add(&source->sessions, 1);
	if (source->permit == NAT_PERSISTENT_ANY_HOST)
		return 0;
	struct nat_binding_key peer ALIGNED_KEY;

	nat_binding_endpoint(p, AS_SENT, SIDE_DESTINATION, &peer);
	__u64 hash = nat_binding_peer(source, &peer);

	if (!nat_binding_knows(source, hash)) {
		__u32 place = source->next_peer++ % NAT_BINDING_PEERS;

		source->peers[place] = hash;
	}
	return 0;
}

static __always_inline struct nat_binding *nat_binding_uncount(__u32 handle)
{
	struct nat_binding *binding = handle ? nat_binding_at(handle) : NULL;
	__u32 sessions = binding ? *(volatile __u32 *)&binding->sessions : 0;

	/* fewer than it has is set right by the sweep */
	if (sessions)
		__sync_val_compare_and_swap(&binding->sessions, sessions, sessions - 1);
	return binding;
}

/* The session that was just made under bindings is withdrawn, and with it a binding that was made for it alone. */
__noinline int nat_binding_withdraw(struct packet *p)
{
	if (!p)
		return 0;
	nat_binding_uncount(p->nat_bindings[1]);
	struct nat_binding *source = nat_binding_uncount(p->nat_bindings[0]);

	if (!source || !(p->flags & P_BOUND) || *(volatile __u32 *)&source->sessions)
		return 0;
	return nat_binding_end(p->nat_bindings[0]);
}

/* The sweep has seen a session: `live` says whether it goes on. */
static __always_inline void nat_binding_seen(__u32 handle, __u32 now, bool live)
{
	struct nat_binding *binding = handle ? nat_binding_at(handle) : NULL;

	if (!binding)
		return;
	if ((__s32)(now - binding->last_used) > 0)
		binding->last_used = now;
	binding->counted += live;
}

/* The sweep's look at a record: true when its binding ended. */
__noinline int nat_binding_sweep(__u32 number, __u32 now)
{
	struct nat_binding *binding = nat_binding_number(number);

	if (!binding || !number)
		return 0;
	__u32 state = *(volatile __u32 *)&binding->state;

	if (!(state & NAT_BINDING_LIVE))
		return 0;
	__u32 idle = now - binding->last_used;

	binding->sessions = binding->counted;
	binding->counted = 0;
	if (binding->sessions || (__s32)idle < 0 || idle <= (__u64)binding->timeout_s * config.hz)
		return 0;
	return nat_binding_end(number | (state & NAT_BINDING_TAG) << NAT_BINDING_TAG_SHIFT);
}

#endif
