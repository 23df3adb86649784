// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The measuring harness on the tc hook. The buffer is one for all repeats, so a verdict's mark is taken off. */
#define HOOK SEC("tc")
#define CTX struct __sk_buff
#define DROP TC_ACT_SHOT
#define ABORT TC_ACT_SHOT
#define RESET(ctx) ((ctx)->mark = 0)

#include "bench/harness.h"
