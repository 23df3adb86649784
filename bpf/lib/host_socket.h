/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * TCP connections of this host that are older than their session: the gateway has just been started, its sessions were
 * cleared, or one ended by idleness. The host's stack knows them, and judges every segment itself.
 */
#ifndef SLUICE_LIB_HOST_SOCKET_H
#define SLUICE_LIB_HOST_SOCKET_H

#include "lib/host_inbound.h"

#define TCP_STATE_ESTABLISHED 1 /* of a socket, as the kernel numbers them */
#define TCP_STATE_LISTEN 10

/* What is read of the kernel's own, wherever it stands there. */
struct tcp_sock {
	__u32 snd_nxt;
	__u32 rcv_nxt;
} __attribute__((preserve_access_index));

/* Who has the tuple, as packets of the other side arrive with it; from port 0 nobody has a connection, but one listens.
 */
static __always_inline struct bpf_sock *socket_of(hook_ctx *ctx, const struct packet *p, bool leaving, bool from_port_0)
{
	struct bpf_sock_tuple tuple = {};

	/* the size tells the family, and must be a constant for the verifier */
	if (p->family == 4) {
		tuple.ipv4.saddr = leaving ? p->key4.be_daddr : p->key4.be_saddr;
		tuple.ipv4.daddr = leaving ? p->key4.be_saddr : p->key4.be_daddr;
		tuple.ipv4.sport = from_port_0 ? 0 : leaving ? p->key4.be_dport : p->key4.be_sport;
		tuple.ipv4.dport = leaving ? p->key4.be_sport : p->key4.be_dport;
		return bpf_sk_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	}
	__builtin_memcpy(tuple.ipv6.saddr, leaving ? p->key6.be_daddr : p->key6.be_saddr, 16);
	__builtin_memcpy(tuple.ipv6.daddr, leaving ? p->key6.be_saddr : p->key6.be_daddr, 16);
	tuple.ipv6.sport = from_port_0 ? 0 : leaving ? p->key6.be_dport : p->key6.be_sport;
	tuple.ipv6.dport = leaving ? p->key6.be_sport : p->key6.be_dport;
	return bpf_sk_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
}

/* Has this host such a connection? What its socket has sent and got goes to `host_sent` and `host_got`. */
static __noinline int socket_established(hook_ctx *ctx, struct packet *p, __u32 leaving)
{
	struct bpf_sock *socket = p ? socket_of(ctx, p, leaving, false) : NULL;
	int found = 0;

	if (!socket)
		return 0;
	struct tcp_sock *tcp = socket->state == TCP_STATE_ESTABLISHED ? bpf_skc_to_tcp_sock(socket) : NULL;

	if (tcp) {
		p->host_sent = tcp->snd_nxt;
		p->host_got = tcp->rcv_nxt;
		found = 1;
	}
	bpf_sk_release(socket);
	return found;
}

/* Does it listen on its port of this tuple? */
static __noinline int socket_listens(hook_ctx *ctx, const struct packet *p, __u32 leaving)
{
	struct bpf_sock *socket = p ? socket_of(ctx, p, leaving, true) : NULL;

	if (!socket)
		return 0;
	int listens = socket->state == TCP_STATE_LISTEN;

	bpf_sk_release(socket);
	return listens;
}

/*
 * A segment of such a connection opens its session. One that others opened, to a port that the host listens on, is
 * judged by what arrives, as its SYN would be: by host-inbound-traffic, policies and grants. One of the host's own is
 * recorded by what leaves; what arrives before that goes to the host, which answers it.
 */
static __always_inline int resume_connection(hook_ctx *ctx, struct packet *p, bool leaving)
{
	if (p->proto != IPPROTO_TCP || (p->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) != TCP_ACK)
		return DROP(TCP_NOT_SYN);
	if (p->flags & P_FRAGMENT)
		return DROP(TCP_NOT_SYN);
	if (!leaving && LOCAL_KIND(local_kind(p, p->key4.be_daddr, p->key6.be_daddr)) != LOCAL_ADDRESS)
		return DROP(TCP_NOT_SYN);
	if (!socket_established(ctx, p, leaving))
		return DROP(TCP_NOT_SYN);
	bool of_others = socket_listens(ctx, p, leaving);

	if (of_others == leaving)
		return leaving ? DROP(TCP_NOT_SYN) : VERDICT_LOCAL;
	p->flags |= P_RESUMED;
	return CONTINUE;
}

#endif
