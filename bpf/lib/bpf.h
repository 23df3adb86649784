/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Kernel and libbpf headers, and the little that older distributions' headers lack. */
#ifndef SLUICE_LIB_BPF_H
#define SLUICE_LIB_BPF_H

#include <stdbool.h>
#include <stddef.h>

/* linux/bpf.h has this iterator since 6.4; ours serves every version, and only its size matters. */
#define bpf_iter_num kernel_bpf_iter_num
#include <linux/bpf.h>
#undef bpf_iter_num
struct bpf_iter_num {
	__u64 opaque[1];
} __attribute__((aligned(8)));

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include <bpf/bpf_core_read.h> /* needs the one before */

#define AF_INET 2
#define AF_INET6 10
#define EEXIST 17

/* Keeps the compiler from merging or hoisting what the verifier must see. */
#define barrier() asm volatile("" ::: "memory")
#define barrier_var(var) asm volatile("" : "+r"(var))

/* atomics whose result is not used: one locked instruction */
#define atomic_add(pointer, value) ((void)__sync_fetch_and_add((pointer), (value)))

/* Lowest set bit of a word that has one: how many bits are below it. Without branches, which the verifier would follow.
 */
static __always_inline __u32 lowest_of_word(__u64 word)
{
	__u64 below = (word & -word) - 1;

	below -= below >> 1 & 0x5555555555555555;
	below = (below & 0x3333333333333333) + (below >> 2 & 0x3333333333333333);
	below = (below + (below >> 4)) & 0x0f0f0f0f0f0f0f0f;
	return below * 0x0101010101010101 >> 56;
}

#endif
