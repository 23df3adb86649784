// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Adds what an earlier state has counted to the counters of the present one. Nobody counts there any more, but here
 * programs do: their counters are plain words of one CPU, so whoever adds to them must be on that CPU with softirqs
 * off, as a test run is. What was added is taken away there in the same run, so a crash counts nothing twice.
 */
#include "lib/bpf.h"
#include "abi/abi.h"

/* Counters of one element of either map, in words. */
struct widths {
	__u32 from;
	__u32 to;
};
const volatile struct widths widths SEC(".rodata.widths") = {};

/* The placeholders become the two maps. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} from SEC(".maps"), to SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CARRY_WORDS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct carry_word);
} carry_words SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct carry_order);
} carry_order SEC(".maps");

static __always_inline void carry_cpu(__u64 *old, __u64 *new, __u32 words)
{
	__u32 n;

	bpf_for (n, 0, words) {
		__u32 key = n;
		struct carry_word *word = bpf_map_lookup_elem(&carry_words, &key);

		if (!word)
			return;
		__u32 old_at = word->from, new_at = word->to;

		barrier_var(old_at);
		barrier_var(new_at);
		if (old_at >= widths.from || new_at >= widths.to)
			return;
		__u64 count = old[old_at];

		if (!count)
			continue;
		new[new_at] += count;
		old[old_at] = 0;
	}
}

SEC("xdp")
int xdp_carry(struct xdp_md *ctx)
{
	__u32 zero = 0, i, cpu;
	struct carry_order *order = bpf_map_lookup_elem(&carry_order, &zero);

	if (!order)
		return XDP_ABORTED;
	__u32 words = order->words;

	bpf_for (i, order->first, order->end) {
		__u32 key = i;
		__u64 *new = bpf_map_lookup_elem(&to, &key);

		if (!new)
			return XDP_ABORTED;
		bpf_for (cpu, 0, MAX_CPUS) {
			__u64 *old = bpf_map_lookup_percpu_elem(&from, &key, cpu);

			if (!old)
				break;
			carry_cpu(old, new, words);
		}
	}
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
