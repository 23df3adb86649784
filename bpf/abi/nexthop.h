/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Next hops: written by the slow path from the kernel's FIB, refreshed by the daemon from neighbour events. */
#ifndef SLUICE_ABI_NEXTHOP_H
#define SLUICE_ABI_NEXTHOP_H

#include <linux/types.h>

#include "limits.h"

#define NEXTHOP_VALID 0x01
#define NEXTHOP_RESOLVED 0x02 /* dmac is known; otherwise packets are handed to the kernel's neighbour code */
#define NEXTHOP_TUNNEL 0x04   /* a mobile interface: packets go into the tunnels of whom they are for (gtpu.h) */
#define NEXTHOP_LEFT 0x08     /* no route leads there any more: its flows are judged again at once, beyond the limit */

struct nexthop {
	__u8 dmac[6]; /* dmac lies in one aligned 8-byte word, so a change is never seen torn */
	__u8 smac[6];
	__u32 ifindex; /* netdev the frame leaves through, perhaps with LEAVES_BY_KERNEL */
	__u32 vlan;    /* tags on that netdev, VLAN_* of abi/unit.h, 0 = none */
	__u16 mtu;     /* largest IP packet: least of route and unit */
	__u8 zero;
	__u8 flags;         /* NEXTHOP_* */
	__u32 host_ifindex; /* netdev whose neighbour table resolves it */
	__u32 last_used;    /* low 32 bits of jiffies of the last slow-path use */
};
_Static_assert(sizeof(struct nexthop) == 32, "nexthop is half a cache line");

/* Routes that share a neighbour need not share an MTU: each has its entry (RFC 1191 6.2, RFC 8201 5.2). */
#define NEXTHOP_MTU_SHIFT 16

struct nexthop_key {
	__u32 host_ifindex;
	__u32 family; /* 4 or 6; above NEXTHOP_MTU_SHIFT the route's MTU, where it is less than the unit's */
	__u32 be_addr[4];
};
_Static_assert(sizeof(struct nexthop_key) == 24, "nexthop_key is 24 bytes");

#define NEXTHOP_MEMORY_SHIFT 28
#define NEXTHOP_MEMORY (1 << (32 - NEXTHOP_MEMORY_SHIFT))

/* What `nexthop_index` said, remembered by each CPU. `nexthops_retired` is the watermark of before it was asked. */
struct nexthop_memory {
	struct nexthop_key key;
	__u32 index; /* 0 = nothing */
	__u32 nexthops_retired;
};
_Static_assert(sizeof(struct nexthop_memory) == 32, "nexthop_memory is 32 bytes");

#endif
