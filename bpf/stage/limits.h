/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* `limit-session` of the screen of the zone a session comes from. */
#ifndef SLUICE_STAGE_LIMITS_H
#define SLUICE_STAGE_LIMITS_H

#include "flow_table.h"
#include "lib/screen.h"

static __always_inline __u64 limit_hash_of(const struct packet *p, __u32 which)
{
	if (p->family == 4)
		return limit_hash4(p->from_zone, which, which == LIMIT_SOURCE ? p->key4.be_saddr : p->key4.be_daddr);
	return limit_hash6(p->from_zone, which, which == LIMIT_SOURCE ? p->key6.be_saddr : p->key6.be_daddr);
}

/* Takes back what limits_enter() counted: there is no session. */
static __noinline int limits_withdraw(struct packet *p)
{
	if (!p)
		return 0;
	if (p->limited & LIMIT_SOURCE)
		limit_leave(limit_hash_of(p, LIMIT_SOURCE));
	if (p->limited & LIMIT_DESTINATION)
		limit_leave(limit_hash_of(p, LIMIT_DESTINATION));
	p->limited = 0;
	return 0;
}

static __noinline int limit_one(struct packet *p, __u32 which, __u32 limit, __u32 alarm_only)
{
	if (!p)
		return DROP(SESSION_LIMIT_TABLE);
	__u32 reason = which == LIMIT_SOURCE ? REASON_SOURCE_SESSION_LIMIT : REASON_DESTINATION_SESSION_LIMIT;
	int result = limit_enter(limit_hash_of(p, which), limit, alarm_only);

	if (result == LIMIT_REACHED)
		screen_count(p, reason, alarm_only);
	if (result == LIMIT_COUNTED || (result == LIMIT_REACHED && alarm_only)) {
		p->limited |= which;
		return CONTINUE;
	}
	if (alarm_only)
		return CONTINUE; /* not counted, so not taken off either */
	return VERDICT_DROP | (result == LIMIT_REACHED ? reason : REASON_SESSION_LIMIT_TABLE);
}

static __noinline int limits_enter(struct packet *p)
{
	if (!p)
		return DROP(SESSION_LIMIT_TABLE);
	__u32 zone = p->from_zone;
	struct zone_limits *limits = zone_limits_at(zone);
	int verdict = CONTINUE;

	p->limited = 0;
	if (!limits)
		return CONTINUE;
	if (limits->source)
		verdict = limit_one(p, LIMIT_SOURCE, limits->source, limits->alarm_only);
	if (verdict == CONTINUE && limits->destination) {
		verdict = limit_one(p, LIMIT_DESTINATION, limits->destination, limits->alarm_only);
		if (verdict != CONTINUE)
			limits_withdraw(p);
	}
	return verdict;
}

#endif
