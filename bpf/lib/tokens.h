/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Token buckets: so many a second, and as many at once after a pause. */
#ifndef SLUICE_LIB_TOKENS_H
#define SLUICE_LIB_TOKENS_H

#include "maps.h"

/*
 * Refills by elapsed ticks. One thing costs as many tokens as there are ticks in a second, so a tick adds a whole
 * number of them, however long it is. Two CPUs may refill at once; the bound then is soft by one tick's worth.
 */
static __always_inline bool tokens_take(struct token_bucket *bucket, __u32 now, __u32 rate_per_second)
{
	__u32 elapsed = now - bucket->tick, ahead = bucket->tick - now;

	/* another CPU may have looked at the clock after this one did */
	if (elapsed && ahead > config.hz) {
		__u64 tokens = bucket->tokens + (__u64)elapsed * rate_per_second;
		__u64 full = (__u64)rate_per_second * config.hz;

		bucket->tick = now;
		bucket->tokens = tokens > full ? full : tokens;
	}
	if (bucket->tokens < config.hz)
		return false;
	bucket->tokens -= config.hz;
	return true;
}

#endif
