// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What programs find in the tables of a generation, for a test that knows what is there. */
#include "maps.h"
#include "stress/tables.h"

ARRAY_MAP(probes, struct table_probe, 1, BPF_F_MMAPABLE);

/* First word of an entry's first and last line; TABLE_MISS where there is no entry. */
#define TABLE(ID, name, entry, most, source, help)                                                                     \
	{                                                                                                              \
		const __u64 *found = (const void *)name##_at(index);                                                   \
		const __u64 *last = table_at(TABLE_##ID, sizeof(struct entry), index,                                  \
					     (sizeof(struct entry) - 1) / TABLE_LINE_BYTES);                           \
                                                                                                                       \
		probe->first[TABLE_##ID] = found ? *found : TABLE_MISS;                                                \
		probe->last[TABLE_##ID] = last ? *last : TABLE_MISS;                                                   \
	}

SEC("xdp")
int probe_tables(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct table_probe *probe = bpf_map_lookup_elem(&probes, &zero);

	if (!probe)
		return XDP_ABORTED;
	__u32 index = probe->index;

#include "tables.def"
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
