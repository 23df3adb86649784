/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What `then log` tells the daemon, through the ring buffer `events`. */
#ifndef SLUICE_ABI_EVENT_H
#define SLUICE_ABI_EVENT_H

#include <linux/types.h>

#include "flow.h"

#define EVENT_BUFFER_BYTES (1 << 22)

#define EVENT_SESSION_CREATE 1
#define EVENT_SESSION_CLOSE 2
#define EVENT_SESSION_DENY 3
#define EVENT_SCREEN 4
#define EVENT_NAT_EXHAUSTED 5 /* `policy` is the pool's id, `session` the rule's */
#define EVENT_GATE_DENY 6
/* Error Indication (TS 29.281 7.3.1): `policy` is the TEID that has ended there, `key` goes from its sender to the
 * address that it says has the TEID. */
#define EVENT_GTPU_ERROR 7

/* Why a session was closed. */
#define CLOSE_NONE 0
#define CLOSE_IDLE 1      /* idle for too long, or TCP closed by its ends: see tcp_state */
#define CLOSE_CLEARED 2   /* by an operator */
#define CLOSE_REVOKED 3   /* the active configuration does not permit it any more */
#define CLOSE_REOPENED 4  /* its tuple opened a new one */
#define CLOSE_NAT 5       /* the active configuration translates it otherwise */
#define CLOSE_GRANT 6     /* its grant has ended */
#define CLOSE_WITHDRAWN 7 /* its first packet could not leave */

struct event {
	struct flow_key6 key; /* the first packet's; an IPv4 address stands in the first word */
	__u8 kind;            /* EVENT_* */
	__u8 close;           /* CLOSE_* */
	__u8 family;
	__u8 tcp_state[2]; /* TCP_DIR_*, initiator first */
	__u8 icmp_type;
	__u16 ingress_unit;
	__u32 policy; /* EVENT_GATE_DENY: the service */
	__u16 from_zone;
	__u16 to_zone;
	__u64 bytes[2];   /* initiator first */
	__u64 packets[2]; /* likewise */
	__u32 session;    /* its number */
	__u32 age;        /* jiffies between the first and the last packet */
	__u16 screen;     /* EVENT_SCREEN, EVENT_GATE_DENY: enum reason */
	__u8 passed;      /* EVENT_SCREEN: alarm-without-drop */
	__u8 spare;
	__u16 nat_destination; /* of a session: ids of the NAT rules that matched, 0 = none */
	__u16 nat_source;
	struct flow_key6 out; /* of a session: `key` as it leaves; the IPv4 side of NAT64 is mapped, see nat64.h */
};
_Static_assert(sizeof(struct event) == 144, "event has no hidden padding");

#endif
