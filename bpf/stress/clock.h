/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the test asks of functions that look at the clock; see clock.bpf.c. */
#ifndef SLUICE_STRESS_CLOCK_H
#define SLUICE_STRESS_CLOCK_H

#include <linux/types.h>

#define ASK_REPLY 0         /* one answer of a bucket that has `tokens` since `then`: may it leave? */
#define ASK_RATE 1          /* how many packets of this second, after one at `then`? */
#define ASK_KNOWN 2         /* is a source known that was learned at `then`? */
#define ASK_FRAGMENT 3      /* is the time of a datagram over that began at `then`? */
#define ASK_IDLE 4          /* does the sweep end what was idle since `then`, if it may be for `limit_s`? */
#define ASK_NAT_FULL 5      /* was an address full just now that was so at `then`? */
#define ASK_GRANT_USED 6    /* is the use of a grant written down that was last used at `then`? */
#define ASK_SCREEN_LOGGED 7 /* is a screen told of that was told of at `then`? */

struct clock_question {
	__u32 ask;
	__u32 then; /* jiffies, as `now` */
	__u32 now;
	__u32 limit_s;
	__u32 tokens;
	__u32 tick; /* of the bucket, out */
	__u32 answer;
	__u32 number; /* of the question: its source address, so that none counts for another */
};
_Static_assert(sizeof(struct clock_question) == 32, "clock_question has no hidden padding");

#endif
