// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Random operations on the flow table, as fast as they go: the test runs this on several CPUs at once, then audits. */
/* IPv6 and the log stay out. */
#pragma clang diagnostic ignored "-Wunused-function"

#include "flow_table.h"
#include "stress/stress.h"

#define STRESS_CPUS 64

ARRAY_MAP(stresses, struct stress, STRESS_CPUS, BPF_F_MMAPABLE);
/* How often each session is there: more or less than 0 or 1 at rest is a fault. */
ARRAY_MAP(presence, __u64, 1, BPF_F_MMAPABLE);

static __always_inline __u64 next_random(struct stress *stress)
{
	__u64 x = stress->random;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	stress->random = x;
	return x;
}

static __always_inline void key_of(__u32 number, struct flow_key4 *key)
{
	key->be_saddr = number;
	key->be_daddr = 0x0a000001;
	((__u64 *)key)[1] = key_last_word(0x00350035, 0, IPPROTO_UDP);
}

/* Every other session needs an extension, which says whose it is as well. */
static __always_inline bool needs_extension(__u32 number)
{
	return number & 1;
}

/* As gate/grant.h reads it: a session that is just ending has its next tag already, and then its line says the same. */
static __always_inline bool stress_extended(const struct flow_line4 *line, __u32 session, __u32 number, __u16 tag)
{
	const struct flow_extension *extension = flow_extension_at(4, session);

	if (!needs_extension(number) || !extension)
		return !(line->state.marks & MARK_EXTENDED);
	__u32 held = *(volatile __u32 *)&line->grant;

	if (extension->needs && *(volatile __u16 *)&extension->tag == tag)
		held = *(volatile __u32 *)&extension->grant;
	return (line->state.marks & MARK_EXTENDED) && held == number;
}

/* The record says whose it is; a reader that finds another's, and no sign of a change, has read a torn one. */
static __noinline int stress_find(struct stress *stress, __u32 number)
{
	struct flow_key4 key ALIGNED_KEY;
	__u32 line = 0;

	if (!stress)
		return 0;
	key_of(number, &key);
	struct flow_state *state = flow_find4(&key, flow_hash4(config.seed, &key), &line, FLOW_BUCKET_SLOTS);

	if (!state)
		return 0;
	__u16 tag = *(volatile __u16 *)&state->tag;

	/* what was read counts while tag and life are the same before and after */
	if (!flow_has_tag(state, tag))
		return 1;
	__u64 bytes = *(volatile __u64 *)&state->bytes;
	struct flow_line4 *record = bpf_map_lookup_elem(&lines4, &line);
	bool same = record && key_equal4(&record->key, &key);

	bool extended = record && stress_extended(record, line >> 1, number, tag);

	if (flow_has_tag(state, tag) && same && (bytes != number || !extended))
		stress->torn++;
	return 1;
}

static __always_inline void stress_fill(struct flow_state *state, __u64 number)
{
	state->flags = 0;
	ordered();
	state->bytes = number;
	state->marks = needs_extension(number) ? MARK_EXTENDED : 0;
	state->packets = 0;
	state->last_seen = jiffies_now();
	ordered();
	state->flags = FLOW_LIVE;
}

static __noinline int stress_insert(struct stress *stress, __u32 number)
{
	struct flow_key4 key ALIGNED_KEY, reply ALIGNED_KEY;
	__u32 session = flow_allocate(4), forward = 2 * session, back = forward + 1;
	struct flow_line4 *line0 = bpf_map_lookup_elem(&lines4, &forward);
	struct flow_line4 *line1 = bpf_map_lookup_elem(&lines4, &back);
	struct flow_shared *shared = bpf_map_lookup_elem(&shared4, &session);
	__u32 *unanswered = unanswered_of(4);
	__u64 *present = bpf_map_lookup_elem(&presence, &number);

	if (!stress)
		return 0;
	if (!session || !line0 || !line1 || !shared || !unanswered || !present) {
		stress->refused++;
		return 0;
	}
	struct flow_extension *extension = flow_extension_at(4, session);

	if (needs_extension(number) && extension) {
		struct flow_extension filled = {.tag = line0->state.tag + 1, .needs = EXTENSION_GRANT, .grant = number};

		*extension = filled;
	}
	key_of(number, &key);
	flow_reverse4(&key, &reply);
	line1->state.tag = ++line0->state.tag;
	ordered();
	line0->key = key;
	line1->key = reply;
	line0->grant = line1->grant = number;
	stress_fill(&line0->state, number);
	stress_fill(&line1->state, number);
	atomic_add(unanswered, 1);
	int result = flow_insert4(&key, &reply, flow_hash4(config.seed, &key), flow_hash4(config.seed, &reply), session,
				  line0->state.tag);

	if (result == INSERTED) {
		atomic_add(present, 1);
		stress->inserted++;
	} else {
		line0->state.flags = 0;
		flow_end(4, &line1->state);
		if (result != INSERT_STUCK)
			flow_release(4, session);
		stress->twins += result == INSERT_TWIN || result == INSERT_CONFLICT;
		stress->refused += result == INSERT_FULL;
		stress->busy += result == INSERT_BUSY || result == INSERT_STUCK;
	}
	flow_prepare_next(4);
	return 0;
}

static __noinline int stress_end(struct stress *stress, __u32 number)
{
	struct flow_key4 key ALIGNED_KEY;
	__u32 line = 0;
	__u64 *present = bpf_map_lookup_elem(&presence, &number);

	if (!stress || !present)
		return 0;
	key_of(number, &key);
	struct flow_state *state = flow_find4(&key, flow_hash4(config.seed, &key), &line, FLOW_BUCKET_SLOTS);

	__u16 tag = state ? *(volatile __u16 *)&state->tag : 0;

	if (state && flow_has_tag(state, tag) && *(volatile __u64 *)&state->bytes == number &&
	    flow_delete4(line, tag, CLOSE_CLEARED)) {
		atomic_add(present, -1);
		stress->ended++;
	} else {
		stress->not_ended++;
	}
	return 0;
}

static __always_inline void stress_once(struct stress *stress)
{
	__u64 random = next_random(stress);
	__u32 kind = random & 7, number = (__u32)(random >> 32);

	if (kind == 3 && stress->stable) {
		if (!stress_find(stress, number % stress->stable))
			stress->stable_lost++;
		return;
	}
	number %= stress->keys ? stress->keys : 1;
	if (kind < 4) {
		if (stress_find(stress, number))
			stress->found++;
		else
			stress->missed++;
	} else if (kind < 6) {
		stress_insert(stress, number);
	} else if (number >= stress->stable) {
		stress_end(stress, number);
	}
}

SEC("xdp")
int stress_run(struct xdp_md *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id(), i;
	struct stress *stress = bpf_map_lookup_elem(&stresses, &cpu);

	if (!stress)
		return XDP_ABORTED;
	bpf_for (i, 0, stress->ops) {
		stress_once(stress);
	}
	return XDP_PASS;
}

/* Sessions that stay: the first `stable` ones. */
SEC("xdp")
int stress_settle(struct xdp_md *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id(), i;
	struct stress *stress = bpf_map_lookup_elem(&stresses, &cpu);

	if (!stress)
		return XDP_ABORTED;
	bpf_for (i, 0, stress->stable) {
		stress_insert(stress, i);
	}
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
