/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The table of datagrams in pieces: bounded, timed, shared by all CPUs. Layout and bounds: abi/fragment.h. */
#ifndef SLUICE_LIB_FRAGMENT_H
#define SLUICE_LIB_FRAGMENT_H

#include "flow_table.h"

/* RFC 791 3.1: the total length of the whole datagram counts its header; RFC 8200 4.5 counts the payload. */
static __always_inline __u32 fragment_whole(const struct packet *p)
{
	return p->fragment_offset + p->fragment_length + (p->family == 4 ? p->ip_header_len : 0);
}

/* RFC 791 3.2, RFC 8200 4.5: all but the last hold multiples of eight bytes, and nothing ends beyond the longest. */
static __always_inline bool fragment_malformed(const struct packet *p)
{
	return fragment_whole(p) > 0xffff || !p->fragment_length || (p->fragment_more && p->fragment_length % 8);
}

static __always_inline void fragment_key_of(const struct packet *p, struct fragment_key *key)
{
	__builtin_memset(key, 0, sizeof(*key));
	if (p->family == 4) {
		key->be_saddr[0] = p->key4.be_saddr;
		key->be_daddr[0] = p->key4.be_daddr;
		key->proto = p->proto;
	} else {
		__builtin_memcpy(key->be_saddr, p->key6.be_saddr, 32);
	}
	key->be_id = p->be_fragment_id;
	key->zone = p->from_zone;
	key->routing_instance = p->key4.routing_instance;
	key->family = p->family;
}

/*
 * Where two fragments meet, both ends cancel out, so nothing is left of a datagram that is all there. A copy takes back
 * what its original gave: such a datagram waits for its time to be over, but never ends while a fragment is missing.
 */
static __always_inline __u64 fragment_end_hash(__u32 offset)
{
	return mix_last(mix(config.seed, offset, MIX_RIGHT));
}

/* Seeded, so nobody outside can aim at a bucket. */
static __always_inline __u64 fragment_tag(const struct fragment_key *key)
{
	const __u64 *words = (const __u64 *)key;
	__u64 left = mix(mix(config.seed, words[0], MIX_LEFT), words[1], MIX_LEFT);
	__u64 right = mix(mix(config.seed ^ MIX_LAST, words[2], MIX_RIGHT), words[3], MIX_RIGHT);
	__u64 hash = mix(left ^ (right << 1 | right >> 63), words[4], MIX_LEFT);

	return mix_last(mix(hash, words[5], MIX_RIGHT)) | (FRAGMENT_BUSY + 1);
}

static __always_inline __u32 fragment_place(__u64 tag, __u32 way)
{
	return (tag >> 32) % (FRAGMENT_DATAGRAMS / FRAGMENT_WAYS) * FRAGMENT_WAYS + way;
}

static __always_inline bool fragment_same(const struct fragment_key *a, const struct fragment_key *b)
{
	const __u64 *x = (const __u64 *)a, *y = (const __u64 *)b;

	return !((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]) | (x[4] ^ y[4]) | (x[5] ^ y[5]));
}

static __always_inline bool fragment_over(const struct fragment_datagram *datagram, __u32 now)
{
	/* another CPU may have looked at the clock after this one did */
	return now - datagram->first_seen + config.hz >= (FRAGMENT_TIMEOUT_S + 1) * config.hz;
}

/* The key of the fragment at hand. Kept apart: an ICMP error takes the addresses of the packet it quotes later on. */
static __always_inline struct fragment_key *fragment_key_here(void)
{
	__u32 zero = 0;

	struct cpu_memory *memory = bpf_map_lookup_elem(&scratch, &zero);

	if (!memory)
		return NULL;
	barrier_var(memory);
	return &memory->fragment;
}

static __always_inline struct fragment_datagram *fragment_at(__u32 place)
{
	return bpf_map_lookup_elem(&fragment_datagrams, &place);
}

/* Place of the fragment's datagram, or FRAGMENT_DATAGRAMS. */
static __noinline int fragment_find(__u64 tag, __u32 now)
{
	const struct fragment_key *key = fragment_key_here();

	if (!key)
		return FRAGMENT_DATAGRAMS;
	for (__u32 way = 0; way < FRAGMENT_WAYS; way++) {
		__u32 place = fragment_place(tag, way);
		struct fragment_datagram *datagram = fragment_at(place);

		if (datagram && *(volatile __u64 *)&datagram->tag == tag && fragment_same(&datagram->key, key))
			return fragment_over(datagram, now) ? FRAGMENT_DATAGRAMS : place;
	}
	return FRAGMENT_DATAGRAMS;
}

/* Places of a bucket that datagrams of a zone hold which wait for more. Global, as fragment_room: verified once, not a
 * call. */
__noinline int fragment_share(__u64 tag, __u32 zone, __u32 now)
{
	int share = 0;

	for (__u32 way = 0; way < FRAGMENT_WAYS; way++) {
		struct fragment_datagram *datagram = fragment_at(fragment_place(tag, way));

		if (datagram && datagram->key.zone == zone && datagram->follow != FRAGMENT_REFUSED &&
		    *(volatile __u64 *)&datagram->tag > FRAGMENT_BUSY && !fragment_over(datagram, now))
			share++;
	}
	return share;
}

#define ROOM_SAME 4    /* the identification came round again, or the sender repeats itself (RFC 4963) */
#define ROOM_FREE 3    /* nobody's any more */
#define ROOM_REFUSED 2 /* gives way to a permitted one */
#define ROOM_CROWDED 1 /* of a zone that has more of the bucket: one zone's pieces leave room for those of others */

/* How well a place suits a new datagram; 0 = it is taken. */
__noinline int fragment_room(__u32 place, __u64 tag, __u32 now, __u32 refused)
{
	const struct fragment_key *key = fragment_key_here();
	struct fragment_datagram *datagram = fragment_at(place);

	if (!key || !datagram)
		return 0;
	__u64 holder = *(volatile __u64 *)&datagram->tag;

	if (holder == FRAGMENT_BUSY)
		return 0;
	if (holder == tag && fragment_same(&datagram->key, key))
		return ROOM_SAME;
	if (holder == FRAGMENT_FREE || fragment_over(datagram, now))
		return ROOM_FREE;
	if (refused)
		return 0;
	if (datagram->follow == FRAGMENT_REFUSED)
		return ROOM_REFUSED;
	__u32 zone = datagram->key.zone;

	return fragment_share(tag, zone, now) > fragment_share(tag, key->zone, now) + 1 ? ROOM_CROWDED : 0;
}

/* The best place for a new datagram, or FRAGMENT_DATAGRAMS. */
static __noinline int fragment_choose(__u64 tag, __u32 now, __u32 refused)
{
	__u32 best = 0;

	for (__u32 way = 0; way < FRAGMENT_WAYS; way++) {
		__u32 place = fragment_place(tag, way);
		__u32 room = fragment_room(place, tag, now, refused) & 7;

		if (refused && way >= FRAGMENT_REFUSED_WAYS && room < ROOM_SAME)
			room = 0;
		/* the room stands above the place, so the larger word is the better one */
		__u32 choice = room * FRAGMENT_DATAGRAMS + place;

		best = room && choice > best ? choice : best;
	}
	return best ? best % FRAGMENT_DATAGRAMS : FRAGMENT_DATAGRAMS;
}

/* A place for a new datagram, claimed for this CPU. */
static __always_inline struct fragment_datagram *fragment_claim(__u64 tag, __u32 now, bool refused)
{
	struct fragment_datagram *datagram = fragment_at(fragment_choose(tag, now, refused));

	if (!datagram)
		return NULL;
	__u64 holder = *(volatile __u64 *)&datagram->tag;

	if (holder == FRAGMENT_BUSY || __sync_val_compare_and_swap(&datagram->tag, holder, FRAGMENT_BUSY) != holder)
		return NULL; /* another CPU was faster */
	return datagram;
}

static __always_inline void fragment_fill(struct fragment_datagram *datagram, const struct packet *p)
{
	datagram->first_seen = p->now;
	datagram->line = p->line;
	datagram->open_ends = fragment_end_hash(p->fragment_length);
	datagram->first_end = p->fragment_length;
	/* sequence numbers count from behind the TCP header; SYN and FIN take one each */
	datagram->tcp_seq = p->tcp_seq - (p->fragment_length - p->payload) + !!(p->tcp_flags & TCP_SYN) +
			    !!(p->tcp_flags & TCP_FIN);
	datagram->be_sport = p->key6.be_sport;
	datagram->be_dport = p->key6.be_dport;
	datagram->proto = p->proto;
	datagram->icmp_type = p->icmp_type;
	datagram->icmp_code = p->icmp_code;
	datagram->reason = 0;
	datagram->session_family = p->family;
}

/*
 * What becomes of the first fragment, for those that follow. A permitted one that cannot be remembered is dropped: the
 * rest of its datagram would be. Refused ones need no place.
 */
static __noinline int fragment_remember(struct packet *p, __u32 verdict)
{
	const struct fragment_key *key = fragment_key_here();

	if (!p || !key)
		return DROP(FRAGMENT_TABLE_FULL);
	bool refused = verdict & (VERDICT_DROP | VERDICT_REPLY);
	struct flow_state *own = flow_state_at(p->family, p->line);

	__u64 tag = fragment_tag(key);
	struct fragment_datagram *datagram = fragment_claim(tag, p->now, refused);

	if (!datagram)
		return refused ? verdict : DROP(FRAGMENT_TABLE_FULL);
	datagram->key = *key;
	fragment_fill(datagram, p);
	datagram->line_tag = own ? own->tag : 0;
	if (refused) {
		datagram->follow = FRAGMENT_REFUSED;
		datagram->reason = REASON_OF(verdict);
	} else if (verdict & VERDICT_FORWARD) {
		/* no session of ours: the stage that forwarded it finds the others by what they inherit */
		datagram->follow = FRAGMENT_SESSION;
	} else if (!p->line) {
		datagram->follow = FRAGMENT_LOCAL;
	} else {
		datagram->follow = p->flags & P_RELATED ? FRAGMENT_RELATED : FRAGMENT_SESSION;
	}
	/* an exchange is a barrier: whoever sees the tag sees the rest */
	__sync_lock_test_and_set(&datagram->tag, tag);
	return verdict;
}

/* In place of the zone, of what this host sends: nothing arrives from there. */
static __always_inline struct fragment_key *fragment_key_sent(const struct packet *p)
{
	struct fragment_key *key = fragment_key_here();

	if (key) {
		fragment_key_of(p, key);
		key->zone = ZONE_HOST;
	}
	return key;
}

/*
 * This host may not send the first fragment of a datagram, and so none behind it. It has its place as permitted ones
 * do: who fills the table with refused ones shall not get what follows.
 */
static __always_inline int fragment_forbid(struct packet *p, __u32 reason)
{
	const struct fragment_key *key = p ? fragment_key_sent(p) : NULL;

	if (!p || !key)
		return 0;
	__u64 tag = fragment_tag(key);
	struct fragment_datagram *datagram = fragment_claim(tag, p->now, false);

	if (!datagram)
		return 0;
	datagram->key = *key;
	fragment_fill(datagram, p);
	datagram->line_tag = 0;
	datagram->follow = FRAGMENT_REFUSED;
	datagram->reason = reason;
	__sync_lock_test_and_set(&datagram->tag, tag);
	return 1;
}

#endif
