// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Passive endpoints: connections come in, say Hello, and are offered. One work
 * item an endpoint does it; a Hello that does not come is not waited for.
 */
#include "tcp.h"

#include <linux/slab.h>
#include <linux/tcp.h>

#define KTCP_HELLO_MS 60000

struct ktcp_pep {
	struct fid_pep		pep;
	struct socket		*sock;
	struct work_struct	work;
	struct delayed_work	timer;
	struct list_head	pending;	/* no Hello yet; of the work */
	u32			count;
	bool			closing;
};

struct ktcp_request {
	struct kofi_request	request;	/* its node: of pending, then the core's */
	struct socket		*sock;
	struct ktcp_shake	shake;
	unsigned long		deadline;
};

static void request_free(struct ktcp_request *request)
{
	ktcp_sock_close(request->sock);
	kfree(request);
}

static void request_refuse(struct ktcp_request *request, u16 reason, const void *data, size_t len)
{
	u8 refusal[KT_SHAKE_MAX];

	len = ktcp_pack_shake(refusal, KT_REFUSAL, reason, NULL, data, len);
	ktcp_sock_send(request->sock, refusal, len, false);
	request_free(request);
}

static struct ktcp_request *take(const struct fid *handle, const struct fid *of)
{
	struct kofi_request *request = kofi_request_take(handle, of);

	return request ? container_of(request, struct ktcp_request, request) : NULL;
}

struct socket *ktcp_request_take(struct ktcp_ep *ep)
{
	struct ktcp_request *request = take(ep->handle, &ep->ep.fid);
	struct socket *sock;

	if (!request)
		return NULL;
	sock = request->sock;
	kfree(request);
	return sock;
}

void ktcp_request_drop(struct ktcp_ep *ep)
{
	struct ktcp_request *request = take(ep->handle, &ep->ep.fid);

	if (request)
		request_refuse(request, KT_WHY_PROGRAM, NULL, 0);
}

/* A whole Hello: the client is asked. */
static void offer(struct ktcp_request *request)
{
	struct fid_pep *pep = request->request.pep;
	struct sockaddr_storage local = {}, remote = {};
	struct fi_info *info = NULL;

	if (kernel_getsockname(request->sock, (struct sockaddr *)&local) > 0 &&
	    kernel_getpeername(request->sock, (struct sockaddr *)&remote) > 0)
		info = kofi_info_new(pep->info, &local, kofi_ip_len(&local),
				     &remote, kofi_ip_len(&remote));
	ktcp_sock_watch(request->sock, NULL, NULL);
	if (kofi_request_offer(&request->request, pep, info, request->shake.bytes + KT_SHAKE_MIN,
			       ktcp_shake_data(&request->shake)))
		request_refuse(request, KT_WHY_RESOURCES, NULL, 0);
}

/* Whether the request is no pending one any more. */
static bool hear(struct ktcp_request *request)
{
	struct ktcp_shake *s = &request->shake;
	ssize_t got;
	int missing;

	while ((missing = ktcp_shake_missing(s)) > 0) {
		got = ktcp_sock_recv(request->sock, s->bytes + s->got, missing);
		if (got == -EAGAIN && time_before(jiffies, request->deadline))
			return false;
		if (got <= 0) {
			list_del(&request->request.node);
			request_free(request);
			return true;
		}
		s->got += got;
	}
	list_del(&request->request.node);
	if (missing < 0)
		request_refuse(request, -missing, NULL, 0);
	else if (ktcp_shake_type(s) != KT_HELLO)
		request_refuse(request, KT_WHY_MALFORMED, NULL, 0);
	else if (ktcp_shake_kind(s) != KT_ENDPOINT_MSG)
		request_refuse(request, KT_WHY_KIND, NULL, 0);
	else
		offer(request);
	return true;
}

static void accept_one(struct ktcp_pep *pep, struct socket *sock)
{
	struct ktcp_request *request = kzalloc(sizeof(*request), GFP_KERNEL);

	if (!request) {
		ktcp_sock_close(sock);
		return;
	}
	sock->sk->sk_allocation = GFP_NOIO;
	tcp_sock_set_nodelay(sock->sk);
	request->request.pep = &pep->pep;
	request->sock = sock;
	request->deadline = jiffies + msecs_to_jiffies(KTCP_HELLO_MS);
	list_add_tail(&request->request.node, &pep->pending);
	pep->count++;
	ktcp_sock_watch(sock, &pep->work, NULL);
}

static void pep_work(struct work_struct *work)
{
	struct ktcp_pep *pep = container_of(work, struct ktcp_pep, work);
	struct ktcp_request *request, *next;
	struct socket *sock;
	int status = 0;

	if (READ_ONCE(pep->closing))
		return;
	while (pep->count < KTCP_PENDING_MAX && !status) {
		status = kernel_accept(pep->sock, &sock, O_NONBLOCK);
		if (!status)
			accept_one(pep, sock);
	}
	list_for_each_entry_safe(request, next, &pep->pending, request.node)
		if (hear(request))
			pep->count--;
	/* For want of memory, say: nobody tells again of a connection that waits. */
	if (pep->count || (status && status != -EAGAIN))
		queue_delayed_work(ktcp_wq, &pep->timer, HZ);
}

static void pep_timer(struct work_struct *work)
{
	queue_work(ktcp_wq, &container_of(work, struct ktcp_pep, timer.work)->work);
}

static int pep_listen(struct fid_pep *fid_pep)
{
	struct ktcp_pep *pep = container_of(fid_pep, struct ktcp_pep, pep);
	int status = kernel_listen(pep->sock, SOMAXCONN);

	if (!status)
		ktcp_sock_watch(pep->sock, &pep->work, NULL);
	return status;
}

static int pep_reject(struct fid_pep *fid_pep, struct fid *handle, const void *param, size_t len)
{
	struct ktcp_request *request;

	if (len > KT_SHAKE_DATA)
		return -EINVAL;
	request = take(handle, &fid_pep->fid);
	if (!request)
		return -EINVAL;
	request_refuse(request, KT_WHY_PROGRAM, param, len);
	return 0;
}

static int pep_getname(struct fid *fid, void *addr, size_t *len)
{
	struct ktcp_pep *pep = container_of(fid, struct ktcp_pep, pep.fid);
	struct sockaddr_storage name;
	int status = kernel_getsockname(pep->sock, (struct sockaddr *)&name);

	return status < 0 ? status : kofi_give_ip_name(&name, addr, len);
}

static void pep_close(struct fid *fid)
{
	struct ktcp_pep *pep = container_of(fid, struct ktcp_pep, pep.fid);
	struct ktcp_request *request, *next;

	/* From here on the work does nothing, whoever still queues it. */
	WRITE_ONCE(pep->closing, true);
	cancel_work_sync(&pep->work);
	cancel_delayed_work_sync(&pep->timer);
	list_for_each_entry_safe(request, next, &pep->pending, request.node)
		request_free(request);
	ktcp_sock_close(pep->sock);
	cancel_work_sync(&pep->work);
	while ((request = take(NULL, fid)))
		request_refuse(request, KT_WHY_PROGRAM, NULL, 0);
	kfree(pep);
}

static const struct fi_ops pep_fid_ops = { .close = pep_close };
static const struct fi_ops_pep pep_ops = { .listen = pep_listen, .reject = pep_reject,
					   .getname = pep_getname };

int ktcp_passive_ep(struct fid_fabric *fabric, const struct fi_info *info, struct fid_pep **out)
{
	struct sockaddr_storage addr = { .ss_family = info->addr_format == FI_SOCKADDR_IN6 ?
						      AF_INET6 : AF_INET };
	struct ktcp_pep *pep = kzalloc(sizeof(*pep), GFP_KERNEL);
	int status;

	if (!pep)
		return -ENOMEM;
	if (info->src_addr && info->src_addrlen <= sizeof(addr))
		memcpy(&addr, info->src_addr, info->src_addrlen);
	status = ktcp_sock_new(addr.ss_family, &pep->sock);
	if (!status) {
		sock_set_reuseaddr(pep->sock->sk);
		status = kernel_bind(pep->sock, (struct sockaddr_unsized *)&addr,
				     kofi_ip_len(&addr));
	}
	if (status) {
		ktcp_sock_close(pep->sock);
		kfree(pep);
		return status;
	}
	INIT_LIST_HEAD(&pep->pending);
	INIT_WORK(&pep->work, pep_work);
	INIT_DELAYED_WORK(&pep->timer, pep_timer);
	pep->pep.fid.ops = &pep_fid_ops;
	pep->pep.ops = &pep_ops;
	*out = &pep->pep;
	return 0;
}
