/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * persistent-nat: bindings of an inside endpoint to an outside one, whatever the destination (RFC 4787 REQ-1, RFC 6146
 * 3.1). Records stand in an array that user space maps; `nat_binding_index` leads to them from both endpoints. Records
 * and index are state: they outlive configurations and the daemon.
 *
 * IPv4 addresses are written IPv4-mapped, so a binding may have one family inside and the other outside.
 */
#ifndef SLUICE_ABI_NAT_BINDING_H
#define SLUICE_ABI_NAT_BINDING_H

#include <linux/types.h>

#define NAT_BINDINGS_DEFAULT 65536
#define MAX_NAT_BINDINGS (1 << 19)
/* Hosts that a binding remembers to have sent to; the next one takes the place of the first. */
#define NAT_BINDING_PEERS 16
/* Records looked at for a free one; one in five is free when there are as many bindings as may be. */
#define NAT_BINDING_TRIES 64

/* By which endpoint a key finds. */
#define NAT_BINDING_INSIDE 1
#define NAT_BINDING_OUTSIDE 2

struct nat_binding_key {
	__u32 be_addr[4];
	__u16 be_port; /* or the identifier of echo requests */
	__u16 routing_instance;
	__u16 rule; /* id of the source rule, of NAT_BINDING_INSIDE only */
	__u8 proto; /* as it stands on this side */
	__u8 side;  /* NAT_BINDING_* */
};
_Static_assert(sizeof(struct nat_binding_key) == 24, "nat_binding_key is 24 bytes");

/* `state`: free with the tag of its last use, being filled or emptied, or live. */
#define NAT_BINDING_LIVE 0x80000000u
#define NAT_BINDING_BUSY 0x40000000u
#define NAT_BINDING_TAG 0xfffu

/* What sessions know of their binding: number of the record, and its tag. 0 = none. */
#define NAT_BINDING_NUMBER 0xfffffu
#define NAT_BINDING_TAG_SHIFT 20

struct nat_binding {
	__u32 be_inside[4];
	__u32 be_outside[4];
	__u16 be_inside_port;
	__u16 be_outside_port;
	__u16 routing_instance; /* of the inside endpoint */
	__u16 rule;             /* id of the source rule */
	__u8 proto;
	__u8 outside_proto; /* another one where ICMP is translated between the families */
	__u8 permit;        /* NAT_PERSISTENT_* */
	__u8 zero;
	__u32 state;     /* NAT_BINDING_* */
	__u32 last_used; /* jiffies when a session of it was last seen */
	__u32 timeout_s; /* since then */
	__u32 sessions;  /* live ones: of the last pass of the sweep, and those made since */
	__u32 counted;   /* of the pass under way */
	__u32 most;      /* sessions at one time */
	__u16 unit;      /* index of the unit that its first session left by */
	__u16 next_peer;
	__u16 outside_instance;
	__u16 spare0;
	__u32 spare1;
	__u64 peers[NAT_BINDING_PEERS]; /* hashes of their addresses, with the port where `permit` wants it; 0 = none */
};
_Static_assert(sizeof(struct nat_binding) == 208, "nat_binding has no hidden padding");

/* Record 0 holds what is known of all of them. */
#define NAT_BINDINGS_LIVE sessions   /* how many there are */
#define NAT_BINDINGS_HIGHEST counted /* highest number ever used */
#define NAT_BINDINGS_TOLD last_used  /* jiffies when it was last told that there is no room */

#endif
