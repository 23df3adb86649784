/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Per-interface facts: one entry a logical unit and netdev it can be seen on. */
#ifndef SLUICE_ABI_UNIT_H
#define SLUICE_ABI_UNIT_H

#include <linux/types.h>

#define UNIT_VALID 0x01
#define UNIT_HOST_VETH 0x02 /* tagged unit without 8021q: host frames go untagged through a veth pair */
#define UNIT_HOST_SIDE 0x04 /* this entry is the netdev that carries the addresses of a tagged unit */
#define UNIT_HOST_ANY 0x08  /* host-inbound-traffic admits everything */
#define UNIT_TCP_RST 0x10   /* TCP that belongs to no session and opens none is reset */
#define UNIT_XDP 0x20       /* ingress is handled by the XDP hook */
#define UNIT_UDP_FLOOD 0x40 /* its zone counts every UDP packet: none is replayed by the fast path */
#define UNIT_CROWDED 0x80   /* of the slot, see UNIT_SLOT */

/*
 * The tags of a frame in one word: the outer VLAN in the low 12 bits, the inner one 16 bits higher; 0 = untagged. So a
 * frame with one 802.1Q tag has just its VLAN there, and whatever is above VLAN_ID has a service tag or two tags.
 */
#define VLAN_ID 0x0fff
#define VLAN_SERVICE 0x1000 /* the outer tag is an 802.1ad one */
#define VLAN_INNER_SHIFT 16
#define VLAN_TWO (0x1000 << VLAN_INNER_SHIFT) /* there is an inner tag, always an 802.1Q one */
#define VLAN_GENERIC 0xfffffffdu  /* no frame's: the entry of a device whose XDP program the generic hook runs */
#define VLAN_INSTANCE 0xfffffffeu /* no frame's: the entry of a VRF device, where the FIB says "ask there" */
#define VLAN_NULL 0xffffffffu     /* no frame's: the entry of a device in the null zone, found when no unit is */

/*
 * An entry stands in its slot, or in one of the next ones:
 *   slot = ((ifindex * 0x9e3779b1 + vlan * 0x85ebca6b) * multiplier) >> shift       (32-bit arithmetic)
 * with `multiplier` odd, and `vlan` the tags that frames have on that netdev: none on the host's side of a tagged unit.
 * Both are part of the generation, chosen so that every entry stands in its slot while there are a few hundred, and
 * nearly every one when there are thousands. UNIT_CROWDED in a slot says that some entry went on from it. ifindex and
 * vlan are compared, so a miss is a miss.
 */
#define UNIT_PROBES 8 /* slots in which an entry may stand */
#define UNIT_LEAST_SHIFT 17
#define UNIT_TABLE_SLOTS ((1 << (32 - UNIT_LEAST_SHIFT)) + UNIT_PROBES - 1)
#define UNIT_SLOT(IFINDEX, VLAN, MULTIPLIER, SHIFT)                                                                    \
	((((IFINDEX) * 0x9e3779b1u + (VLAN) * 0x85ebca6bu) * (MULTIPLIER)) >> (SHIFT))

/* With a number of a netdev that takes no frames that native XDP redirects: they leave by the kernel. */
#define LEAVES_BY_KERNEL 0x80000000u

struct unit {
	__u32 ifindex; /* netdev the frame is seen on */
	__u32 vlan;    /* tags of the unit, VLAN_*; 0 = untagged. With UNIT_HOST_SIDE frames have none yet */
	__u16 zone;
	__u16 routing_instance;
	__u16 mtu;  /* largest IP packet */
	__u8 flags; /* UNIT_* */
	__u8 gtpu;  /* entry of `gtpu_interfaces`, counted from 1; 0 = none */
	__u8 mac[6];
	__u16 index;             /* counter slot, stable over commits */
	__u32 phys_ifindex;      /* netdev that frames leave through, perhaps with LEAVES_BY_KERNEL */
	__u32 host_ifindex;      /* netdev that carries the addresses: FIB input and neighbour table */
	__u32 host_peer_ifindex; /* UNIT_HOST_VETH: far end of the pair; frames sent to it arrive at host_ifindex */
	__u32 be_addr4;          /* source of ICMPv4 errors, 0 = none */
	__u32 be_addr6[4];       /* source of ICMPv6 errors */
	__u16 host_first;        /* host-inbound-traffic: range in `service_terms` */
	__u16 host_count;
	__u32 screens; /* SCREEN_* of its zone; 0 = none */
};
_Static_assert(sizeof(struct unit) == 64, "unit is one cache line");

/* By number of a routing instance: the device that its routes are asked by, its VRF's or lo's; 0 = there is none. */
struct routing_instance {
	__u32 ifindex;
	__u32 zero;
};
_Static_assert(sizeof(struct routing_instance) == 8, "routing_instance is one word of 64 bits");

#define LOCAL_ADDRESS 1
#define LOCAL_BROADCAST 2 /* of a connected subnet */

/* Values of `local_addresses`: what it is, and of a broadcast address the netdev of its subnet, 0 = of several. */
#define LOCAL_LINK_SHIFT 8
#define LOCAL_KIND(VALUE) ((VALUE) & ((1 << LOCAL_LINK_SHIFT) - 1))
#define LOCAL_LINK(VALUE) ((VALUE) >> LOCAL_LINK_SHIFT)

/* Key of `local_addresses`: IPv4 stands in the first word, the rest zero. */
struct local_key {
	__u32 be_addr[4];
	__u16 routing_instance;
	__u8 family; /* 4 or 6 */
	__u8 zero;
};
_Static_assert(sizeof(struct local_key) == 20, "local_key is 20 bytes");

/*
 * Bits of addresses that were ever local: most first packets find theirs clear and need not ask `local_addresses`.
 *   x = the address's words, exclusive-or     bit = (x * 0x9e3779b1) >> 19      (32-bit arithmetic, 8192 bits)
 * A bit is set before its address is added and never cleared.
 */
#define LOCAL_FILTER_SHIFT 19
#define LOCAL_FILTER_WORDS (1 << (32 - LOCAL_FILTER_SHIFT - 5))

struct local_filter {
	__u32 bits[LOCAL_FILTER_WORDS];
};
_Static_assert(sizeof(struct local_filter) == 1024, "local_filter fits well into a first-level cache");

#endif
