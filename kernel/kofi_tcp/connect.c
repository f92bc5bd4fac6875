// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Connections of endpoints: setting out, being answered, accepting, leaving. */
#include "tcp.h"

#include <linux/delay.h>
#include <net/tcp.h>

#define KTCP_LINGER_MS 500

/* The peer is there: from now on there are frames. */
static void opened(struct ktcp_ep *ep, const void *data, size_t len)
{
	cancel_delayed_work(&ep->timer);
	ep->stage_at = 0;
	ep->stage_end = 0;
	ep->state = KTCP_OPEN;
	spin_lock_bh(&ep->tx_lock);
	ep->connected = true;
	spin_unlock_bh(&ep->tx_lock);
	kofi_eq_write_cm(ep->ep.eq, FI_CONNECTED, &ep->ep.fid, NULL, data, len);
}

/* There will be no connection. */
static void refused(struct ktcp_ep *ep, int err, int reason, const void *data, size_t len)
{
	cancel_delayed_work(&ep->timer);
	ktcp_end(ep, err, reason);
	kofi_eq_write_err(ep->ep.eq, &ep->ep.fid, err, reason, data, len);
}

static void refused_by_system(struct ktcp_ep *ep, int err)
{
	refused(ep, err, err == ECONNREFUSED ? KOFI_PE_REFUSED :
			 err == ETIMEDOUT ? KOFI_PE_TIMED_OUT :
			 err == ECONNRESET || err == EPIPE ? KOFI_PE_DIED : KOFI_PE_UNREACHABLE,
		NULL, 0);
}

static void say_hello(struct ktcp_ep *ep)
{
	switch (ep->sock->sk->sk_state) {
	case TCP_SYN_SENT:
	case TCP_SYN_RECV:
		return;
	case TCP_ESTABLISHED:
	case TCP_CLOSE_WAIT:
		/* The socket is new: it has room. */
		if (ktcp_sock_send(ep->sock, ep->stage, ep->hello_len, false) == ep->hello_len) {
			ep->state = KTCP_GREETING;
			return;
		}
		refused_by_system(ep, ECONNRESET);
		return;
	default:
		refused_by_system(ep, -sock_error(ep->sock->sk) ?: ECONNREFUSED);
	}
}

static void hear_answer(struct ktcp_ep *ep)
{
	struct ktcp_shake *s = &ep->shake;
	ssize_t got;
	int missing;

	while ((missing = ktcp_shake_missing(s)) > 0) {
		got = ktcp_sock_recv(ep->sock, s->bytes + s->got, missing);
		if (got == -EAGAIN)
			return;
		if (got <= 0) {
			refused_by_system(ep, got ? -got : ECONNRESET);
			return;
		}
		s->got += got;
	}
	if (!missing && ktcp_shake_type(s) == KT_WELCOME && ktcp_shake_kind(s) == KT_ENDPOINT_MSG)
		opened(ep, s->bytes + KT_SHAKE_MIN, ktcp_shake_data(s));
	else if (!missing && ktcp_shake_type(s) == KT_REFUSAL &&
		 ktcp_shake_reason(s) == KT_WHY_PROGRAM)
		refused(ep, ECONNREFUSED, KOFI_PE_REJECTED, s->bytes + KT_SHAKE_MIN,
			ktcp_shake_data(s));
	else
		refused(ep, ECONNREFUSED, KOFI_PE_FOREIGN, NULL, 0);
}

void ktcp_advance(struct ktcp_ep *ep)
{
	if (ep->state == KTCP_CONNECTING)
		say_hello(ep);
	if (ep->state == KTCP_GREETING)
		hear_answer(ep);
	if ((ep->state == KTCP_CONNECTING || ep->state == KTCP_GREETING) &&
	    time_after_eq(jiffies, ep->deadline))
		refused_by_system(ep, ETIMEDOUT);
}

static int set_out(struct ktcp_ep *ep, const struct sockaddr *to, const void *param, size_t len)
{
	struct sockaddr_storage addr;
	int status;

	memcpy(&addr, to, kofi_ip_len(to));
	status = ktcp_sock_new(to->sa_family, &ep->sock);
	if (status)
		return status;
	if (ep->source.ss_family == to->sa_family)
		status = kernel_bind(ep->sock, (struct sockaddr_unsized *)&ep->source,
				     kofi_ip_len(to));
	if (status) {
		ktcp_sock_close(ep->sock);
		ep->sock = NULL;
		return status;
	}
	ep->hello_len = ktcp_pack_shake(ep->stage, KT_HELLO, 0, to, param, len);
	ep->shake.got = 0;
	ep->state = KTCP_CONNECTING;
	ep->deadline = jiffies + msecs_to_jiffies(KTCP_CONNECT_MS);
	queue_delayed_work(ktcp_wq, &ep->timer, msecs_to_jiffies(KTCP_CONNECT_MS) + 1);
	ktcp_sock_watch(ep->sock, &ep->work, ktcp_data_ready);
	status = kernel_connect(ep->sock, (struct sockaddr_unsized *)&addr, kofi_ip_len(to),
				O_NONBLOCK);
	/* What the network says is told as an event, like all that it says later. */
	if (status && status != -EINPROGRESS)
		refused_by_system(ep, -status);
	return 0;
}

static int ktcp_connect(struct fid_ep *fid_ep, const void *addr, const void *param, size_t len)
{
	struct ktcp_ep *ep = to_ktcp(fid_ep);
	int status = -EISCONN;

	if (!addr || len > KT_SHAKE_DATA || !kofi_ip_len(addr) || ep->handle)
		return -EINVAL;
	mutex_lock(&ep->io);
	if (ep->state == KTCP_IDLE)
		status = set_out(ep, addr, param, len);
	mutex_unlock(&ep->io);
	return status;
}

static int ktcp_accept(struct fid_ep *fid_ep, const void *param, size_t len)
{
	struct ktcp_ep *ep = to_ktcp(fid_ep);
	u8 welcome[KT_SHAKE_MAX];
	int status = -EINVAL;

	if (len > KT_SHAKE_DATA)
		return -EINVAL;
	mutex_lock(&ep->io);
	if (ep->state == KTCP_IDLE && ep->handle) {
		ep->sock = ktcp_request_take(ep);
		ep->handle = NULL;
	}
	if (ep->state == KTCP_IDLE && ep->sock) {
		len = ktcp_pack_shake(welcome, KT_WELCOME, 0, NULL, param, len);
		status = ktcp_sock_send(ep->sock, welcome, len, false) == len ? 0 : -ECONNREFUSED;
		if (status) {
			ktcp_end(ep, EIO, KOFI_PE_DIED);
		} else {
			opened(ep, NULL, 0);
			ktcp_sock_watch(ep->sock, &ep->work, ktcp_data_ready);
		}
	}
	mutex_unlock(&ep->io);
	return status;
}

static bool unsent(struct ktcp_ep *ep)
{
	return ep->rest_len || ep->sending || !list_empty(&ep->frames) || !list_empty(&ep->control) ||
	       !list_empty_careful(&ep->pending);
}

/* What was accepted leaves, then the peer is told, and has all of it. Each is bounded. */
static int ktcp_shutdown(struct fid_ep *fid_ep, u64 flags)
{
	struct ktcp_ep *ep = to_ktcp(fid_ep);
	unsigned long until = jiffies + msecs_to_jiffies(KTCP_LINGER_MS);
	const struct tcp_sock *tp;

	mutex_lock(&ep->io);
	if (ep->state != KTCP_OPEN) {
		mutex_unlock(&ep->io);
		return -ENOTCONN;
	}
	ktcp_take_over(ep);
	spin_lock_bh(&ep->tx_lock);
	ep->closed = true;
	spin_unlock_bh(&ep->tx_lock);
	if (ktcp_pay_owed(ep))
		ep->error = -ENOMEM;
	tp = tcp_sk(ep->sock->sk);
	while (ktcp_transmit(ep), !ep->error && unsent(ep) && time_before(jiffies, until))
		usleep_range(200, 1000);
	if (!ep->error && !unsent(ep) && !ktcp_say(ep, KT_BYE, 0, 0, 0, NULL, 0))
		ktcp_transmit(ep);
	kernel_sock_shutdown(ep->sock, SHUT_WR);
	/* Closing a socket with unread bytes resets it: they are thrown away first. */
	while (time_before(jiffies, until) && READ_ONCE(tp->snd_una) != READ_ONCE(tp->write_seq) &&
	       ep->sock->sk->sk_state != TCP_CLOSE) {
		while (ktcp_sock_recv(ep->sock, ep->stage, KTCP_STAGE_BYTES) > 0)
			;
		usleep_range(200, 1000);
	}
	ktcp_end(ep, EIO, KOFI_PE_LOCAL);
	mutex_unlock(&ep->io);
	return 0;
}

static int ktcp_getname(struct fid *fid, void *addr, size_t *len)
{
	struct ktcp_ep *ep = container_of(fid, struct ktcp_ep, ep.fid);
	struct sockaddr_storage name = ep->source;

	mutex_lock(&ep->io);
	if (ep->sock)
		kernel_getsockname(ep->sock, (struct sockaddr *)&name);
	mutex_unlock(&ep->io);
	return kofi_give_ip_name(&name, addr, len);
}

static int ktcp_getpeer(struct fid_ep *fid_ep, void *addr, size_t *len)
{
	struct ktcp_ep *ep = to_ktcp(fid_ep);
	struct sockaddr_storage name;
	int status = -ENOTCONN;

	mutex_lock(&ep->io);
	if (ep->state == KTCP_OPEN)
		status = kernel_getpeername(ep->sock, (struct sockaddr *)&name);
	mutex_unlock(&ep->io);
	return status < 0 ? -ENOTCONN : kofi_give_ip_name(&name, addr, len);
}

const struct fi_ops_cm ktcp_cm_ops = {
	.connect = ktcp_connect, .accept = ktcp_accept, .shutdown = ktcp_shutdown,
	.getname = ktcp_getname, .getpeer = ktcp_getpeer,
};
