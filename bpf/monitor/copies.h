/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the monitor and its programs share. */
#ifndef SLUICE_MONITOR_COPIES_H
#define SLUICE_MONITOR_COPIES_H

#include <linux/types.h>

/* Power of two; a quarter of a second of small frames at a million a second. */
#define COPIES_RING_BYTES (64 << 20)

/* A copy takes room for its frame rounded up to one of these; of a longer frame its beginning is copied. */
#define COPY_SHORT 232
#define COPY_MIDDLE 744
#define COPY_LONG 2024

struct copy {
	__u64 time_ns;  /* CLOCK_MONOTONIC */
	__u32 wire_len; /* of the frame, without the tag that the kernel took off */
	__u16 captured; /* bytes of it that follow */
	__u16 vlan_tci; /* of that tag, if be_vlan_tpid is not 0 */
	__u16 be_vlan_tpid;
	__u8 spare[6];
};
_Static_assert(sizeof(struct copy) == 24, "copy has no hidden padding");

struct copies_config {
	__u32 most_per_millisecond; /* and CPU */
	__u32 everything;           /* also frames that the monitor does not follow */
};

/* Frames that were to be copied and were not. */
struct copies_lost {
	__u64 full; /* the buffer had no room */
	__u64 rate; /* more a millisecond than the data plane gives */
};

#endif
