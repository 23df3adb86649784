/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Fragments carry no ports, so no session can be found for them: the named drop, until they follow their first. */
#ifndef SLUICE_STAGE_FRAGMENT_H
#define SLUICE_STAGE_FRAGMENT_H

#include "lib/packet.h"

static __always_inline int stage_fragment(hook_ctx *ctx, struct packet *p)
{
	return p->flags & P_FRAGMENT ? DROP(FRAGMENT) : CONTINUE;
}

#endif
