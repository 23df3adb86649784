/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Screen `tcp land`: a packet whose source is its destination makes a host talk to itself. The smallest stage there is,
 * and the pattern for the next. */
#ifndef SLUICE_STAGE_LAND_H
#define SLUICE_STAGE_LAND_H

#include "maps.h"

static __always_inline int stage_land(hook_ctx *ctx, struct packet *p)
{
	struct unit *unit = unit_at(p->unit_slot);

	if (!unit || !(unit->flags & UNIT_SCREEN_LAND))
		return CONTINUE;
	if (p->family == 4)
		return p->key4.be_saddr == p->key4.be_daddr ? DROP(LAND) : CONTINUE;
	for (int i = 0; i < 4; i++)
		if (p->key6.be_saddr[i] != p->key6.be_daddr[i])
			return CONTINUE;
	return DROP(LAND);
}

#endif
