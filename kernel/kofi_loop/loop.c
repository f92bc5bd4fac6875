// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kofi_loop: endpoints inside the machine, the smallest provider and the
 * example to copy. MSG and RDM; messages, tags, RMA, atomics. An address is a
 * u64, given to fi_getinfo() as decimal @service.
 *
 * Whoever completes a pair (send and receive) copies, in its own context.
 * loop_lock guards lists and peers and is never held over a copy or a
 * completion; an endpoint that others work on is @busy, and its close waits.
 * loop_cm serialises connects and closes.
 */
#include <kofi/provider.h>
#include <linux/kstrtox.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

#define LOOP_INJECT_MAX	256
#define LOOP_SIZE	1024
#define LOOP_PARAM_MAX	256

struct loop_ep {
	struct fid_ep		ep;
	struct list_head	node;		/* loop_eps */
	u64			name;
	struct loop_ep		*peer;		/* MSG, connected */
	struct loop_request	*request;	/* its own, that was not answered */
	struct fid		*handle;	/* of the one that it is to accept */
	struct list_head	ops;		/* all that this endpoint posted */
	struct list_head	posted[2];	/* receives: of messages, of tagged ones */
	struct list_head	waiting[2];	/* sends of others that wait for a receive */
	unsigned int		busy;
	unsigned int		count[2];	/* of ops: receives, sends */
	size_t			size[2];
};

struct loop_op {
	struct list_head	node;		/* posted or waiting of some endpoint */
	struct list_head	mine;		/* ops of @ep */
	struct loop_ep		*ep;
	struct kofi_vec		vec;
	struct kofi_completion	done;
	bool			send;
	u64			ignore;
	u8			copy[];		/* FI_INJECT */
};

struct loop_pep {
	struct fid_pep		pep;
	struct list_head	node;		/* loop_peps */
	struct list_head	requests;
	struct fi_info		*model;		/* of the infos of requests */
	u64			name;
	bool			listening;
};

struct loop_request {
	struct fid		fid;		/* fi_info.handle */
	struct list_head	node;
	struct loop_ep		*from;		/* NULL: closed since */
};

static DEFINE_MUTEX(loop_cm);
static DEFINE_SPINLOCK(loop_lock);
static DECLARE_WAIT_QUEUE_HEAD(loop_wait);
static LIST_HEAD(loop_eps);
static LIST_HEAD(loop_peps);
static u64 loop_names = BIT_ULL(32);	/* those that are given */

static struct loop_ep *to_loop(struct fid_ep *ep)
{
	return container_of(ep, struct loop_ep, ep);
}

static void loop_idle(struct loop_ep *ep)
{
	spin_lock_bh(&loop_lock);
	if (!--ep->busy)
		wake_up_all(&loop_wait);
	spin_unlock_bh(&loop_lock);
}

/* Where an operation goes. Busy until loop_idle(). NULL: nowhere. */
static struct loop_ep *loop_target(struct loop_ep *ep, fi_addr_t addr)
{
	struct loop_ep *to = ep->peer, *other;

	lockdep_assert_held(&loop_lock);
	if (ep->ep.type == FI_EP_RDM) {
		const u64 *name;

		to = NULL;
		rcu_read_lock();
		name = kofi_av_get(ep->ep.av, addr);
		list_for_each_entry(other, &loop_eps, node)
			if (name && other->name == *name && other->ep.type == FI_EP_RDM)
				to = other;
		rcu_read_unlock();
	}
	if (to)
		to->busy++;
	return to;
}

/* --- messages --- */

static void loop_end(struct loop_op *op, int err, int reason)
{
	struct loop_ep *ep = op->ep;

	op->done.err = err;
	op->done.prov_errno = reason;
	kofi_complete(&ep->ep, op->send ? KOFI_CNTR_SEND : KOFI_CNTR_RECV, &op->done);
	kfree(op);
	loop_idle(ep);
}

/* Takes an operation off its lists: whoever does that ends it. */
static void loop_take(struct loop_op *op)
{
	lockdep_assert_held(&loop_lock);
	list_del(&op->node);
	list_del(&op->mine);
	op->ep->count[op->send]--;
	op->ep->busy++;
}

static void loop_transfer(struct loop_op *send, struct loop_op *recv)
{
	size_t len = send->vec.len, fits = min(len, recv->vec.len);

	kofi_copy(&recv->vec, 0, &send->vec, 0, fits);
	recv->done.entry.len = fits;
	recv->done.entry.flags |= send->done.entry.flags & FI_REMOTE_CQ_DATA;
	recv->done.entry.data = send->done.entry.data;
	recv->done.entry.tag = send->done.entry.tag;
	recv->done.olen = len - fits;
	loop_end(recv, len > fits ? FI_ETRUNC : 0, 0);
	send->done.entry.len = len;
	loop_end(send, 0, 0);
}

static ssize_t loop_post(struct fid_ep *fid_ep, const struct fi_msg *msg, bool tagged, u64 tag,
			 u64 ignore, u64 flags, bool send)
{
	struct loop_ep *ep = to_loop(fid_ep), *to = ep;
	bool inject = send && (flags & FI_INJECT);
	struct loop_op *op, *other, *match = NULL;
	struct fid_cq *cq = send ? fid_ep->tx_cq : fid_ep->rx_cq;
	int status = 0;

	if (flags & FI_FENCE)
		return -FI_EBADFLAGS;
	if (!kofi_vec_valid(&msg->vec))
		return -EINVAL;
	if (inject && msg->vec.len > LOOP_INJECT_MAX)
		return -EMSGSIZE;
	if (kofi_cq_reserve(cq))
		return -EAGAIN;
	op = kzalloc(struct_size(op, copy, inject ? msg->vec.len : 0), GFP_ATOMIC);
	if (!op) {
		kofi_cq_unreserve(cq);
		return -EAGAIN;
	}
	op->ep = ep;
	op->send = send;
	op->vec = msg->vec;
	if (inject) {
		op->vec = kofi_vec_buf(op->copy, msg->vec.len);
		kofi_copy(&op->vec, 0, &msg->vec, 0, msg->vec.len);
	}
	op->ignore = ignore;
	op->done.entry.op_context = msg->context;
	op->done.entry.flags = (send ? FI_SEND | (flags & FI_REMOTE_CQ_DATA) : FI_RECV) |
			       (tagged ? FI_TAGGED : FI_MSG);
	op->done.entry.data = msg->data;
	op->done.entry.tag = tag;
	op->done.src = FI_ADDR_NOTAVAIL;
	op->done.silent = !kofi_wants_entry(fid_ep, send, flags);

	spin_lock_bh(&loop_lock);
	if (send)
		to = loop_target(ep, msg->addr);
	if (!to)
		status = fid_ep->type == FI_EP_MSG ? -ENOTCONN : -EHOSTUNREACH;
	else if (ep->count[send] >= ep->size[send])
		status = -EAGAIN;
	if (status) {
		spin_unlock_bh(&loop_lock);
		if (to && send)
			loop_idle(to);
		kofi_cq_unreserve(cq);
		kfree(op);
		return status;
	}
	list_for_each_entry(other, send ? &to->posted[tagged] : &to->waiting[tagged], node) {
		if ((other->done.entry.tag ^ tag) & ~(other->ignore | ignore))
			continue;
		match = other;
		break;
	}
	ep->count[send]++;
	list_add_tail(&op->mine, &ep->ops);
	list_add_tail(&op->node, send ? &to->waiting[tagged] : &to->posted[tagged]);
	if (match) {
		loop_take(op);
		loop_take(match);
	}
	spin_unlock_bh(&loop_lock);
	if (match)
		loop_transfer(send ? op : match, send ? match : op);
	if (send)
		loop_idle(to);
	return 0;
}

static ssize_t loop_recvmsg(struct fid_ep *ep, const struct fi_msg *msg, u64 flags)
{
	return loop_post(ep, msg, false, 0, 0, flags, false);
}

static ssize_t loop_sendmsg(struct fid_ep *ep, const struct fi_msg *msg, u64 flags)
{
	return loop_post(ep, msg, false, 0, 0, flags, true);
}

static ssize_t loop_trecvmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg, u64 flags)
{
	return loop_post(ep, &msg->msg, true, msg->tag, msg->ignore, flags, false);
}

static ssize_t loop_tsendmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg, u64 flags)
{
	return loop_post(ep, &msg->msg, true, msg->tag, 0, flags, true);
}

static const struct fi_ops_msg loop_msg = { .recvmsg = loop_recvmsg, .sendmsg = loop_sendmsg };
static const struct fi_ops_tagged loop_tagged = { .recvmsg = loop_trecvmsg,
						  .sendmsg = loop_tsendmsg };

/* --- RMA and atomics: done at once --- */

static int loop_begin(struct loop_ep *ep, fi_addr_t addr, struct loop_ep **to)
{
	if (kofi_cq_reserve(ep->ep.tx_cq))
		return -EAGAIN;
	spin_lock_bh(&loop_lock);
	*to = loop_target(ep, addr);
	spin_unlock_bh(&loop_lock);
	if (*to)
		return 0;
	kofi_cq_unreserve(ep->ep.tx_cq);
	return ep->ep.type == FI_EP_MSG ? -ENOTCONN : -EHOSTUNREACH;
}

/* Both sides' completions of a one-sided operation. */
static void loop_finish(struct loop_ep *ep, struct loop_ep *to, const struct fi_msg *msg,
			u64 kind, bool write, int status, u64 flags)
{
	if (!status)
		kofi_complete_remote(&to->ep, kind, write, msg->vec.len, flags, msg->data);
	kofi_complete_rma(&ep->ep, kind, write, msg, status, flags);
	loop_idle(to);
}

static ssize_t loop_rma(struct fid_ep *fid_ep, const struct fi_msg_rma *msg, u64 flags, bool write)
{
	struct loop_ep *ep = to_loop(fid_ep), *to;
	size_t i, done = 0, total = 0;
	int status;

	if (flags & FI_FENCE)
		return -FI_EBADFLAGS;
	for (i = 0; i < msg->rma_iov_count; i++)
		total += msg->rma_iov[i].len;
	if (total != msg->msg.vec.len || !kofi_vec_valid(&msg->msg.vec))
		return -EINVAL;
	if ((flags & FI_INJECT) && total > LOOP_INJECT_MAX)
		return -EMSGSIZE;
	status = loop_begin(ep, msg->msg.addr, &to);
	if (status)
		return status;
	for (i = 0; i < msg->rma_iov_count && !status; i++) {
		const struct fi_rma_iov *at = &msg->rma_iov[i];
		struct kofi_mr *mr = kofi_mr_get(container_of(to->ep.fid.parent,
							      struct fid_domain, fid),
						 at->key, at->addr, at->len,
						 write ? FI_REMOTE_WRITE : FI_REMOTE_READ);

		status = PTR_ERR_OR_ZERO(mr);
		if (status)
			break;
		if (write)
			kofi_copy(&mr->vec, at->addr, &msg->msg.vec, done, at->len);
		else
			kofi_copy(&msg->msg.vec, done, &mr->vec, at->addr, at->len);
		kofi_mr_put(mr);
		done += at->len;
	}
	loop_finish(ep, to, &msg->msg, FI_RMA, write, status, flags);
	return 0;
}

static ssize_t loop_readmsg(struct fid_ep *ep, const struct fi_msg_rma *msg, u64 flags)
{
	return loop_rma(ep, msg, flags & ~FI_REMOTE_CQ_DATA, false);
}

static ssize_t loop_writemsg(struct fid_ep *ep, const struct fi_msg_rma *msg, u64 flags)
{
	return loop_rma(ep, msg, flags, true);
}

static ssize_t loop_atomicmsg(struct fid_ep *fid_ep, const struct fi_msg_atomic *msg, u64 flags)
{
	struct loop_ep *ep = to_loop(fid_ep), *to;
	size_t len = msg->msg.vec.len;
	bool reads_only = msg->op == FI_ATOMIC_READ;
	struct kofi_mr *mr;
	int status;

	if (flags & FI_FENCE)
		return -FI_EBADFLAGS;
	if (!kofi_atomic_valid(msg->datatype, msg->op, msg->result, msg->compare))
		return -EOPNOTSUPP;
	if (msg->msg.vec.type != KOFI_BUF || len > KOFI_ATOMIC_BYTES_MAX ||
	    len % fi_datatype_size(msg->datatype))
		return -EINVAL;
	status = loop_begin(ep, msg->msg.addr, &to);
	if (status)
		return status;
	mr = kofi_mr_get(container_of(to->ep.fid.parent, struct fid_domain, fid), msg->key,
			 msg->addr, len, (reads_only ? 0 : FI_REMOTE_WRITE) |
					 (msg->result ? FI_REMOTE_READ : 0));
	status = PTR_ERR_OR_ZERO(mr);
	if (!status) {
		status = kofi_atomic(mr, msg->addr, msg->datatype, msg->op, msg->msg.vec.buf,
				     msg->compare, msg->result,
				     len / fi_datatype_size(msg->datatype));
		kofi_mr_put(mr);
	}
	loop_finish(ep, to, &msg->msg, FI_ATOMIC, !reads_only, status, flags);
	return 0;
}

static const struct fi_ops_rma loop_rma_ops = { .readmsg = loop_readmsg,
						.writemsg = loop_writemsg };
static const struct fi_ops_atomic loop_atomic = { .atomicmsg = loop_atomicmsg };

/* --- the end of operations --- */

/* Ends all operations of an endpoint (of one context), and what waits at it. */
static void loop_flush(struct loop_ep *ep, const void *context, bool all)
{
	struct loop_op *op, *next;
	LIST_HEAD(gone);
	int i;

	spin_lock_bh(&loop_lock);
	list_for_each_entry_safe(op, next, &ep->ops, mine)
		if (all || op->done.entry.op_context == context) {
			loop_take(op);
			list_add_tail(&op->mine, &gone);
			if (!all)
				break;
		}
	for (i = 0; all && i < 2; i++)
		list_for_each_entry_safe(op, next, &ep->waiting[i], node) {
			loop_take(op);
			list_add_tail(&op->mine, &gone);
		}
	spin_unlock_bh(&loop_lock);
	list_for_each_entry_safe(op, next, &gone, mine)
		loop_end(op, op->send && all ? EIO : ECANCELED, KOFI_PE_CLOSED);
}

static ssize_t loop_cancel(struct fid_ep *ep, void *context)
{
	loop_flush(to_loop(ep), context, false);
	return 0;
}

/* Of a MSG endpoint: both sides are told, their operations end. */
static void loop_disconnect(struct loop_ep *ep)
{
	struct loop_ep *peer = ep->peer;

	lockdep_assert_held(&loop_cm);
	if (!peer)
		return;
	spin_lock_bh(&loop_lock);
	ep->peer = NULL;
	peer->peer = NULL;
	spin_unlock_bh(&loop_lock);
	loop_flush(ep, NULL, true);
	loop_flush(peer, NULL, true);
	kofi_eq_write_cm(ep->ep.eq, FI_SHUTDOWN, &ep->ep.fid, NULL, NULL, 0);
	kofi_eq_write_cm(peer->ep.eq, FI_SHUTDOWN, &peer->ep.fid, NULL, NULL, 0);
}

static int loop_shutdown(struct fid_ep *ep, u64 flags)
{
	int status;

	mutex_lock(&loop_cm);
	status = to_loop(ep)->peer ? 0 : -ENOTCONN;
	loop_disconnect(to_loop(ep));
	mutex_unlock(&loop_cm);
	return status;
}

/* --- connections --- */

static void loop_answer(struct loop_request *request, int prov_errno, const void *param, size_t len)
{
	lockdep_assert_held(&loop_cm);
	if (request->from && prov_errno)
		kofi_eq_write_err(request->from->ep.eq, &request->from->ep.fid, ECONNREFUSED,
				  prov_errno, param, len);
	if (request->from)
		request->from->request = NULL;
	list_del(&request->node);
	kfree(request);
}

static int loop_connect(struct fid_ep *fid_ep, const void *addr, const void *param, size_t len)
{
	struct loop_ep *ep = to_loop(fid_ep);
	struct loop_pep *pep, *found = NULL;
	struct loop_request *request = NULL;
	struct fi_info *info = NULL;
	int status = -EISCONN;

	if (!addr || len > LOOP_PARAM_MAX)
		return -EINVAL;
	mutex_lock(&loop_cm);
	list_for_each_entry(pep, &loop_peps, node)
		if (pep->listening && pep->name == *(const u64 *)addr)
			found = pep;
	if (ep->peer || ep->request)
		goto out;
	if (!found) {
		status = kofi_eq_write_err(fid_ep->eq, &fid_ep->fid, ECONNREFUSED,
					   KOFI_PE_REFUSED, NULL, 0);
		goto out;
	}
	status = -ENOMEM;
	request = kzalloc(sizeof(*request), GFP_KERNEL);
	info = kofi_info_new(found->model, &found->name, sizeof(u64), &ep->name, sizeof(u64));
	if (!request || !info)
		goto out;
	request->fid.fclass = FI_CLASS_CONNREQ;
	request->from = ep;
	info->handle = &request->fid;
	status = kofi_eq_write_cm(found->pep.eq, FI_CONNREQ, &found->pep.fid, info, param, len);
	if (status)
		goto out;
	list_add_tail(&request->node, &found->requests);
	ep->request = request;
	mutex_unlock(&loop_cm);
	return 0;
out:
	mutex_unlock(&loop_cm);
	kfree(request);
	fi_freeinfo(info);
	return status;
}

/* The request that a handle names, if there is one. */
static struct loop_request *loop_request_of(const struct fid *handle)
{
	struct loop_request *request;
	struct loop_pep *pep;

	lockdep_assert_held(&loop_cm);
	list_for_each_entry(pep, &loop_peps, node)
		list_for_each_entry(request, &pep->requests, node)
			if (&request->fid == handle)
				return request;
	return NULL;
}

static int loop_accept(struct fid_ep *fid_ep, const void *param, size_t len)
{
	struct loop_ep *ep = to_loop(fid_ep), *from;
	struct loop_request *request;
	int status = -EINVAL;

	if (len > LOOP_PARAM_MAX)
		return -EINVAL;
	mutex_lock(&loop_cm);
	request = loop_request_of(ep->handle);
	if (request) {
		from = request->from;
		ep->handle = NULL;
		status = from ? 0 : -ECONNREFUSED;
		loop_answer(request, 0, NULL, 0);
	}
	if (!status) {
		spin_lock_bh(&loop_lock);
		ep->peer = from;
		from->peer = ep;
		spin_unlock_bh(&loop_lock);
		kofi_eq_write_cm(fid_ep->eq, FI_CONNECTED, &fid_ep->fid, NULL, NULL, 0);
		kofi_eq_write_cm(from->ep.eq, FI_CONNECTED, &from->ep.fid, NULL, param, len);
	}
	mutex_unlock(&loop_cm);
	return status;
}

static int loop_reject(struct fid_pep *pep, struct fid *handle, const void *param, size_t len)
{
	struct loop_request *request;

	if (len > LOOP_PARAM_MAX)
		return -EINVAL;
	mutex_lock(&loop_cm);
	request = loop_request_of(handle);
	if (request)
		loop_answer(request, KOFI_PE_REJECTED, param, len);
	mutex_unlock(&loop_cm);
	return request ? 0 : -EINVAL;
}

static int loop_listen(struct fid_pep *pep)
{
	container_of(pep, struct loop_pep, pep)->listening = true;
	return 0;
}

static int loop_name(u64 name, void *addr, size_t *len)
{
	size_t room = *len;

	*len = sizeof(name);
	memcpy(addr, &name, min(room, sizeof(name)));
	return room < sizeof(name) ? -FI_ETOOSMALL : 0;
}

static int loop_getname(struct fid *fid, void *addr, size_t *len)
{
	return loop_name(fid->fclass == FI_CLASS_PEP ?
			 container_of(fid, struct loop_pep, pep.fid)->name :
			 container_of(fid, struct loop_ep, ep.fid)->name, addr, len);
}

static int loop_getpeer(struct fid_ep *ep, void *addr, size_t *len)
{
	int status = -ENOTCONN;

	mutex_lock(&loop_cm);
	if (to_loop(ep)->peer)
		status = loop_name(to_loop(ep)->peer->name, addr, len);
	mutex_unlock(&loop_cm);
	return status;
}

static const struct fi_ops_cm loop_cm_ops = { .connect = loop_connect, .accept = loop_accept,
					      .shutdown = loop_shutdown, .getname = loop_getname,
					      .getpeer = loop_getpeer };
static const struct fi_ops_cm loop_rdm_cm = { .getname = loop_getname };
static const struct fi_ops_ep loop_ep_ops = { .cancel = loop_cancel };
static const struct fi_ops_pep loop_pep_ops = { .listen = loop_listen, .reject = loop_reject,
						.getname = loop_getname };

/* --- objects --- */

static void loop_ep_close(struct fid *fid)
{
	struct loop_ep *ep = container_of(fid, struct loop_ep, ep.fid);
	struct loop_request *request;

	mutex_lock(&loop_cm);
	if (ep->request)
		ep->request->from = NULL;
	request = loop_request_of(ep->handle);
	if (request)
		loop_answer(request, KOFI_PE_REJECTED, NULL, 0);
	loop_disconnect(ep);
	spin_lock_bh(&loop_lock);
	list_del(&ep->node);	/* nobody begins anything with it any more */
	spin_unlock_bh(&loop_lock);
	loop_flush(ep, NULL, true);
	mutex_unlock(&loop_cm);
	wait_event(loop_wait, !READ_ONCE(ep->busy));
	spin_lock_bh(&loop_lock);	/* the last loop_idle() is through */
	spin_unlock_bh(&loop_lock);
	kfree(ep);
}

static const struct fi_ops loop_ep_fid = { .close = loop_ep_close };

/* The name that an info asks for, or a new one. */
static u64 loop_name_for(const struct fi_info *info)
{
	return info->src_addr && info->src_addrlen == sizeof(u64) ? *(u64 *)info->src_addr :
								    loop_names++;
}

static int loop_endpoint(struct fid_domain *domain, const struct fi_info *info,
			 struct fid_ep **out)
{
	struct loop_ep *ep, *other;
	int status = 0, i;

	ep = kzalloc(sizeof(*ep), GFP_KERNEL);
	if (!ep)
		return -ENOMEM;
	ep->ep.fid.ops = &loop_ep_fid;
	ep->ep.ops = &loop_ep_ops;
	ep->ep.cm = info->ep_attr->type == FI_EP_MSG ? &loop_cm_ops : &loop_rdm_cm;
	ep->ep.data = (struct kofi_ep_ops){ .msg = &loop_msg, .tagged = &loop_tagged,
					    .rma = &loop_rma_ops, .atomic = &loop_atomic };
	ep->ep.type = info->ep_attr->type;
	ep->handle = info->handle;
	ep->size[false] = info->rx_attr->size ?: LOOP_SIZE;
	ep->size[true] = info->tx_attr->size ?: LOOP_SIZE;
	INIT_LIST_HEAD(&ep->ops);
	for (i = 0; i < 2; i++) {
		INIT_LIST_HEAD(&ep->posted[i]);
		INIT_LIST_HEAD(&ep->waiting[i]);
	}
	mutex_lock(&loop_cm);
	ep->name = loop_name_for(info);
	if (ep->ep.type == FI_EP_RDM)
		list_for_each_entry(other, &loop_eps, node)
			if (other->ep.type == FI_EP_RDM && other->name == ep->name)
				status = -EADDRINUSE;
	spin_lock_bh(&loop_lock);
	if (!status)
		list_add_tail(&ep->node, &loop_eps);
	spin_unlock_bh(&loop_lock);
	mutex_unlock(&loop_cm);
	if (status)
		kfree(ep);
	else
		*out = &ep->ep;
	return status;
}

static void loop_pep_close(struct fid *fid)
{
	struct loop_pep *pep = container_of(fid, struct loop_pep, pep.fid);
	struct loop_request *request, *next;

	mutex_lock(&loop_cm);
	list_del(&pep->node);
	list_for_each_entry_safe(request, next, &pep->requests, node)
		loop_answer(request, KOFI_PE_REFUSED, NULL, 0);
	mutex_unlock(&loop_cm);
	fi_freeinfo(pep->model);
	kfree(pep);
}

static const struct fi_ops loop_pep_fid = { .close = loop_pep_close };

static int loop_passive_ep(struct fid_fabric *fabric, const struct fi_info *info,
			   struct fid_pep **out)
{
	struct loop_pep *pep = kzalloc(sizeof(*pep), GFP_KERNEL), *other;
	int status = 0;

	if (!pep)
		return -ENOMEM;
	pep->model = fi_dupinfo(info);
	pep->pep.fid.ops = &loop_pep_fid;
	pep->pep.ops = &loop_pep_ops;
	INIT_LIST_HEAD(&pep->requests);
	mutex_lock(&loop_cm);
	pep->name = loop_name_for(info);
	list_for_each_entry(other, &loop_peps, node)
		if (other->name == pep->name)
			status = -EADDRINUSE;
	if (!pep->model)
		status = -ENOMEM;
	if (!status)
		list_add_tail(&pep->node, &loop_peps);
	mutex_unlock(&loop_cm);
	if (status) {
		fi_freeinfo(pep->model);
		kfree(pep);
		return status;
	}
	*out = &pep->pep;
	return 0;
}

static void loop_domain_close(struct fid *fid)
{
	kfree(container_of(fid, struct fid_domain, fid));
}

static void loop_fabric_close(struct fid *fid)
{
	kfree(container_of(fid, struct fid_fabric, fid));
}

static const struct fi_ops loop_domain_fid = { .close = loop_domain_close };
static const struct fi_ops loop_fabric_fid = { .close = loop_fabric_close };
static const struct fi_ops_domain loop_domain_ops = { .endpoint = loop_endpoint };

static int loop_domain(struct fid_fabric *fabric, const struct fi_info *info,
		       struct fid_domain **out)
{
	*out = kzalloc(sizeof(**out), GFP_KERNEL);
	if (!*out)
		return -ENOMEM;
	(*out)->fid.ops = &loop_domain_fid;
	(*out)->ops = &loop_domain_ops;
	(*out)->addrlen = sizeof(u64);
	return 0;
}

static const struct fi_ops_fabric loop_fabric_ops = { .domain = loop_domain,
						      .passive_ep = loop_passive_ep };

static int loop_fabric(const struct fi_fabric_attr *attr, struct fid_fabric **out)
{
	*out = kzalloc(sizeof(**out), GFP_KERNEL);
	if (!*out)
		return -ENOMEM;
	(*out)->fid.ops = &loop_fabric_fid;
	(*out)->ops = &loop_fabric_ops;
	return 0;
}

/* --- what there is --- */

#define LOOP_CAPS (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_RECV | FI_READ | \
		   FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_LOCAL_COMM)
#define LOOP_ORDER (FI_ORDER_SAS | FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW)

static struct fi_info *loop_offer(enum fi_ep_type type, const u64 *src, const u64 *dest)
{
	struct fi_info *info = kofi_info_new(NULL, src, sizeof(u64), dest, sizeof(u64));

	if (!info)
		return NULL;
	info->caps = LOOP_CAPS;
	info->addr_format = FI_PROV_SPECIFIC | 1;
	*info->tx_attr = (struct fi_tx_attr){ .caps = LOOP_CAPS, .msg_order = LOOP_ORDER,
		.inject_size = LOOP_INJECT_MAX, .size = LOOP_SIZE, .iov_limit = SIZE_MAX,
		.rma_iov_limit = SIZE_MAX };
	*info->rx_attr = (struct fi_rx_attr){ .caps = LOOP_CAPS, .msg_order = LOOP_ORDER,
		.size = LOOP_SIZE, .iov_limit = SIZE_MAX };
	*info->ep_attr = (struct fi_ep_attr){ .type = type, .protocol = FI_PROTO_SHM,
		.protocol_version = 1, .max_msg_size = SSIZE_MAX };
	*info->domain_attr = (struct fi_domain_attr){ .name = "kofi_loop",
		.threading = FI_THREAD_SAFE, .control_progress = FI_PROGRESS_AUTO,
		.data_progress = FI_PROGRESS_AUTO, .resource_mgmt = FI_RM_ENABLED,
		.av_type = FI_AV_TABLE, .mr_key_size = 8, .cq_data_size = 8 };
	strscpy(info->fabric_attr->name, "kofi_loop", FI_NAME_MAX);
	return info;
}

static int loop_getinfo(const char *node, const char *service, u64 flags,
			const struct fi_info *hints, struct fi_info **info)
{
	const u64 *src = hints && hints->src_addrlen == sizeof(u64) ? hints->src_addr : NULL;
	const u64 *dest = hints && hints->dest_addrlen == sizeof(u64) ? hints->dest_addr : NULL;
	u64 number;

	if (service && kstrtou64(service, 10, &number))
		return -ENODATA;
	if (service && (flags & FI_SOURCE))
		src = &number;
	else if (service)
		dest = &number;
	*info = loop_offer(FI_EP_MSG, src, dest);
	if (*info)
		(*info)->next = loop_offer(FI_EP_RDM, src, dest);
	return *info ? 0 : -ENOMEM;
}

static struct kofi_provider loop_provider = {
	.name = "kofi_loop", .version = FI_VERSION(1, 0), .owner = THIS_MODULE,
	.getinfo = loop_getinfo, .fabric = loop_fabric,
};

static int __init loop_init(void)
{
	return kofi_provider_register(KOFI_PROVIDER_VERSION, &loop_provider);
}

static void __exit loop_exit(void)
{
	WARN_ON(kofi_provider_deregister(&loop_provider));
}

module_init(loop_init);
module_exit(loop_exit);
MODULE_DESCRIPTION("kOFI provider inside the machine");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION("0.1.0");
