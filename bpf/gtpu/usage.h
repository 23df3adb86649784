/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Usage of a session and its quota (TS 29.244 5.2.2.2). No map stands here: the bench counts by the same statements. */
#ifndef SLUICE_GTPU_USAGE_H
#define SLUICE_GTPU_USAGE_H

#include "abi/gtpu.h"
#include "lib/bpf.h"

/* CPUs that meet at one line; whoever loses so often is beyond the rate of any session. */
#define GTPU_TRIES 16

/* To the byte, however many CPUs there are. */
static __always_inline bool gtpu_take(struct gtpu_line *line, __u32 len)
{
	__u64 quota = *(volatile __u64 *)&line->quota;

	if (quota == GTPU_FOREVER) {
		atomic_add(&line->bytes, len);
		return true;
	}
	for (int i = 0; i < GTPU_TRIES; i++) {
		__u64 bytes = *(volatile __u64 *)&line->bytes;

		if (bytes + len > quota)
			return false;
		if (__sync_val_compare_and_swap(&line->bytes, bytes, bytes + len) == bytes)
			return true;
	}
	return false;
}

/* A packet that passes; one that exceeds the quota is not counted. */
static __always_inline bool gtpu_count(struct gtpu_line *line, __u32 len)
{
	if (!gtpu_take(line, len))
		return false;
	atomic_add(&line->packets, 1);
	return true;
}

#endif
