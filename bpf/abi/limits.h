/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Every bound of the data plane, in one place. Plans that exceed one are refused before anything is loaded. */
#ifndef SLUICE_ABI_LIMITS_H
#define SLUICE_ABI_LIMITS_H

#define MAX_UNITS 4097 /* logical interfaces; unit index 0 counts what arrives nowhere we know */
#define MAX_ZONES 256  /* zone ids; 0 = none, 1 = junos-host */
#define ZONE_NONE 0
#define ZONE_HOST 1
#define MAX_ROUTING_INSTANCES 1024 /* ids; 0 = the main one */
#define MAX_VARIANTS 4             /* distinct stage masks loaded at one time */
#define MAX_GENERATIONS 2          /* the active one and the idle one */
#define MAX_RULES 65536
#define MAX_CONTEXTS 64512    /* lists of policies: zone pairs' and global ones; 0 = none */
#define MAX_NAT_CONTEXTS 1024 /* of NAT rule-sets, numbered after those of policies */
#define MAX_NAT_RULES 16384   /* and as many rule ids */
#define MAX_NAT_POOLS 1024    /* and as many pool ids */
#define MAX_NAT_RANGES 8192
#define MAX_NAT_POOL_RANGES 64 /* of one pool */
#define MAX_NAT_PREFIXES 64
#define MAX_CLASS_LINES (1 << 20)   /* 64 MiB of address and service classes */
#define MAX_ROW_LINES (1 << 22)     /* 256 MiB of rule bits */
#define MAX_SERVICE_CELLS (1 << 20) /* classes of destination ports times those of source ports, a protocol */
#define MAX_SERVICE_TERMS 65536
#define MAX_SERVICE_TERMS_PER_RULE 256
#define MAX_POLICIES 65536 /* policy ids, allocated once and kept with the configuration */
#define MAX_NEXTHOPS 65536
#define NEXTHOP_NONE 0
#define NEXTHOP_LOCAL 1 /* deliver to this host */
#define NEXTHOP_FIRST 2
#define MAX_LOCAL_ADDRESSES 65536
#define MAX_CPUS 4096
#define MAX_GTPU_INTERFACES 255 /* units that have tunnels or lead into them */
#define MAX_GTPU_RULES 65536    /* sets of rules; 0 = none */
#define MAX_GTPU_PEERS 65536    /* other ends of tunnels; 0 = none */
#define MAX_GTPU_FILTERS 512    /* sets of flows; 0 = none */
#define MAX_GTPU_SESSIONS 4194304
#define REPLY_RATE_PER_ZONE 1000 /* ICMP errors and resets a second and zone, burst of the same size */
/*
 * Buckets of a zone's answers: those of most; of what tells a path's MTU; of Echo (TS 29.281 7.2). Error Indications
 * (7.3.1) that come in are told of as often.
 */
#define REPLY_BUCKET_TOO_BIG MAX_ZONES
#define REPLY_BUCKET_ECHO (2 * MAX_ZONES)
#define REPLY_BUCKET_ERROR (3 * MAX_ZONES)
#define REPLY_BUCKETS (4 * MAX_ZONES)
/*
 * New neighbours a second and zone that packets may ask for, burst of the same size (RFC 6583 6.2). The kernel asks
 * three seconds for each, and has room for 1,024 by default.
 */
#define NEIGHBOUR_RATE_PER_ZONE 100
#define CUT_RATE_PER_ZONE 10000       /* NAT64: packets a second and zone that are fragmented, burst of the same size */
#define REEVALUATED_PER_SECOND 100000 /* flows evaluated again a second and CPU, spread over its ticks */

#endif
