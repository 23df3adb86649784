// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The measuring harness on the XDP hook. */
#define HOOK SEC("xdp.frags")
#define CTX struct xdp_md
#define DROP XDP_DROP
#define ABORT XDP_ABORTED
#define RESET(ctx)

#include "bench/harness.h"
