/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where a trace looks at packets. The programs are compiled twice: with SLUICE_TRACE for those that stand in the slots
 * while somebody traces, and without it, which leaves nothing of this.
 */
#ifndef SLUICE_TRACE_HOOKS_H
#define SLUICE_TRACE_HOOKS_H

#ifdef SLUICE_TRACE
#include "trace/trace.h"
#else
#define trace_comes(ctx)
#define trace_comes_by_host(ctx)
#define trace_session(family_of, line_of)
#define trace_reason(why)
#define trace_leaves(ctx, action, path) (action)
#endif

#endif
