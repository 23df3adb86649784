/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* `security flow tcp-mss`: a SYN that announces a larger maximum segment size announces this one (RFC 9293 3.7.1). */
#ifndef SLUICE_LIB_MSS_H
#define SLUICE_LIB_MSS_H

#include "maps.h"

#define TCP_OPTION_END 0
#define TCP_OPTION_NOTHING 1
#define TCP_OPTION_MSS 2
#define TCP_CHECK_FIELD 16

/* Writes a smaller value into the option at `at` and corrects the checksum for it. */
static __always_inline void mss_lower(hook_ctx *ctx, struct packet *p, __u32 at)
{
	__u8 *value = hook_data(ctx) + (p->l4 & 0x3fff) + at + 2;

	if ((void *)(value + 2) > hook_end(ctx))
		return;
	__u32 high = value[0], low = value[1];

	if ((high << 8 | low) <= p->mss)
		return;
	__u8 new_high = p->mss >> 8, new_low = p->mss;

	value[0] = new_high;
	value[1] = new_low;
	/* at an odd place the value's bytes stand in the other halves of two words of the sum */
	if (at & 1)
		hook_l4_check(ctx, p->l4 & 0x3fff, TCP_CHECK_FIELD, bpf_htons(low << 8 | high),
			      bpf_htons(new_low << 8 | new_high));
	else
		hook_l4_check(ctx, p->l4 & 0x3fff, TCP_CHECK_FIELD, bpf_htons(high << 8 | low),
			      bpf_htons(new_high << 8 | new_low));
}

/* Walks the TCP options as far as the maximum segment size; what is malformed is left to the receiver. */
static __noinline int mss_clamp(hook_ctx *ctx, struct packet *p)
{
	__u32 i;

	if (!p)
		return 0;
	p->option_at = sizeof(struct tcphdr);
	bpf_for (i, 0, 40) {
		__u32 at = p->option_at & 0x3f, end = p->ip_len - p->ip_header_len - p->payload;
		__u8 *option = hook_data(ctx) + (p->l4 & 0x3fff) + at;

		/* the shortest one looked for has four bytes */
		if (at + 4 > end || (void *)(option + 4) > hook_end(ctx) || option[0] == TCP_OPTION_END)
			break;
		if (option[0] == TCP_OPTION_NOTHING) {
			p->option_at = at + 1;
			continue;
		}
		__u32 length = option[1];

		if (length < 2 || at + length > end)
			break;
		if (option[0] == TCP_OPTION_MSS && length == 4) {
			mss_lower(ctx, p, at);
			break;
		}
		p->option_at = at + length;
	}
	return 0;
}

#endif
