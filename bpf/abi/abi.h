/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Everything shared with user space; `crates/abi` is generated from here. */
#ifndef SLUICE_ABI_H
#define SLUICE_ABI_H

#include "limits.h"
#include "flow.h"
#include "flow_index.h"
#include "unit.h"
#include "nexthop.h"
#include "classifier.h"
#include "policy.h"
#include "counters.h"
#include "control.h"
#include "event.h"
#include "dropped.h"
#include "trace.h"
#include "screen.h"
#include "fragment.h"
#include "sweep.h"
#include "session_limits.h"
#include "nat64.h"
#include "fanout.h"
#include "nat.h"
#include "nat_binding.h"
#include "gate.h"
#include "gtpu.h"
#include "generation.h"
#include "carry.h"

#endif
