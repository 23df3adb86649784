// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Work for the verifier that is always the same, to tell how fast this machine verifies: it walks the loop turn by
 * turn, both ways of each branch. Never run.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#define TURNS 2500

SEC("xdp")
int yardstick(struct xdp_md *ctx)
{
	__u8 *end = (__u8 *)(long)ctx->data_end;
	__u64 kept[8] = {};
	__u32 sum = 0;

	for (int turn = 0; turn < TURNS; turn++) {
		__u8 *at = (__u8 *)(long)ctx->data + (bpf_get_prandom_u32() & 0xff);

		if (at + 2 > end)
			break;
		sum += at[0] + at[1];
		kept[turn & 7] ^= sum;
	}
	return kept[sum & 7] & XDP_PASS;
}

char _license[] SEC("license") = "GPL";
