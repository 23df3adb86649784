/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Does a packet's protocol and its ports or ICMP type fall into one of a range of service terms? */
#ifndef SLUICE_LIB_SERVICES_H
#define SLUICE_LIB_SERVICES_H

#include "maps.h"

/* A packet reduced to what terms speak of, host byte order. */
struct service {
	__u16 sport;
	__u16 dport;
	__u8 proto;
	__u8 icmp_type;
	__u8 icmp_code;
};

static __always_inline bool service_in_term(const struct service *service, const struct service_term *term)
{
	if (term->flags & SERVICE_ANY_PROTO)
		return true;
	if (term->proto != service->proto)
		return false;
	if (term->flags & SERVICE_ICMP)
		return service->icmp_type >= term->icmp_type_low && service->icmp_type <= term->icmp_type_high &&
		       service->icmp_code >= term->icmp_code_low && service->icmp_code <= term->icmp_code_high;
	return service->sport >= term->sport_low && service->sport <= term->sport_high &&
	       service->dport >= term->dport_low && service->dport <= term->dport_high;
}

/* The matching term's timeout, or -1. */
static __noinline int services_match(const struct service *service, __u32 first, __u32 count)
{
	__u32 i;

	if (!service)
		return -1;
	if (count > MAX_SERVICE_TERMS_PER_RULE)
		count = MAX_SERVICE_TERMS_PER_RULE;
	bpf_for (i, 0, count) {
		__u32 index = first + i;
		struct service_term *term = service_terms_at(index);

		if (!term)
			return -1;
		if (service_in_term(service, term))
			return term->timeout_s;
	}
	return -1;
}

#endif
