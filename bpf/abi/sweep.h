/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The sweep: a walk over the flow table that ends idle sessions, driven by a kernel timer. */
#ifndef SLUICE_ABI_SWEEP_H
#define SLUICE_ABI_SWEEP_H

#include <linux/types.h>

/* Idle times after which sessions end, by what they are. */
#define TIMEOUT_TCP_INITIAL 0 /* opening */
#define TIMEOUT_TCP 1         /* established */
#define TIMEOUT_TCP_HALF 2    /* one side has said FIN */
#define TIMEOUT_TCP_CLOSED 3  /* both sides have */
#define TIMEOUT_UDP 4
#define TIMEOUT_ICMP 5
#define TIMEOUT_OTHER 6
#define TIMEOUT_TCP_RESET 7 /* a reset was seen, which its receiver need not have believed */
#define TIMEOUT_KINDS 8

#define TIMEOUT_FOREVER 0xffff /* of flow_shared.timeout_s: idle time does not end it */

struct sweep_limits {
	__u32 timeout_s[8];    /* by TIMEOUT_* */
	__u32 early_ageout_s;  /* caps all of them while the table is too full; 0 = never */
	__u32 high_watermark4; /* sessions from which on it does ... */
	__u32 high_watermark6;
	__u32 low_watermark4; /* ... until there are fewer than this */
	__u32 low_watermark6;
	__u32 spare[3];
};
_Static_assert(sizeof(struct sweep_limits) == 64, "sweep_limits has no hidden padding");

#define SWEEP_OF_TIMER 0
#define SWEEP_OF_RUN 1 /* a whole pass at once, for tests and measurements */
#define SWEEPS 2

#define SWEEP_TICK_NS 2000000ull
#define SWEEP_BUSY_NS 250000ull     /* the next tick when this one had to stop early */
#define SWEEP_PASS_NS 1000000000ull /* from the start of a pass to the next, where the table's size lets it */
#define SWEEP_SESSIONS 2048         /* looked at in a tick ... */
#define SWEEP_ENDS 128              /* ... and ended at most: a tick keeps below 70 us of softirq time */

#define SWEEP_BINDINGS 1 /* the part behind sessions: bindings of persistent-nat */

struct sweep {
	__u32 family; /* 4 or 6: the part under way; SWEEP_BINDINGS; 0 = between passes */
	__u32 cursor; /* next session number */
	__u32 now;    /* jiffies; SWEEP_OF_RUN: set by who asks */
	__u32 live;   /* sessions that remain, of this part so far */
	__u32 live4;  /* of the last whole pass */
	__u32 live6;
	__u32 early4; /* early ageout is in force */
	__u32 early6;
	__u64 expired4;
	__u64 expired6;
	__u64 aged; /* lines whose stamp was brought near the current one */
	__u64 passes;
	__u64 ticks;
	__u64 started_ns; /* of this pass */
	__u64 unbound;    /* bindings that ended idle */
	__u32 bound;      /* the pass under way looks at bindings too */
	__u32 zero;
	__u64 spare[4];
};
_Static_assert(sizeof(struct sweep) == 128, "sweep has no hidden padding");

#endif
