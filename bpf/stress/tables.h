/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SLUICE_STRESS_TABLES_H
#define SLUICE_STRESS_TABLES_H

#include "abi/abi.h"

#define TABLE_MISS ((__u64) - 1)

struct table_probe {
	__u32 index;
	__u32 zero;
	__u64 first[TABLE_COUNT];
	__u64 last[TABLE_COUNT];
};

#endif
