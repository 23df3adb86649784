/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The gate: who may use which service, and until when. Grants are state: they outlive commits, restarts and the daemon,
 * and the programs alone enforce their limits.
 */
#ifndef SLUICE_ABI_GATE_H
#define SLUICE_ABI_GATE_H

#include <linux/types.h>

#define MAX_GATE_SERVICES 4096 /* service ids, allocated once and kept with the configuration; 0 = none */
#define GRANTS_DEFAULT 131072  /* records, unless configured otherwise */
#define MAX_GRANTS (1 << 20)

/*
 * A handle names one grant: the record's index below, above it how often the record was given away before. Sessions and
 * the index hold handles, so what they keep of an earlier grant never fits a later one in the same record. Record 0 is
 * never used, and no handle is 0.
 */
#define GRANT_INDEX_BITS 21
#define GRANT_INDEX_MASK ((1u << GRANT_INDEX_BITS) - 1)

#define GRANT_FOREVER ((__u64) - 1)

#define GRANT_BY_OPERATOR 0
#define GRANT_BY_CONFIGURATION 1
#define GRANT_RENEWED_BY_OPERATOR 2 /* of the configuration still, with limits that an operator gave it */

/* Why a grant ended. */
#define GRANT_LIVE 0
#define GRANT_WAS_REVOKED 1
#define GRANT_WAS_EXPIRED 2
#define GRANT_WAS_IDLE 3

/* Times are in jiffies. A grant ends with one store to `handle`. */
struct grant {
	__u32 handle;   /* of the live grant; 0 = none */
	__u32 issued;   /* handle last given away */
	__u64 deadline; /* first jiffy in which it does not hold; GRANT_FOREVER = none */
	__u64 last_use; /* last packet of its source, to an eighth of a second */
	__u64 created;
	__u32 idle;     /* longest time without a packet of its source; 0 = any */
	__u32 sessions; /* opened with it */
	__u32 be_addr[4];
	__u16 service; /* this and the next two are GRANT_WHAT */
	__u8 family;
	__u8 length; /* of the prefix */
	__u8 origin; /* GRANT_BY_* */
	__u8 ended;  /* GRANT_*; of the configuration's own grants, which stay ended while they are configured */
	__u16 asked; /* GRANT_RENEWED_BY_OPERATOR: digest of the limits that the configuration asks for */
};
_Static_assert(sizeof(struct grant) == 64, "grant is one cache line");

/* Whom a grant was given to; same index. */
#define GRANT_LABEL_BYTES 64
struct grant_user {
	__u8 label[GRANT_LABEL_BYTES]; /* UTF-8, ends with 0 */
};

/*
 * The index leads from a prefix without host bits and a service to a handle. Its buckets are those of sessions (struct
 * flow_bucket: tags, handles in `lines`), a key stands in its first bucket or in one of the next ones, and `overflow`
 * counts the keys that found a bucket full and went on. Only the daemon writes it, so there is no lock. What a key is
 * for stands in the record: one line of memory for the bucket, one for key, limits and revocation together.
 *
 *   hash    a seeded mix of address and GRANT_WHAT, see gate/grant.h
 *   first  (hash >> 40) & grant_mask     tag  hash & 0xffff, 0 becomes 1
 */
#define GRANT_PROBES 32 /* buckets that a key may stand in; a grant that fits in none of them is refused */

/*
 * Which hosts have a grant, whatever for: two bits of one word each, found by the hash of GRANT_WHAT(0, family, 0).
 * Both are set for all that have one and for a few that have none. The rest is ungranted, and the fast path refuses
 * them.
 *
 *   word  (hash >> 40) & source_mask     bits  hash & 63, (hash >> 6) & 63
 */
#define GRANT_SOURCE_BITS 16 /* for each grant there is room for */

/* Service, family and length of a record, as the word that they are in it. */
#define GRANT_WHAT(service, family, length) ((__u32)(service) | (__u32)(family) << 16 | (__u32)(length) << 24)

/*
 * Prefix lengths in use besides those of single hosts, longest first: a byte each, length + 1, from the lowest byte on;
 * 0 = no more. One store changes a list.
 */
#define GRANT_LENGTHS 8
struct grant_lengths {
	__u64 lengths4;
	__u64 lengths6;
};

/*
 * The gate alone (bpf/gate/alone.h): what is behind a local port, [0] of TCP and [GATE_PORTS] of UDP. No service is 0,
 * an address of zeros is none.
 */
#define GATE_PORTS 65536
struct gate_port {
	__u32 be_addr6[4];
	__u32 be_addr4;
	__u16 service;
	__u16 zero[5];
};
_Static_assert(sizeof(struct gate_port) == 32, "two gate_ports a cache line");

/* When a CPU last told of a packet that the gate alone refused; by reason, in jiffies. */
#define GATE_REFUSALS 4
struct gate_told {
	__u32 at[GATE_REFUSALS];
};

#endif
