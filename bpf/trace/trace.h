/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packets before and after the gateway, and what it knows of them, told through a perf buffer: the helper that fills it
 * copies frames whole, also those in pieces. The first program that a packet meets begins, the one that has the hook's
 * verdict ends.
 */
#ifndef SLUICE_TRACE_TRACE_H
#define SLUICE_TRACE_TRACE_H

#include "maps.h"

#define SECOND_NS 1000000000ull

const volatile struct trace_config trace SEC(".rodata.trace") = {};
struct trace_totals trace_totals SEC(".data.totals") = {};

/* Until when somebody listens, in ns of CLOCK_MONOTONIC: who is killed takes nothing back. */
volatile __u64 trace_lease SEC(".data.lease") = 0;

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
} trace_events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * MAX_UNITS);
	__type(key, struct trace_unit);
	__type(value, __u32);
} trace_units SEC(".maps");

/* The beginning of a frame, and what is beside it. */
struct frame_head {
	__u32 length; /* of the frame */
	__u32 there;  /* bytes that follow */
	__u16 vlan_tci;
	__u16 be_vlan_proto;
	__u8 bytes[256]; /* TRACE_HEAD at most: the mask of an offset is one less */
};

struct trace_tuple {
	__u32 be_source[4];
	__u32 be_destination[4];
	__u16 sport;
	__u16 dport;
	__u16 protocol;
	__u16 family; /* 4, 6, or 0 of what is not IP */
	__u32 vlan;
	__u32 l4;       /* where the transport header begins */
	__u32 is_later; /* a fragment without one */
};

/* Of the packet that this CPU looks at. */
struct trace_memory {
	struct trace_event event;
	__u8 copy[256]; /* behind the event, as it is handed over */
	struct frame_head before;
	struct frame_head after;
	struct trace_tuple tuple;
	__u64 came;
	__u64 second;
	__u64 used;
	__u64 number;
	__u32 ifindex;
	__u32 hook;
	__u32 open; /* its beginning was seen */
	__u32 fits;
	__u32 line;
	__u32 family;
	__u32 reason;
	__u32 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct trace_memory);
} trace_memory SEC(".maps");

static __always_inline struct trace_memory *trace_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&trace_memory, &zero);
}

static __always_inline __u32 byte_at(const struct frame_head *head, __u32 at)
{
	return at < head->there ? head->bytes[at & 0xff] : 0;
}

static __always_inline __u32 word_at(const struct frame_head *head, __u32 at)
{
	return byte_at(head, at) << 8 | byte_at(head, at + 1);
}

static __always_inline __u32 be_address_at(const struct frame_head *head, __u32 at)
{
	return bpf_htonl(word_at(head, at) << 16 | word_at(head, at + 2));
}

static __always_inline bool is_tag(__u32 type)
{
	return type == ETH_P_8021Q || type == ETH_P_8021AD;
}

/* A tag more, the outer one first. */
static __always_inline __u32 with_tag(__u32 vlan, __u32 type, __u32 tci, bool is_first)
{
	if (is_first)
		return (tci & VLAN_ID) | (type == ETH_P_8021AD ? VLAN_SERVICE : 0);
	return vlan | VLAN_TWO | (tci & VLAN_ID) << VLAN_INNER_SHIFT;
}

/* Where the walk stands goes through memory: the verifier would follow every place it may come to. */
static __always_inline void walk_extensions(struct trace_tuple *is, const struct frame_head *head)
{
	volatile __u32 *at = &is->l4;
	volatile __u16 *next = &is->protocol;
	__u32 i;

	bpf_for (i, 0, EXTENSION_HEADERS_MAX) {
		__u32 kind = *next & 0xff, l4 = *at & 0xfff;

		if (!is_extension(kind))
			break;
		__u32 units = byte_at(head, l4 + 1);

		if (kind == IPPROTO_FRAGMENT && (word_at(head, l4 + 2) & 0xfff8))
			is->is_later = 1;
		units = kind == IPPROTO_FRAGMENT ? 8 : kind == IPPROTO_AH ? 4 * (units + 2) : 8 * (units + 1);
		*next = byte_at(head, l4);
		*at = l4 + units;
	}
}

static __always_inline void read_ipv6(struct trace_tuple *is, const struct frame_head *head, __u32 l3)
{
	is->family = 6;
	is->protocol = byte_at(head, l3 + 6);
	is->l4 = l3 + 40;
	for (int word = 0; word < 4; word++) {
		is->be_source[word] = be_address_at(head, l3 + 8 + 4 * word);
		is->be_destination[word] = be_address_at(head, l3 + 24 + 4 * word);
	}
	walk_extensions(is, head);
}

static __always_inline void read_ipv4(struct trace_tuple *is, const struct frame_head *head, __u32 l3)
{
	is->family = 4;
	is->protocol = byte_at(head, l3 + 9);
	is->l4 = l3 + (byte_at(head, l3) & 0x0f) * 4;
	is->is_later = word_at(head, l3 + 6) & 0x1fff;
	is->be_source[0] = be_address_at(head, l3 + 12);
	is->be_destination[0] = be_address_at(head, l3 + 16);
}

/* EtherType behind all tags, which are noted; `*at` is where what follows begins. */
static __always_inline __u32 read_tags(struct trace_tuple *is, const struct frame_head *head, __u32 *at)
{
	__u32 type = word_at(head, 12), l3 = ETH_HLEN;
	bool is_first = true;

	if (head->be_vlan_proto) {
		is->vlan = with_tag(0, bpf_ntohs(head->be_vlan_proto), head->vlan_tci, true);
		is_first = false;
	}
	for (int i = 0; i < 2 && is_tag(type); i++) {
		is->vlan = with_tag(is->vlan, type, word_at(head, l3), is_first);
		is_first = false;
		type = word_at(head, l3 + 2);
		l3 += VLAN_BYTES;
	}
	*at = l3;
	return type;
}

/* What the filter is compared with. */
__noinline int read_tuple(struct trace_tuple *is, const struct frame_head *head)
{
	__u32 l3 = 0;

	if (!is || !head)
		return 0;
	__builtin_memset(is, 0, sizeof(*is));
	__u32 type = read_tags(is, head, &l3);

	if (type == ETH_P_IP)
		read_ipv4(is, head, l3);
	else if (type == ETH_P_IPV6)
		read_ipv6(is, head, l3);
	__u32 l4 = *(volatile __u32 *)&is->l4, protocol = *(volatile __u16 *)&is->protocol;

	if (is->is_later || !has_ports(protocol))
		return 0;
	is->sport = word_at(head, l4);
	is->dport = word_at(head, l4 + 2);
	return 0;
}

static __always_inline bool lies_in(const volatile struct trace_prefix *prefix, __u32 family, const __u32 *be_address)
{
	if (!prefix->family)
		return true;
	if (prefix->family != family)
		return false;
	for (int i = 0; i < 4; i++)
		if ((be_address[i] & prefix->be_mask[i]) != prefix->be_address[i])
			return false;
	return true;
}

static __always_inline bool is_port(__u32 wanted, __u32 port)
{
	return !wanted || wanted == port;
}

static __always_inline bool packet_fits(const struct trace_tuple *is)
{
	const volatile struct trace_filter *want = &trace.filter;
	__u32 family = is->family;

	if (want->protocol && (!family || want->protocol != is->protocol))
		return false;
	if (want->port && want->port != is->sport && want->port != is->dport)
		return false;
	if (!lies_in(&want->either, family, is->be_source) && !lies_in(&want->either, family, is->be_destination))
		return false;
	if (lies_in(&want->source, family, is->be_source) && lies_in(&want->destination, family, is->be_destination) &&
	    is_port(want->sport, is->sport) && is_port(want->dport, is->dport))
		return true;
	return lies_in(&want->source, family, is->be_destination) &&
	       lies_in(&want->destination, family, is->be_source) && is_port(want->sport, is->dport) &&
	       is_port(want->dport, is->sport);
}

static __noinline int trace_fits(struct trace_memory *memory, const struct frame_head *head)
{
	read_tuple(&memory->tuple, head);
	struct trace_unit unit = {.ifindex = memory->ifindex, .vlan = memory->tuple.vlan};

	if (trace.filter.by_unit && !bpf_map_lookup_elem(&trace_units, &unit))
		return false;
	return !trace.filter.by_packet || packet_fits(&memory->tuple);
}

/*
 * The bounds are compared one by one: where the compiler makes one comparison of both, verifiers before 6.18 do not
 * know that the length is not 0.
 */
static __noinline int read_head(hook_ctx *ctx, struct frame_head *head)
{
	__u32 length = hook_frame_len(ctx);

	head->length = length;
	head->there = 0;
#ifdef HOOK_TC
	head->vlan_tci = ctx->vlan_tci;
	head->be_vlan_proto = ctx->vlan_present ? ctx->vlan_proto : 0;
#endif
	if (length > TRACE_HEAD)
		length = TRACE_HEAD;
	barrier_var(length);
	if (length < ETH_HLEN)
		return 0;
	barrier_var(length);
	if (length > TRACE_HEAD)
		return 0;
	if (hook_load(ctx, 0, head->bytes, length))
		head->there = length;
	return 0;
}

static __always_inline bool is_within_rate(struct trace_memory *memory)
{
	__u64 second = memory->came / SECOND_NS;

	if (memory->second != second) {
		memory->second = second;
		memory->used = 0;
	}
	if (memory->used++ < trace.rate)
		return true;
	atomic_add(&trace_totals.left_out, 1);
	return false;
}

/* The packet is one of those that are told, unless there are too many. */
static __always_inline bool trace_take(struct trace_memory *memory)
{
	if (!is_within_rate(memory)) {
		memory->open = 0;
		return false;
	}
	memory->number++;
	return true;
}

static __always_inline void begin_event(struct trace_memory *memory, const struct frame_head *head, __u32 after)
{
	struct trace_event *event = &memory->event;

	__builtin_memset(event, 0, sizeof(*event));
	event->when = after ? bpf_ktime_get_ns() : memory->came;
	event->number = memory->number;
	event->cpu = bpf_get_smp_processor_id();
	event->ifindex = memory->ifindex;
	event->length = head->length;
	event->vlan_tci = head->vlan_tci;
	event->be_vlan_proto = head->be_vlan_proto;
	event->hook = memory->hook;
	event->after = after;
}

static __always_inline void count_untold(long failed)
{
	if (failed)
		atomic_add(&trace_totals.lost, 1);
}

/* The event, and as much as is wanted of the frame as it is now. */
static __always_inline void send_frame(hook_ctx *ctx, struct trace_event *event)
{
	event->captured = event->length < trace.snaplen ? event->length : trace.snaplen;
	__u64 flags = BPF_F_CURRENT_CPU | (__u64)event->captured << 32;

	count_untold(bpf_perf_event_output(ctx, &trace_events, flags, event, sizeof(*event)));
}

/* The packet as it came, once it turns out to be one: of the frame there is what the filter has read. */
static __always_inline void send_before(hook_ctx *ctx, struct trace_memory *memory)
{
	begin_event(memory, &memory->before, 0);
	memory->event.captured = memory->before.there;
	__builtin_memcpy(memory->copy, memory->before.bytes, sizeof(memory->copy));
	count_untold(bpf_perf_event_output(ctx, &trace_events, BPF_F_CURRENT_CPU, &memory->event,
					   sizeof(memory->event) + sizeof(memory->copy)));
}

static __noinline int trace_begin(hook_ctx *ctx, __u32 hook)
{
	struct trace_memory *memory = trace_here();

	if (!memory)
		return 0;
	memory->came = bpf_ktime_get_ns();
	memory->open = memory->came < trace_lease;
	if (!memory->open)
		return 0;
	memory->ifindex = hook_ifindex(ctx);
	memory->hook = hook;
	memory->line = memory->family = memory->reason = 0;
	read_head(ctx, &memory->before);
	memory->fits = trace_fits(memory, &memory->before);
	if (!memory->fits || !trace_take(memory) || trace.drops)
		return 0;
	begin_event(memory, &memory->before, 0);
	send_frame(ctx, &memory->event);
	return 0;
}

static __always_inline __u32 verdict_of(__u32 verdict)
{
	if (verdict & (VERDICT_DROP | VERDICT_REPLY))
		return TRACE_DROPS;
	if (verdict & VERDICT_LOCAL)
		return TRACE_IS_LOCAL;
	return verdict & VERDICT_FORWARD ? TRACE_FORWARDS : TRACE_GOES_ON;
}

static __always_inline __u32 flags_of(const struct packet *p)
{
	const struct nexthop *nexthop = nexthop_at(p->nexthop);
	__u32 flags = 0;

	flags |= p->flags & P_KNOWN ? TRACE_KNOWN : 0;
	flags |= p->flags & P_REEVALUATE ? TRACE_REEVALUATED : 0;
	flags |= p->flags & P_NEW ? TRACE_NEW : 0;
	flags |= p->flags & P_CREATED ? TRACE_CREATED : 0;
	flags |= p->flags & P_RELATED ? TRACE_RELATED : 0;
	flags |= p->flags & P_LOCAL ? TRACE_FOR_HOST : 0;
	flags |= p->flags & P_RESPONDER ? TRACE_RESPONDER : 0;
	flags |= nexthop && p->nexthop >= NEXTHOP_FIRST && !(nexthop->flags & NEXTHOP_RESOLVED) ? TRACE_UNRESOLVED : 0;
	return flags;
}

/* What the scratch of this CPU says of the packet. */
static __noinline int read_scratch(struct trace_event *event)
{
	__u32 zero = 0;
	struct packet *p = bpf_map_lookup_elem(&scratch, &zero);

	if (!p)
		return 0;
	event->verdict = verdict_of(p->verdict);
	event->stopped = event->verdict == TRACE_DROPS ? REASON_OF(p->verdict) : 0;
	event->flags = flags_of(p);
	event->line = p->line;
	event->nexthop = p->nexthop;
	event->policy = p->rule_policy;
	event->route_ifindex = p->route.key.host_ifindex;
	event->route_family = p->route.key.family & 0xff;
	for (int i = 0; i < 4; i++)
		event->be_route[i] = p->route.key.be_addr[i];
	event->unit = p->unit_index;
	event->from_zone = p->from_zone;
	event->to_zone = p->to_zone;
	event->nat_destination = p->nat_destination;
	event->nat_source = p->nat_source;
	event->cut = p->cut;
	event->family = p->family;
	event->nat64 = p->nat64;
	return 0;
}

static __always_inline void fill_event(struct trace_memory *memory, __u32 action, __u32 path)
{
	struct trace_event *event = &memory->event;

	begin_event(memory, &memory->after, 1);
	event->action = action;
	event->path = path;
	event->generation = generation.number;
	event->stage_mask = config.stage_mask;
	if (path == TRACE_SHORT) {
		event->line = memory->line;
		event->family = memory->family;
	} else {
		read_scratch(event);
	}
	event->reason = memory->reason;
}

/* It may fit only by what it was translated to. */
static __noinline int trace_end(hook_ctx *ctx, __u32 action, __u32 path)
{
	struct trace_memory *memory = trace_here();

	if (!memory || !memory->open)
		return 0;
	memory->open = 0;
	if (trace.drops && action != HOOK_DROP && !memory->reason)
		return 0;
	if (!memory->fits && !trace.filter.by_packet)
		return 0;
	read_head(ctx, &memory->after);
	if (!memory->fits) {
		if (!trace_fits(memory, &memory->after) || !trace_take(memory))
			return 0;
		if (!trace.drops)
			send_before(ctx, memory);
	}
	fill_event(memory, action, path);
	send_frame(ctx, &memory->event);
	return 0;
}

#ifdef HOOK_XDP
#define trace_comes(ctx) trace_begin(ctx, TRACE_XDP)
#else
#define trace_comes(ctx) trace_begin(ctx, TRACE_INGRESS)
#endif

/* What was judged where it came in is none of the host's own. A copy leaves while its original is on its way. */
static __always_inline void trace_comes_by_host(hook_ctx *ctx)
{
#ifdef HOOK_TC
	struct trace_memory *memory = trace_here();
	__u32 mark = ctx->mark;

	if (GTPU_IS_COPY(mark))
		return;
	if (!CARRIES_VERDICT(mark))
		trace_begin(ctx, TRACE_EGRESS);
	else if (memory)
		memory->open = 0;
#endif
}

static __always_inline int trace_leaves(hook_ctx *ctx, int action, __u32 path)
{
#ifdef HOOK_TC
	if (path == TRACE_HOST && GTPU_IS_COPY(ctx->mark))
		return action;
#endif
	trace_end(ctx, action, path);
	return action;
}

static __always_inline void trace_session(__u32 family, __u32 line)
{
	struct trace_memory *memory = trace_here();

	if (!memory)
		return;
	memory->family = family;
	memory->line = line;
}

static __always_inline void trace_reason(__u32 why)
{
	struct trace_memory *memory = trace_here();

	if (memory)
		memory->reason = why;
}

#endif
