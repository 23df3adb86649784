/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Find the packet's session, follow TCP, tie ICMP errors to the flow they report about. */
#ifndef SLUICE_STAGE_SESSION_H
#define SLUICE_STAGE_SESSION_H

#include "gate/grant.h"
#include "lib/host_inbound.h"
#include "lib/host_socket.h"
#include "lib/instance.h"
#include "nat64/mapping.h"
#include "lib/tcp_state.h"

/* What the packet's line says of translation; false when the record has just changed hands. */
__noinline int note_translation(struct packet *p)
{
	if (!p)
		return false;
	__u16 instance = has_instances() ? instance_beyond(p) : p->key4.routing_instance;

	if (p->family == 4) {
		struct flow_line4 *line = bpf_map_lookup_elem(&lines4, &p->line);

		if (!line)
			return false;
		((__u64 *)&p->out4)[0] = *(__u64 *)&line->be_new_saddr;
		((__u64 *)&p->out4)[1] = ((__u64 *)&p->out6)[4] =
			key_last_word(*(__u32 *)&line->be_new_sport, instance, p->key4.proto);
		p->flags |= P_TRANSLATED;
		return flow_has_tag(&line->state, p->tag);
	}
	struct flow_line6 *line = bpf_map_lookup_elem(&lines6, &p->line);

	if (!line)
		return false;
	for (int i = 0; i < 4; i++)
		((__u64 *)&p->out6)[i] = ((__u64 *)line->be_new_saddr)[i];
	((__u64 *)&p->out6)[4] = ((__u64 *)&p->out4)[1] =
		key_last_word(*(__u32 *)&line->be_new_sport, instance, p->key6.proto);
	p->flags |= P_TRANSLATED;
	return flow_has_tag(&line->state, p->tag);
}

/* The tag of the session that the packet belongs to; false when the record has just changed hands. */
static __always_inline bool note_tag(struct packet *p, struct flow_state *state)
{
	p->tag = *(volatile __u16 *)&state->tag;
	if (!flow_has_tag(state, p->tag))
		return false;
	if (p->family == 4) {
		struct flow_line4 *line = bpf_map_lookup_elem(&lines4, &p->line);

		return line && key_equal4(&line->key, &p->key4);
	}
	struct flow_line6 *line = bpf_map_lookup_elem(&lines6, &p->line);

	return line && key_equal6(&line->key, &p->key6);
}

/* An IPv4 packet of a NAT64 session: from here on the packet is one of the IPv6 table. */
__noinline int find_nat64(struct packet *p)
{
	struct flow_key6 key ALIGNED_KEY;
	__u32 line = 0;

	if (!p)
		return false;
	nat64_map_key(&p->key4, &key);
	__u64 hash = flow_hash6(config.seed, &key);
	struct flow_state *state = flow_find6(&key, hash, &line, FLOW_BUCKET_SLOTS);

	if (!state)
		return false;
	p->key6 = key;
	p->hash = hash;
	p->line = line;
	p->family = 6;
	if (note_tag(p, state))
		return true;
	p->family = 4;
	p->hash = flow_hash4(config.seed, &p->key4);
	return false;
}

static __always_inline struct flow_state *find_session(struct packet *p)
{
	struct flow_state *state;

	if (p->family == 4) {
		p->hash = flow_hash4(config.seed, &p->key4);
		state = flow_find4(&p->key4, p->hash, &p->line, FLOW_BUCKET_SLOTS);
	} else {
		p->hash = flow_hash6(config.seed, &p->key6);
		state = flow_find6(&p->key6, p->hash, &p->line, FLOW_BUCKET_SLOTS);
	}
	if (!state || !note_tag(p, state))
		state = (config.stage_mask & STAGE_BIT(NAT64)) && p->family == 4 && find_nat64(p)
				? flow_state_at(6, p->line)
				: NULL;
	if (!state)
		return NULL;
	if ((state->marks & MARK_TRANSLATED) && !note_translation(p)) {
		p->flags &= ~P_TRANSLATED;
		return NULL;
	}
	if (config.stage_mask & STAGE_BIT(NAT64))
		p->nat64 = !!(state->flags & FLOW_NAT64);
	return state;
}

/*
 * A session is going to be recorded unless policy forbids it: the bucket of its answers comes meanwhile. Which that is
 * is known later where sources are translated; one that nobody needs holds up all stores behind it.
 */
static __always_inline void expect_reply(struct packet *p)
{
	if (p->family == 4)
		p->reply_hash = flow_hash_reply4(config.seed, &p->key4);
	else
		p->reply_hash = flow_hash_reply6(config.seed, &p->key6);
	if (!(config.stage_mask & STAGE_BIT(NAT_SOURCE)))
		expect_key(p->family, p->reply_hash);
}

/*
 * The packet an ICMP error quotes, turned around: the tuple of the direction the error itself travels in (RFC 792,
 * RFC 4443 2.4). Its source must be whom the error is for. Only the eight bytes after its IP header are needed.
 */
static __noinline int quote_key4(hook_ctx *ctx, struct packet *p)
{
	if (!p)
		return 0;
	__u32 offset = (p->l4 & 0x3fff) + 8;
	void *end = hook_end(ctx);
	struct iphdr *inner = hook_data(ctx) + offset;

	if ((void *)(inner + 1) > end || inner->version != 4 || (inner->frag_off & bpf_htons(0x1fff)))
		return 0;
	__u32 header = (*(__u8 *)inner & 0x0f) * 4;
	__be16 *ports = (void *)inner + header;

	p->quote_l4 = offset + header;
	if (header < sizeof(*inner) || (void *)(ports + 4) > end || inner->saddr != p->key4.be_daddr)
		return 0;
	if (p->ip_header_len + 8 + header + 8 > p->ip_len)
		return 0; /* what lies there is Ethernet padding */
	p->key4.be_saddr = inner->daddr;
	p->key4.be_daddr = inner->saddr;
	p->key4.proto = inner->protocol;
	p->key4.be_sport = p->key4.be_dport = 0;
	if (has_ports(inner->protocol)) {
		p->key4.be_sport = ports[1];
		p->key4.be_dport = ports[0];
	} else if (inner->protocol == IPPROTO_ICMP) {
		__u8 type = *(__u8 *)ports;

		if (type == ICMP4_ECHO) {
			p->key4.be_sport = bpf_htons(ICMP_PORT_ECHO);
			p->key4.be_dport = ports[2];
		} else if (type == ICMP4_ECHO_REPLY) {
			p->key4.be_sport = ports[2];
			p->key4.be_dport = bpf_htons(ICMP_PORT_ECHO);
		} else {
			return 0;
		}
	}
	return 1;
}

/*
 * Walks the quoted extension headers; what stands behind them goes to the key, and its offset is returned: 0 = there is
 * none, as in a later fragment. Where the walk stands is kept in the record, which the verifier does not follow.
 */
static __noinline int quote_transport6(hook_ctx *ctx, struct packet *p, __u32 offset, __u32 proto)
{
	__u32 i;

	if (!p)
		return 0;
	p->option_at = offset;
	p->key6.proto = proto;
	bpf_for (i, 0, EXTENSION_HEADERS_MAX) {
		__u32 at = p->option_at & 0x3fff;
		__u8 *header = hook_data(ctx) + at, next = p->key6.proto;

		if (!is_extension(next))
			return at;
		if ((void *)(header + 8) > hook_end(ctx))
			return 0;
		if (next == IPPROTO_FRAGMENT && (bpf_ntohs(*(__be16 *)(header + 2)) & 0xfff8))
			return 0;
		p->key6.proto = header[0];
		p->option_at = at + (next == IPPROTO_FRAGMENT ? 8
				     : next == IPPROTO_AH     ? (header[1] + 2) * 4
							      : (header[1] + 1) * 8);
	}
	return 0;
}

static __noinline int quote_key6(hook_ctx *ctx, struct packet *p)
{
	if (!p)
		return 0;
	__u32 offset = (p->l4 & 0x3fff) + 8;
	void *end = hook_end(ctx);
	struct ipv6hdr *inner = hook_data(ctx) + offset;

	if ((void *)(inner + 1) > end || inner->version != 6)
		return 0;
	for (int i = 0; i < 4; i++) {
		if (((__u32 *)&inner->saddr)[i] != p->key6.be_daddr[i])
			return 0;
	}
	__builtin_memcpy(p->key6.be_saddr, &inner->daddr, 16);
	__builtin_memcpy(p->key6.be_daddr, &inner->saddr, 16);
	__u32 at = quote_transport6(ctx, p, offset + sizeof(*inner), inner->nexthdr) & 0x3fff;
	__u8 proto = p->key6.proto;
	__be16 *ports = hook_data(ctx) + at;

	p->quote_l4 = at;

	end = hook_end(ctx);
	if (!at || (void *)(ports + 4) > end || at + 8 > (p->l3 & 0x1f) + (__u32)p->ip_len)
		return 0;
	p->key6.be_sport = p->key6.be_dport = 0;
	if (has_ports(proto)) {
		p->key6.be_sport = ports[1];
		p->key6.be_dport = ports[0];
	} else if (proto == IPPROTO_ICMPV6) {
		__u8 type = *(__u8 *)ports;

		if (type == ICMP6_ECHO) {
			p->key6.be_sport = bpf_htons(ICMP_PORT_ECHO);
			p->key6.be_dport = ports[2];
		} else if (type == ICMP6_ECHO_REPLY) {
			p->key6.be_sport = ports[2];
			p->key6.be_dport = bpf_htons(ICMP_PORT_ECHO);
		} else {
			return 0;
		}
	}
	return 1;
}

/*
 * A commit may move the unit that a direction arrives on to another zone: the session goes with it, and is re-evaluated
 * for its new zones. Only that unit's; what arrives on others is told from the session by its zone as ever.
 */
__noinline int moved_with_unit(struct packet *p)
{
	if (!p)
		return false;
	struct flow_state *own = flow_state_at(p->family, p->line), *peer = flow_state_at(p->family, p->line ^ 1);
	struct flow_shared *shared = flow_shared_at(p->family, p->line);
	struct unit *unit = unit_at(p->unit_slot);

	if (!own || !peer || !shared || !unit || own->zone == ZONE_HOST || own->stamp == ACTIVE_STAMP(p->active) ||
	    ACTIVE_SLOT(p->active) != config.slot)
		return false;
	/* the host's own sessions are recorded on the unit they leave through */
	if (!(p->line & 1) || shared->from_zone == ZONE_HOST) {
		if (shared->ingress_unit != p->unit_index)
			return false;
	} else {
		struct nexthop *ahead = nexthop_at(peer->nexthop);

		if (!nexthop_is_known(peer->nexthop) || !ahead || ahead->host_ifindex != unit->host_ifindex)
			return false;
	}
	flow_enter_zone(p->family, p->line, p->from_zone);
	return true;
}

/* Whether the packet arrives from where its direction of the session does. */
static __always_inline bool arrives_right(struct packet *p, const struct flow_state *own)
{
	return own->zone == p->from_zone || moved_with_unit(p);
}

static __always_inline int related_error(hook_ctx *ctx, struct packet *p)
{
	/* what an error quotes takes the place of its own addresses */
	bool nobody = is_unspecified(p), on_link = is_link_local(p) || is_link_local4(p);

	if (nobody)
		return DROP(BAD_ADDRESS);
	if (!(p->wire == 4 ? quote_key4(ctx, p) : quote_key6(ctx, p)))
		return DROP(ICMP_NOT_RELATED);
	struct flow_state *state = find_session(p);

	if (!state || !arrives_right(p, state))
		return DROP(ICMP_NOT_RELATED);
	int verdict = check_grant(p);

	if (verdict != CONTINUE)
		return verdict;
	p->nexthop = state->nexthop;
	/* RFC 3927 2.7, RFC 4291 2.5.6: neighbours may tell this host, nobody beyond it */
	if (on_link && p->nexthop != NEXTHOP_LOCAL)
		return DROP(BAD_ADDRESS);
	p->flags |= P_RELATED;
	route_as_session(p);
	if (nexthop_is_known(p->nexthop))
		p->flags |= P_KNOWN;
	return CONTINUE;
}

/* May this packet, which belongs to no session, open one? */
static __always_inline int may_open(hook_ctx *ctx, struct packet *p, bool leaving)
{
	if (p->proto == IPPROTO_TCP && (p->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) != TCP_SYN) {
		int verdict = resume_connection(ctx, p, leaving);

		if (verdict != CONTINUE)
			return verdict;
	}
	if (p->proto == IPPROTO_ICMP && p->icmp_type != ICMP4_ECHO)
		return DROP(ICMP_NO_SESSION);
	if (p->proto == IPPROTO_ICMPV6 && p->icmp_type != ICMP6_ECHO)
		return DROP(ICMP_NO_SESSION);
	p->flags |= P_NEW;
	expect_reply(p);
	return CONTINUE;
}

/* Its tuple opens a new one. */
static __always_inline void end_session(struct packet *p)
{
	if (p->family == 4)
		flow_delete4(p->line, p->tag, CLOSE_REOPENED);
	else
		flow_delete6(p->line, p->tag, CLOSE_REOPENED);
}

/* Only the active generation judges, and only what was decided before. Traffic of this host itself is not policy's.
 */
static __always_inline bool is_stale(const struct packet *p, struct flow_state *state)
{
	if (state->stamp == ACTIVE_STAMP(p->active) || ACTIVE_SLOT(p->active) != config.slot)
		return false;
	struct flow_shared *shared = flow_shared_at(p->family, p->line);

	if (shared && shared->from_zone == ZONE_HOST) {
		state->stamp = ACTIVE_STAMP(p->active);
		return false;
	}
	return true;
}

/* The first packet of a direction has no next hop yet and asks for one, as does the first after the table was lost. */
static __always_inline int judge_again(struct packet *p, struct flow_state *own)
{
	bool stale = is_stale(p, own);

	route_as_session(p);
	p->flags |= stale || !nexthop_is_known(own->nexthop) ? P_REEVALUATE : P_KNOWN;
	/* where nothing is translated any more, nobody asks below */
	if (stale && (p->flags & P_TRANSLATED) && !(config.stage_mask & STAGE_BIT(NAT_SOURCE)))
		return DROP(NAT_CHANGED);
	return CONTINUE;
}

/* `tcp-rst` of a zone: whoever speaks of a connection unknown here is told (RFC 9293 3.5.2). */
static __always_inline int tell_unknown(struct packet *p, int verdict)
{
	struct unit *unit = unit_at(p->unit_slot);

	if (verdict != DROP(TCP_NOT_SYN) || !unit || !(unit->flags & UNIT_TCP_RST))
		return verdict;
	p->reply = REPLY_RESET;
	return DROP_AND_REPLY(TCP_NOT_SYN);
}

/* As the first fragment of an ICMP error had them: of what it quotes, which tells whose its outer addresses are. */
static __noinline int take_session_addresses(struct packet *p)
{
	if (!p)
		return false;
	if (p->family == 4) {
		struct flow_line4 *line = bpf_map_lookup_elem(&lines4, &p->line);

		if (line)
			((__u64 *)&p->key4)[0] = *(const __u64 *)&line->key;
		return !!line;
	}
	struct flow_line6 *line = bpf_map_lookup_elem(&lines6, &p->line);

	if (!line)
		return false;
	for (int i = 0; i < 4; i++)
		((__u64 *)&p->key6)[i] = ((const __u64 *)&line->key)[i];
	return true;
}

/* A fragment goes where the first of its datagram went, as long as that session lives. */
static __noinline int follow_first(struct packet *p)
{
	if (!p)
		return DROP(FRAGMENT_NO_FIRST);
	struct flow_state *own = flow_state_at(p->family, p->line);

	if (!own || own->tag != p->line_tag || !(own->flags & FLOW_LIVE))
		return DROP(FRAGMENT_NO_FIRST);
	if (!arrives_right(p, own))
		return DROP(SESSION_ZONE);
	if (p->family != p->wire)
		nat64_map_key(&p->key4, &p->key6); /* what judges it again asks for its addresses */
	int verdict = check_grant(p);

	if (verdict != CONTINUE)
		return verdict;
	p->nexthop = own->nexthop;
	p->tag = own->tag;
	if ((own->marks & MARK_TRANSLATED) && !note_translation(p))
		return DROP(FRAGMENT_NO_FIRST);
	p->nat64 = !!(own->flags & FLOW_NAT64);
	if (p->fragment_follow == FRAGMENT_RELATED) {
		if ((p->flags & P_TRANSLATED) && !take_session_addresses(p))
			return DROP(FRAGMENT_NO_FIRST);
		p->flags |= P_RELATED | (nexthop_is_known(p->nexthop) ? P_KNOWN : 0);
		return CONTINUE;
	}
	if (p->line & 1)
		p->flags |= P_RESPONDER;
	if (p->proto == IPPROTO_TCP) {
		__u32 end = p->tcp_seq + p->fragment_offset + p->fragment_length;

		if ((__s32)(end - own->tcp_end) > 0)
			own->tcp_end = end;
	}
	flow_account(own, p->now, p->segments, p->ip_len);
	return judge_again(p, own);
}

/* What opens anew is a packet of its own family again. */
static __always_inline void forget_nat64(struct packet *p)
{
	if (p->family != p->wire)
		p->hash = flow_hash4(config.seed, &p->key4);
	p->family = p->wire;
	p->nat64 = 0;
}

/*
 * Whoever opened asks, the other side answers. The tuple says so too, but for the identifier that is ICMP_PORT_ECHO
 * itself: there a request of the other side has the tuple of an answer.
 */
static __always_inline bool echo_fits(const struct packet *p)
{
	if (p->proto != IPPROTO_ICMP && p->proto != IPPROTO_ICMPV6)
		return true;
	bool asks = p->icmp_type == (p->proto == IPPROTO_ICMP ? ICMP4_ECHO : ICMP6_ECHO);

	return asks == !(p->line & 1);
}

static __always_inline int stage_session(hook_ctx *ctx, struct packet *p)
{
	if (p->flags & P_MULTICAST)
		return group_to_host(p, p->family == 4 ? local_kind(p, p->key4.be_daddr, p->key6.be_daddr) : 0);
	if (p->proto == IPPROTO_ICMPV6 && p->icmp_type >= ICMP6_ND_FIRST && p->icmp_type <= ICMP6_ND_LAST)
		return VERDICT_LOCAL; /* RFC 4861: on-link only, the host checks the hop limit of 255 */
	if (p->flags & P_LATER)
		return follow_first(p);
	if (p->flags & P_ICMP_ERROR)
		return related_error(ctx, p);
	struct flow_state *own = find_session(p);

	if (!own) {
		p->line = 0; /* what another key's tag may have led to */
		return tell_unknown(p, may_open(ctx, p, false));
	}
	struct flow_state *peer = flow_state_at(p->family, p->line ^ 1);

	if (!peer || !arrives_right(p, own))
		return DROP(SESSION_ZONE);
	if (!echo_fits(p))
		return DROP(ICMP_NO_SESSION);
	int verdict = check_grant(p);

	if (verdict != CONTINUE)
		return verdict;
	if (p->line & 1)
		p->flags |= P_RESPONDER;
	if (p->proto == IPPROTO_TCP) {
		if (tcp_reopens(p, own, peer)) {
			end_session(p);
			p->flags &= ~(P_RESPONDER | P_TRANSLATED); /* whoever opens anew is judged as opener */
			forget_nat64(p);
			return may_open(ctx, p, false);
		}
		if (!(generation.flags & GENERATION_NO_SEQUENCE_CHECK) && !tcp_packet_fits(p, own, peer))
			return DROP(TCP_OUT_OF_WINDOW);
		if (tcp_reopening(p, own, peer))
			return DROP(TCP_REOPENING);
		tcp_follow(ctx, p, own, peer);
	} else if (p->line & 1) {
		flow_answered(p->family, own);
	}
	flow_account(own, p->now, p->segments, p->ip_len);
	p->nexthop = own->nexthop;
	return judge_again(p, own);
}

#endif
