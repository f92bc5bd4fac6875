// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kofi_loop: endpoints inside the machine, the smallest provider and the
 * example to copy. MSG and RDM; messages, tags, RMA, atomics. An address is a
 * u64, given to fi_getinfo() as decimal @service.
 *
 * Whoever completes a pair (send and receive) copies, in its own context.
 * loop_lock guards lists and peers and is never held over a copy or a
 * completion; an endpoint that others work on is held, and its close waits.
 * loop_cm serialises connects and closes.
 */
#include <kofi/provider.h>
#include <linux/kstrtox.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#define LOOP_INJECT_MAX	256
#define LOOP_SIZE	1024
#define LOOP_PARAM_MAX	256

struct loop_ep {
	struct fid_ep		ep;
	u64			name;
	struct loop_ep		*peer;		/* MSG, connected */
	struct kofi_request	request;	/* its own, while it is asking */
	bool			asking;
	struct fid		*handle;	/* of the one that it is to accept */
	struct list_head	ops;		/* all that this endpoint posted */
	struct list_head	posted[2];	/* receives: of messages, of tagged ones */
	struct list_head	waiting[2];	/* sends of others that wait for a receive */
};

struct loop_op {
	struct kofi_op		op;		/* node: posted or waiting of some endpoint */
	struct list_head	mine;		/* ops of its endpoint */
	u64			ignore;
};

struct loop_pep {
	struct fid_pep		pep;
	u64			name;
};

static DEFINE_MUTEX(loop_cm);
static DEFINE_SPINLOCK(loop_lock);
static DEFINE_XARRAY(loop_rdm);		/* endpoints by name; erased under loop_lock */
static DEFINE_XARRAY(loop_peps);
static u64 loop_names = BIT_ULL(32);	/* those that are given */

static struct loop_ep *to_loop(struct fid_ep *ep)
{
	return container_of(ep, struct loop_ep, ep);
}

/* Where an operation goes. Held until kofi_ep_put(). NULL: nowhere. */
static struct loop_ep *loop_target(struct loop_ep *ep, fi_addr_t addr)
{
	struct loop_ep *to = ep->peer;
	const u64 *name;

	lockdep_assert_held(&loop_lock);
	if (ep->ep.type == FI_EP_RDM) {
		rcu_read_lock();
		name = kofi_av_get(ep->ep.av, addr);
		to = name ? xa_load(&loop_rdm, *name) : NULL;
		rcu_read_unlock();
	}
	if (to)
		kofi_ep_get(&to->ep);
	return to;
}

static int loop_nowhere(const struct fid_ep *ep)
{
	return ep->type == FI_EP_MSG ? -ENOTCONN : -EHOSTUNREACH;
}

/* --- messages --- */

static void loop_end(struct loop_op *op, int err, int reason)
{
	struct fid_ep *ep = op->op.ep;

	kofi_op_end(&op->op, err, reason);
	kofi_ep_put(ep);
}

/* Takes an operation off its lists: whoever does that ends it. */
static void loop_take(struct loop_op *op)
{
	lockdep_assert_held(&loop_lock);
	list_del(&op->op.node);
	list_del(&op->mine);
	kofi_ep_get(op->op.ep);
}

static void loop_transfer(struct loop_op *send, struct loop_op *recv)
{
	kofi_op_meet(&send->op, &recv->op);
	loop_end(recv, recv->op.done.olen ? FI_ETRUNC : 0, 0);
	loop_end(send, 0, 0);
}

/* Queues an operation, or takes it with the one that it meets, which is returned. */
static struct loop_op *loop_queue(struct loop_op *op, struct loop_ep *to, bool tagged)
{
	bool send = op->op.kind == KOFI_CNTR_SEND;
	struct loop_op *other;

	lockdep_assert_held(&loop_lock);
	list_add_tail(&op->mine, &to_loop(op->op.ep)->ops);
	list_add_tail(&op->op.node, send ? &to->waiting[tagged] : &to->posted[tagged]);
	list_for_each_entry(other, send ? &to->posted[tagged] : &to->waiting[tagged], op.node)
		if (!((other->op.done.entry.tag ^ op->op.done.entry.tag) &
		      ~(other->ignore | op->ignore))) {
			loop_take(op);
			loop_take(other);
			return other;
		}
	return NULL;
}

static ssize_t loop_post(struct fid_ep *ep, const struct fi_msg *msg, bool tagged, u64 tag,
			 u64 ignore, u64 flags, bool send)
{
	struct kofi_op *new = kofi_op_new(ep, send ? KOFI_CNTR_SEND : KOFI_CNTR_RECV,
					  sizeof(struct loop_op), msg, tag,
					  (send ? FI_SEND | (flags & FI_REMOTE_CQ_DATA) : FI_RECV) |
					  (tagged ? FI_TAGGED : FI_MSG), flags, LOOP_INJECT_MAX);
	struct loop_op *op = container_of(new, struct loop_op, op), *match = NULL;
	struct loop_ep *to = to_loop(ep);

	if (IS_ERR(new))
		return PTR_ERR(new);
	op->ignore = ignore;
	spin_lock_bh(&loop_lock);
	if (send)
		to = loop_target(to, msg->addr);
	if (to)
		match = loop_queue(op, to, tagged);
	spin_unlock_bh(&loop_lock);
	if (!to) {
		kofi_op_refuse(new);
		return loop_nowhere(ep);
	}
	if (match)
		loop_transfer(send ? op : match, send ? match : op);
	if (send)
		kofi_ep_put(&to->ep);
	return 0;
}

KOFI_MESSAGE_CALLS(loop, loop_post);

/* --- RMA and atomics: done at once --- */

static struct loop_ep *loop_find(struct fid_ep *ep, fi_addr_t addr)
{
	struct loop_ep *to;

	spin_lock_bh(&loop_lock);
	to = loop_target(to_loop(ep), addr);
	spin_unlock_bh(&loop_lock);
	return to;
}

static ssize_t loop_post_rma(struct fid_ep *ep, const struct fi_msg_rma *msg, u64 flags, bool write)
{
	struct loop_ep *to = loop_find(ep, msg->msg.addr);
	ssize_t status;

	if (!to)
		return loop_nowhere(ep);
	status = kofi_rma_here(ep, &to->ep, msg, flags, write, LOOP_INJECT_MAX);
	kofi_ep_put(&to->ep);
	return status;
}

static ssize_t loop_atomicmsg(struct fid_ep *ep, const struct fi_msg_atomic *msg, u64 flags)
{
	struct loop_ep *to = loop_find(ep, msg->msg.addr);
	ssize_t status;

	if (!to)
		return loop_nowhere(ep);
	status = kofi_atomic_here(ep, &to->ep, msg, flags);
	kofi_ep_put(&to->ep);
	return status;
}

KOFI_RMA_CALLS(loop, loop_post_rma);
static const struct fi_ops_atomic loop_atomic = { .atomicmsg = loop_atomicmsg };

/* --- the end of operations --- */

/* Ends all operations of an endpoint (or one, of a context), and what waits at it. */
static void loop_flush(struct loop_ep *ep, const void *context, bool all)
{
	struct loop_op *op, *next;
	LIST_HEAD(gone);
	int i;

	spin_lock_bh(&loop_lock);
	list_for_each_entry_safe(op, next, &ep->ops, mine)
		if (all || (op->op.done.entry.op_context == context && list_empty(&gone))) {
			loop_take(op);
			list_add_tail(&op->mine, &gone);
		}
	for (i = 0; all && i < 2; i++)
		list_for_each_entry_safe(op, next, &ep->waiting[i], op.node) {
			loop_take(op);
			list_add_tail(&op->mine, &gone);
		}
	spin_unlock_bh(&loop_lock);
	list_for_each_entry_safe(op, next, &gone, mine)
		loop_end(op, op->op.kind == KOFI_CNTR_SEND && all ? EIO : ECANCELED,
			 KOFI_PE_CLOSED);
}

static ssize_t loop_cancel(struct fid_ep *ep, void *context)
{
	loop_flush(to_loop(ep), context, false);
	return 0;
}

/* Of a MSG endpoint: both sides are told, their operations end. */
static int loop_disconnect(struct loop_ep *ep)
{
	struct loop_ep *sides[2] = { ep, ep->peer };
	int i;

	lockdep_assert_held(&loop_cm);
	if (!ep->peer)
		return -ENOTCONN;
	spin_lock_bh(&loop_lock);
	sides[1]->peer = NULL;
	ep->peer = NULL;
	spin_unlock_bh(&loop_lock);
	for (i = 0; i < 2; i++) {
		loop_flush(sides[i], NULL, true);
		kofi_eq_write_cm(sides[i]->ep.eq, FI_SHUTDOWN, &sides[i]->ep.fid, NULL, NULL, 0);
	}
	return 0;
}

static int loop_shutdown(struct fid_ep *ep, u64 flags)
{
	int status;

	mutex_lock(&loop_cm);
	status = loop_disconnect(to_loop(ep));
	mutex_unlock(&loop_cm);
	return status;
}

/* --- connections --- */

static struct loop_ep *loop_asked(const struct fid *handle, const struct fid *of)
{
	struct kofi_request *request = kofi_request_take(handle, of);
	struct loop_ep *ep = request ? container_of(request, struct loop_ep, request) : NULL;

	lockdep_assert_held(&loop_cm);
	if (ep)
		ep->asking = false;
	return ep;
}

static int loop_refuse(struct loop_ep *ep, int reason, const void *param, size_t len)
{
	return kofi_eq_write_err(ep->ep.eq, &ep->ep.fid, ECONNREFUSED, reason, param, len);
}

static int loop_connect(struct fid_ep *fid_ep, const void *addr, const void *param, size_t len)
{
	struct loop_ep *ep = to_loop(fid_ep);
	struct loop_pep *pep;
	int status;

	if (!addr)
		return -EINVAL;
	mutex_lock(&loop_cm);
	pep = xa_load(&loop_peps, *(const u64 *)addr);
	if (ep->peer || ep->asking) {
		status = -EISCONN;
	} else if (!pep || !pep->pep.listening) {
		status = loop_refuse(ep, KOFI_PE_REFUSED, NULL, 0);
	} else {
		status = kofi_request_offer(&ep->request, &pep->pep,
					    kofi_info_new(pep->pep.info, &pep->name, sizeof(u64),
							  &ep->name, sizeof(u64)), param, len);
		ep->asking = !status;
	}
	mutex_unlock(&loop_cm);
	return status;
}

static int loop_accept(struct fid_ep *fid_ep, const void *param, size_t len)
{
	struct loop_ep *ep = to_loop(fid_ep), *from;

	mutex_lock(&loop_cm);
	from = loop_asked(ep->handle, &ep->ep.fid);
	if (from) {
		ep->handle = NULL;
		spin_lock_bh(&loop_lock);
		ep->peer = from;
		from->peer = ep;
		spin_unlock_bh(&loop_lock);
		kofi_eq_write_cm(fid_ep->eq, FI_CONNECTED, &fid_ep->fid, NULL, NULL, 0);
		kofi_eq_write_cm(from->ep.eq, FI_CONNECTED, &from->ep.fid, NULL, param, len);
	}
	mutex_unlock(&loop_cm);
	return from ? 0 : -EINVAL;
}

static int loop_reject(struct fid_pep *pep, struct fid *handle, const void *param, size_t len)
{
	struct loop_ep *from;

	mutex_lock(&loop_cm);
	from = loop_asked(handle, &pep->fid);
	if (from)
		loop_refuse(from, KOFI_PE_REJECTED, param, len);
	mutex_unlock(&loop_cm);
	return from ? 0 : -EINVAL;
}

static int loop_getname(struct fid *fid, void *addr, size_t *len)
{
	return kofi_give_name(fid->fclass == FI_CLASS_PEP ?
			      &container_of(fid, struct loop_pep, pep.fid)->name :
			      &container_of(fid, struct loop_ep, ep.fid)->name,
			      sizeof(u64), addr, len);
}

static int loop_getpeer(struct fid_ep *ep, void *addr, size_t *len)
{
	int status = -ENOTCONN;

	mutex_lock(&loop_cm);
	if (to_loop(ep)->peer)
		status = kofi_give_name(&to_loop(ep)->peer->name, sizeof(u64), addr, len);
	mutex_unlock(&loop_cm);
	return status;
}

static const struct fi_ops_cm loop_cm_ops = { .param_max = LOOP_PARAM_MAX,
					      .connect = loop_connect, .accept = loop_accept,
					      .shutdown = loop_shutdown, .getname = loop_getname,
					      .getpeer = loop_getpeer };
static const struct fi_ops_ep loop_ep_ops = { .cancel = loop_cancel };
static const struct fi_ops_pep loop_pep_ops = { .param_max = LOOP_PARAM_MAX, .reject = loop_reject,
						.getname = loop_getname };

/* --- objects --- */

static void loop_ep_close(struct fid *fid)
{
	struct loop_ep *ep = container_of(fid, struct loop_ep, ep.fid), *from;

	mutex_lock(&loop_cm);
	loop_asked(&ep->request.fid, &ep->ep.fid);
	from = loop_asked(ep->handle, &ep->ep.fid);
	if (from)
		loop_refuse(from, KOFI_PE_REJECTED, NULL, 0);
	loop_disconnect(ep);
	spin_lock_bh(&loop_lock);
	if (ep->ep.type == FI_EP_RDM)
		xa_erase(&loop_rdm, ep->name);	/* nobody begins anything with it any more */
	spin_unlock_bh(&loop_lock);
	loop_flush(ep, NULL, true);
	mutex_unlock(&loop_cm);
	kofi_ep_wait(&ep->ep);
	kfree(ep);
}

static const struct fi_ops loop_ep_fid = { .close = loop_ep_close };

/* Takes the name that an info asks for, or a new one, in @names (NULL: it may be anybody's). */
static int loop_name(const struct fi_info *info, struct xarray *names, void *object, u64 *name)
{
	int status = 0;

	mutex_lock(&loop_cm);
	*name = info->src_addr && info->src_addrlen == sizeof(u64) ? *(u64 *)info->src_addr :
								     loop_names++;
	if (names)
		status = xa_insert(names, *name, object, GFP_KERNEL);
	mutex_unlock(&loop_cm);
	return status == -EBUSY ? -EADDRINUSE : status;
}

static int loop_endpoint(struct fid_domain *domain, const struct fi_info *info,
			 struct fid_ep **out)
{
	struct loop_ep *ep = kzalloc(sizeof(*ep), GFP_KERNEL);
	int status, i;

	if (!ep)
		return -ENOMEM;
	ep->ep.fid.ops = &loop_ep_fid;
	ep->ep.ops = &loop_ep_ops;
	kofi_ep_init(&ep->ep, domain, info);
	ep->ep.cm = &loop_cm_ops;
	ep->ep.data = (struct kofi_ep_ops){ .msg = &loop_msg, .tagged = &loop_tagged,
					    .rma = &loop_rma, .atomic = &loop_atomic };
	ep->handle = info->handle;
	INIT_LIST_HEAD(&ep->ops);
	for (i = 0; i < 2; i++) {
		INIT_LIST_HEAD(&ep->posted[i]);
		INIT_LIST_HEAD(&ep->waiting[i]);
	}
	*out = &ep->ep;
	status = loop_name(info, ep->ep.type == FI_EP_RDM ? &loop_rdm : NULL, ep, &ep->name);
	if (status)
		kfree(ep);
	return status;
}

static void loop_pep_close(struct fid *fid)
{
	struct loop_pep *pep = container_of(fid, struct loop_pep, pep.fid);
	struct loop_ep *from;

	mutex_lock(&loop_cm);
	xa_erase(&loop_peps, pep->name);
	while ((from = loop_asked(NULL, &pep->pep.fid)))
		loop_refuse(from, KOFI_PE_REFUSED, NULL, 0);
	mutex_unlock(&loop_cm);
	kfree(pep);
}

static const struct fi_ops loop_pep_fid = { .close = loop_pep_close };

static int loop_passive_ep(struct fid_fabric *fabric, const struct fi_info *info,
			   struct fid_pep **out)
{
	struct loop_pep *pep = kzalloc(sizeof(*pep), GFP_KERNEL);
	int status;

	if (!pep)
		return -ENOMEM;
	pep->pep.fid.ops = &loop_pep_fid;
	pep->pep.ops = &loop_pep_ops;
	*out = &pep->pep;
	status = loop_name(info, &loop_peps, pep, &pep->name);
	if (status)
		kfree(pep);
	return status;
}

static const struct fi_ops_domain loop_domain_ops = { .endpoint = loop_endpoint };

static const struct fi_ops_fabric loop_fabric_ops = { .domain_ops = &loop_domain_ops,
						      .addrlen = sizeof(u64),
						      .passive_ep = loop_passive_ep };

/* --- what there is --- */

static const struct kofi_offer loop_offer = {
	.name = "kofi_loop", .addr_format = FI_PROV_SPECIFIC | 1, .addrlen = sizeof(u64),
	.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_RECV | FI_READ | FI_WRITE |
		FI_REMOTE_READ | FI_REMOTE_WRITE | FI_LOCAL_COMM,
	.order = FI_ORDER_SAS | FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW,
	.protocol = FI_PROTO_SHM, .inject_size = LOOP_INJECT_MAX, .size = LOOP_SIZE,
	.rma_iov_limit = SIZE_MAX, .max_msg_size = SSIZE_MAX,
};

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
	*info = kofi_offer_new(&loop_offer, FI_EP_MSG, src, dest);
	if (*info)
		(*info)->next = kofi_offer_new(&loop_offer, FI_EP_RDM, src, dest);
	return *info ? 0 : -ENOMEM;
}

static struct kofi_provider loop_provider = {
	.name = "kofi_loop", .version = FI_VERSION(1, 0), .owner = THIS_MODULE,
	.getinfo = loop_getinfo, .fabric_ops = &loop_fabric_ops,
};

module_kofi_provider(loop_provider);
MODULE_DESCRIPTION("kOFI provider inside the machine");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION("0.1.0");
