// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What `./dev vm kofi bench` measures: two threads, one on each of the first two
 * processors, over a provider and over bare kernel sockets. Both send the same
 * bytes the same number of times; every turn ends with data in the reader's
 * buffer. Only when they are named.
 */
#include "test.h"
#include "both.h"

#include <linux/in.h>
#include <linux/net.h>
#include <linux/mm.h>
#include <linux/tcp.h>
#include <net/sock.h>

#include <kofi/compat.h>

#define LATENCY_BYTES	8
#define LATENCY_TURNS	4000
#define STREAM_BYTES	65536
#define STREAM_TURNS	3000
#define STREAM_WINDOW	16

/* One end of what is measured, as its thread sees it. */
struct end {
	struct side		*side;		/* of the fabric... */
	struct socket		*sock;		/* ...or a bare socket */
	u8			*buf;
	bool			first;		/* sends first; of a stream: sends */
};

static int fabric_turns(struct end *end)
{
	struct fid_ep *ep = end->side->ep;
	int i;

	for (i = 0; i < LATENCY_TURNS; i++) {
		if (end->first)
			TRY(fi_inject(ep, end->buf, LATENCY_BYTES, 0));
		CHECK(next_completion(end->side->cq, NULL));
		/* The receive of the next turn is there before the peer is answered. */
		TRY(fi_recv(ep, end->buf, LATENCY_BYTES, NULL, 0, NULL));
		if (!end->first)
			TRY(fi_inject(ep, end->buf, LATENCY_BYTES, 0));
	}
	return 0;
}

static int fabric_stream_out(struct end *end)
{
	struct fi_cq_tagged_entry entry;
	int sent = 0, done = 0;

	while (done < STREAM_TURNS) {
		while (sent < STREAM_TURNS && sent - done < STREAM_WINDOW) {
			TRY(fi_send(end->side->ep, end->buf + sent % STREAM_WINDOW * STREAM_BYTES,
				    STREAM_BYTES, NULL, 0, NULL));
			sent++;
		}
		CHECK(next_completion(end->side->cq, &entry));
		done++;
	}
	return 0;
}

static int fabric_stream_in(struct end *end)
{
	struct fi_cq_tagged_entry entry;
	int done;

	for (done = 0; done < STREAM_TURNS; done++) {
		CHECK(next_completion(end->side->cq, &entry) && entry.len == STREAM_BYTES);
		if (done + STREAM_WINDOW < STREAM_TURNS)
			TRY(fi_recv(end->side->ep, end->buf + done % STREAM_WINDOW * STREAM_BYTES,
				    STREAM_BYTES, NULL, 0, NULL));
	}
	return 0;
}

static int sock_move(struct end *end, bool send, u8 *buf, size_t len)
{
	struct msghdr msg = { .msg_flags = send ? MSG_NOSIGNAL : MSG_WAITALL };
	struct kvec kvec = { buf, len };

	CHECK((send ? kernel_sendmsg(end->sock, &msg, &kvec, 1, len) :
		      kernel_recvmsg(end->sock, &msg, &kvec, 1, len, MSG_WAITALL)) == len);
	return 0;
}

static int sock_turns(struct end *end)
{
	int i;

	for (i = 0; i < LATENCY_TURNS; i++) {
		if (end->first)
			TRY(sock_move(end, true, end->buf, LATENCY_BYTES));
		TRY(sock_move(end, false, end->buf, LATENCY_BYTES));
		if (!end->first)
			TRY(sock_move(end, true, end->buf, LATENCY_BYTES));
	}
	return 0;
}

static int sock_stream(struct end *end)
{
	int i;

	for (i = 0; i < STREAM_TURNS; i++)
		TRY(sock_move(end, end->first, end->buf + i % STREAM_WINDOW * STREAM_BYTES,
			      STREAM_BYTES));
	return 0;
}

static int latency(void *context)
{
	struct end *end = context;

	return end->sock ? sock_turns(end) : fabric_turns(end);
}

static int stream(void *context)
{
	struct end *end = context;

	return end->sock ? sock_stream(end) : end->first ? fabric_stream_out(end) :
							   fabric_stream_in(end);
}

static void say(struct target *target, bool is_stream, u64 took)
{
	if (is_stream)
		snprintf(target->note, sizeof(target->note), "%llu MB/s",
			 (u64)STREAM_TURNS * STREAM_BYTES * 1000 / took);
	else
		snprintf(target->note, sizeof(target->note), "%llu ns",
			 took / (2 * LATENCY_TURNS));
}

static int measure_fabric(struct target *target, bool is_stream)
{
	struct end ends[2] = {};
	struct pair pair;
	u64 took = 0;
	int status, i;

	TRY(pair_open(target, &pair, NULL));
	ends[0] = (struct end){ .side = &pair.a, .buf = pair.a.buf, .first = true };
	ends[1] = (struct end){ .side = &pair.b, .buf = pair.b.buf };
	for (i = 0; i < (is_stream ? STREAM_WINDOW : 1); i++)
		TRY(fi_recv(pair.b.ep, pair.b.buf + i * STREAM_BYTES,
			    is_stream ? STREAM_BYTES : LATENCY_BYTES, NULL, 0, NULL));
	if (!is_stream)
		TRY(fi_recv(pair.a.ep, pair.a.buf, LATENCY_BYTES, NULL, 0, NULL));
	status = run_both(is_stream ? stream : latency, &ends[0], &ends[1], &took);
	if (!status)
		say(target, is_stream, took);
	pair_close(&pair);
	return status;
}

/* Two connected sockets of the loopback interface. */
static int sock_pair(struct socket **a, struct socket **b)
{
	struct sockaddr_in addr = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct socket *listener;
	int status = sock_create_kern(&init_net, AF_INET, SOCK_STREAM, IPPROTO_TCP, &listener);

	if (status)
		return status;
	status = kernel_bind(listener, (struct sockaddr_unsized *)&addr, sizeof(addr)) ?:
		 kernel_listen(listener, 1);
	if (!status)
		status = kernel_getsockname(listener, (struct sockaddr *)&addr);
	if (status > 0)
		status = sock_create_kern(&init_net, AF_INET, SOCK_STREAM, IPPROTO_TCP, a);
	if (!status) {
		status = kernel_connect(*a, (struct sockaddr_unsized *)&addr, sizeof(addr), 0) ?:
			 kernel_accept(listener, b, 0);
		if (status)
			sock_release(*a);
	}
	sock_release(listener);
	return status;
}

static int measure_socket(struct target *target, bool is_stream)
{
	struct end ends[2] = { { .first = true } };
	u64 took = 0;
	int status, i;

	TRY(sock_pair(&ends[0].sock, &ends[1].sock));
	status = 0;
	for (i = 0; i < 2; i++) {
		tcp_sock_set_nodelay(ends[i].sock->sk);
		/* As next_completion(): a wait arms a timer. */
		ends[i].sock->sk->sk_rcvtimeo = msecs_to_jiffies(WAIT_MS);
		ends[i].buf = kvzalloc(PAIR_BYTES, GFP_KERNEL);
		status = ends[i].buf ? status : -__LINE__;
	}
	if (!status)
		status = run_both(is_stream ? stream : latency, &ends[0], &ends[1], &took);
	if (!status)
		say(target, is_stream, took);
	for (i = 0; i < 2; i++) {
		sock_release(ends[i].sock);
		kvfree(ends[i].buf);
	}
	return status;
}

/* What bench.py counts: the inline calls alone. */
noinline ssize_t bench_api_send(struct fid_ep *ep, const void *buf, size_t len, void *context);
noinline ssize_t bench_api_inject(struct fid_ep *ep, const void *buf, size_t len);
noinline ssize_t bench_api_cq_read(struct fid_cq *cq, void *buf);

noinline ssize_t bench_api_send(struct fid_ep *ep, const void *buf, size_t len, void *context)
{
	return fi_send(ep, buf, len, NULL, 0, context);
}

noinline ssize_t bench_api_inject(struct fid_ep *ep, const void *buf, size_t len)
{
	return fi_inject(ep, buf, len, 0);
}

noinline ssize_t bench_api_cq_read(struct fid_cq *cq, void *buf)
{
	return fi_cq_read(cq, buf, 1);
}

int case_latency(struct target *target)
{
	return measure_fabric(target, false);
}

int case_stream(struct target *target)
{
	return measure_fabric(target, true);
}

int case_socket_latency(struct target *target)
{
	return measure_socket(target, false);
}

int case_socket_stream(struct target *target)
{
	return measure_socket(target, true);
}
