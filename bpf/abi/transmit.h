/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What becomes of frames that XDP programs give to devices: they pass no egress program, so the kernel's tracepoints
 * are asked. */
#ifndef SLUICE_ABI_TRANSMIT_H
#define SLUICE_ABI_TRANSMIT_H

#include <linux/types.h>

/* A device whose frames are counted. Its value is the mark of the program that counts them. */
struct transmit_device {
	__u32 netns; /* inode of its network namespace: others have devices of the same index */
	__u32 ifindex;
};

/* Of all of them together: what was counted outlives the device. */
struct transmit_counters {
	__u64 sent;
	__u64 refused; /* by the driver, or by the kernel on its behalf */
};

#endif
