/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the daemon writes while packets flow, and what is frozen into a program when it is loaded. */
#ifndef SLUICE_ABI_CONTROL_H
#define SLUICE_ABI_CONTROL_H

#include <linux/types.h>

/*
 * The word `active` (its own mmapable section, shared by every object of both hooks):
 *   bit 0        which of the two generations' programs run
 *   bits 1..15   generation of the routes: raised by what the kernel says of routes, addresses and links
 *   bits 16..31  stamp: raised by every commit, and with the generation of the routes; a line whose stamp differs is
 *                re-evaluated
 * What lies between both is the epoch, which commits alone raise: decisions of another epoch are void, while routes
 * that have changed only ask for the way. One 4-byte store switches everything.
 */
#define ACTIVE_SLOT(word) ((word) & 1)
#define ACTIVE_ROUTES(word) ((word) >> 1 & EPOCH_MASK)
#define ACTIVE_STAMP(word) ((word) >> 16)
#define ACTIVE_EPOCH(word) ((((word) >> 16) - ((word) >> 1)) & EPOCH_MASK)
#define EPOCH_MASK 0x7fff

/* Programs of a generation; PROGRAM_EGRESS is there in variant 0 only. */
enum program {
#define PROGRAM(ID, name, hook, needs, help) PROGRAM_##ID,
#include "../programs.def"
#undef PROGRAM
	PROGRAM_KINDS,
};

/* Slot of a program in the PROG_ARRAYs. */
#define PROGRAM_SLOT(slot, variant, kind) (((slot) * MAX_VARIANTS + (variant)) * PROGRAM_KINDS + (kind))
#define PROGRAM_SLOTS (MAX_GENERATIONS * MAX_VARIANTS * PROGRAM_KINDS)

#define CONFIG_PERSISTENT_NAT 0x4 /* some rule of source NAT has persistent-nat */
#define CONFIG_KERNEL_INDEX 0x2   /* the index is the kernel's hash `stash*` alone; buckets only lend their locks */
#define CONFIG_ON_CPU 0x10        /* behind a CPUMAP: packets that another CPU took from their device */
#define CONFIG_WEAK_ORDER 0x8     /* this machine keeps neither stores nor loads in order, as x86 does */

/* Frozen with a fast or slow program: what removes code, and what lasts as long as the state does. */
struct program_config {
	__u32 slot; /* ACTIVE_SLOT this program belongs to */
	__u32 variant;
	__u32 stage_mask; /* STAGE_BIT()s of the optional stages */
	__u32 reevaluated_per_tick;
	__u32 sessions4; /* sizes of the flow tables, in sessions */
	__u32 sessions6;
	__u32 bucket_mask4; /* buckets of the flow index, less one; a power of two of them */
	__u32 bucket_mask6;
	__u32 hz;         /* jiffies a second */
	__u32 flags;      /* CONFIG_* */
	__u64 seed;       /* of the flow hash, as in `watermarks` */
	__u32 grant_mask; /* buckets of the index of grants, less one; a power of two of them */
	__u16 gate_unit;  /* index of the unit that the gate alone stands before, and its zone */
	__u16 gate_zone;
	__u32 source_mask; /* words of `grant_sources`, less one; a power of two of them */
	__u32 grant_pace;  /* jiffies, a power of two of them less one, in which established packets ask for their grant
			      once */
	__u32 nat_binding_slots; /* records of `nat_bindings`, but the first */
	__u32 gtpu_uplink_shift; /* of the hash of lines, see gtpu.h */
	__u32 gtpu_downlink_shift;
	__u32 zero;
};

/* Bit of `nexthops_retired`: some entry has a route's MTU in its key, so one neighbour may have several. */
#define NEXTHOPS_HAVE_MTUS 0x80000000u

/* Highest record numbers ever handed out; freed ones wait in the `free*` queues. */
struct watermarks {
	__u32 session4; /* sessions are numbered from 1; session s owns lines 2s and 2s + 1 */
	__u32 session6;
	__u32 nexthop;          /* entries are numbered from NEXTHOP_FIRST; this counts them */
	__u32 nexthops_retired; /* changes after entries have left `nexthop_index`: who remembers one must ask anew */
	__u64 seed;             /* of the flow hash: drawn when the table is made, and lives as long */
};

/* Live sessions that wait for an answer, one cache line a family. */
struct unanswered {
	__u32 count4;
	__u32 spare4[15];
	__u32 count6;
	__u32 spare6[15];
};
_Static_assert(sizeof(struct unanswered) == 128, "unanswered is two cache lines");

/* The numbers of the sessions a CPU makes next; 0 = none. */
struct spare_sessions {
	__u32 session4;
	__u32 session6;
};

/* skb mark of packets that carry a verdict of this data plane; it never leaves the host. */
#define VERDICT_MARK 0x51ce0001
#define HANDOFF_MARK 0x51ce0002 /* and of one that waits in the kernel for its neighbour */
#define PIECE_MARK 0x51ce0003   /* and of a fragment that the daemon has cut, see nat64.h */

/* Of packets that come out of the far end of a mobile interface and are not the host's own, see gtpu.h. */
#define GTPU_COPIED_MARK 0x51ce0004 /* to a subscriber, and its copy was made */
/* Of a copy: by direction, and in the low half what says where it goes: a set of rules, or a flow of a set of filters.
 */
#define GTPU_COPY_MARK(DIRECTION, RULES) (0x51d00000 | (__u32)(DIRECTION) << 16 | (RULES))
#define GTPU_COPY_BY_FLOW 0x40000
#define GTPU_FLOW_COPY_MARK(DIRECTION, FILTERS, FLOW)                                                                  \
	(GTPU_COPY_MARK(DIRECTION, (FILTERS) * GTPU_FLOWS + (FLOW)) | GTPU_COPY_BY_FLOW)
#define GTPU_IS_COPY(MARK) (((MARK) & ~(GTPU_COPY_BY_FLOW | 0x1ffff)) == GTPU_COPY_MARK(0, 0))
#define GTPU_COPY_DIRECTION(MARK) ((MARK) >> 16 & 1)
#define GTPU_COPY_RULES(MARK) ((MARK) & 0xffff)
/* Out of a tunnel: goes on from here, with a DSCP in the lowest bits if GTPU_INNER_DSCP is set. */
#define GTPU_INNER_MARK 0x51d20000
#define GTPU_INNER_DSCP 0x40
#define GTPU_IS_INNER(MARK) (((MARK) & 0xffff0000) == GTPU_INNER_MARK)

/* The packet was judged where it came in, or is no packet of the host's own stack: all of these marks, and between. */
#define CARRIES_VERDICT(MARK) ((MARK) - VERDICT_MARK <= (GTPU_COPY_MARK(1, 0xffff) | GTPU_COPY_BY_FLOW) - VERDICT_MARK)

/* Verdict that XDP leaves in packet metadata for the tc program of the same device. */
#define HANDOFF_MAGIC 0x51ce0001
#define HANDOFF_WHOLE 0xff /* the frame is as it leaves, by a device that takes none that XDP redirects */
struct handoff {
	__u32 magic;
	__u32 host_ifindex; /* device whose neighbour code finishes the job */
	__u32 family; /* 4 or 6: of the neighbour; 0 = the kernel's own routes say which it is, or HANDOFF_WHOLE */
	__u32 be_addr[4];
};
_Static_assert(sizeof(struct handoff) <= 32, "older kernels have no more room before a packet");

/* The same of a packet of a GTP-U session that is to be copied, which XDP cannot. */
#define COPY_MAGIC 0x51ce0002
struct copy_handoff {
	__u32 magic;
	__u32 ifindex; /* mobile device that both leave by */
	__u32 mark;    /* of the copy */
	__u32 own;     /* mark of the packet itself */
	__u32 unit;    /* counter slot of the mobile unit */
	__u32 number;  /* no two in a row are alike, so that the kernel joins none of them to one packet (GRO) */
};
_Static_assert(sizeof(struct copy_handoff) <= 32, "older kernels have no more room before a packet");

#endif
