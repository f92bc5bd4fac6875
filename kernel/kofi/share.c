// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What providers would otherwise write one by one: checks of what is posted,
 * completions, one-sided operations on this machine's regions, requests that
 * wait for an answer, plain fabrics and domains. <kofi/provider.h> describes
 * them. Must not know any provider.
 */
#include "internal.h"

#include <linux/mutex.h>
#include <linux/slab.h>

/* --- what is posted --- */

int kofi_check_msg(const struct fi_msg *msg, u64 flags, size_t inject_max)
{
	if (flags & FI_FENCE)
		return -FI_EBADFLAGS;
	if (!kofi_vec_valid(&msg->vec))
		return -EINVAL;
	return (flags & FI_INJECT) && msg->vec.len > inject_max ? -EMSGSIZE : 0;
}
EXPORT_SYMBOL_GPL(kofi_check_msg);

int kofi_check_rma(const struct fi_msg_rma *msg, u64 flags, size_t inject_max)
{
	u64 total = 0;
	size_t i;

	for (i = 0; i < msg->rma_iov_count; i++)
		total += msg->rma_iov[i].len;
	return total != msg->msg.vec.len ? -EINVAL :
					   kofi_check_msg(&msg->msg, flags, inject_max);
}
EXPORT_SYMBOL_GPL(kofi_check_rma);

int kofi_check_atomic(const struct fi_msg_atomic *msg, u64 flags)
{
	size_t len = msg->msg.vec.len;

	if (!kofi_atomic_valid(msg->datatype, msg->op, msg->result, msg->compare))
		return -EOPNOTSUPP;
	if (msg->msg.vec.type != KOFI_BUF || !len || len > KOFI_ATOMIC_BYTES_MAX ||
	    len % fi_datatype_size(msg->datatype) ||
	    (msg->op != FI_ATOMIC_READ && !msg->msg.vec.buf))
		return -EINVAL;
	return flags & FI_FENCE ? -FI_EBADFLAGS : 0;
}
EXPORT_SYMBOL_GPL(kofi_check_atomic);

struct kofi_op *kofi_op_new(struct fid_ep *ep, int kind, size_t size, const struct fi_msg *msg,
			    u64 tag, u64 what, u64 flags, size_t inject_max)
{
	bool tx = kind != KOFI_CNTR_RECV, inject = tx && (flags & FI_INJECT);
	int status = kofi_check_msg(msg, tx ? flags : flags & ~FI_INJECT, inject_max);
	struct kofi_op *op;

	if (status)
		return ERR_PTR(status);
	if (atomic_inc_return(&ep->posted[tx]) > ep->posted_max[tx] ||
	    kofi_cq_reserve(kofi_cq_of(ep, kind))) {
		atomic_dec(&ep->posted[tx]);
		return ERR_PTR(-EAGAIN);
	}
	op = kzalloc(size + (inject ? msg->vec.len : 0), GFP_ATOMIC | __GFP_NOWARN);
	if (!op) {
		atomic_dec(&ep->posted[tx]);
		kofi_cq_unreserve(kofi_cq_of(ep, kind));
		return ERR_PTR(-EAGAIN);
	}
	op->ep = ep;
	op->kind = kind;
	op->vec = msg->vec;
	if (inject) {
		op->vec = kofi_vec_buf((u8 *)op + size, msg->vec.len);
		kofi_copy(&op->vec, 0, &msg->vec, 0, msg->vec.len);
	}
	op->done = (struct kofi_completion){
		.entry = { .op_context = msg->context, .len = msg->vec.len, .data = msg->data,
			   .tag = tag, .flags = what },
		.src = FI_ADDR_NOTAVAIL, .silent = !kofi_wants_entry(ep, tx, flags) };
	return op;
}
EXPORT_SYMBOL_GPL(kofi_op_new);

void kofi_op_refuse(struct kofi_op *op)
{
	atomic_dec(&op->ep->posted[op->kind != KOFI_CNTR_RECV]);
	kofi_cq_unreserve(kofi_cq_of(op->ep, op->kind));
	kfree(op);
}
EXPORT_SYMBOL_GPL(kofi_op_refuse);

void kofi_op_end(struct kofi_op *op, int err, int reason)
{
	op->done.err = err;
	op->done.prov_errno = reason;
	atomic_dec(&op->ep->posted[op->kind != KOFI_CNTR_RECV]);
	kofi_complete(op->ep, op->kind, &op->done);
	kfree(op);
}
EXPORT_SYMBOL_GPL(kofi_op_end);

void kofi_op_meet(struct kofi_op *send, struct kofi_op *recv)
{
	const struct fi_cq_tagged_entry *from = &send->done.entry;
	struct fi_cq_tagged_entry *to = &recv->done.entry;

	to->len = min(send->vec.len, recv->vec.len);
	to->flags |= from->flags & FI_REMOTE_CQ_DATA;
	to->data = from->data;
	to->tag = from->tag;
	recv->done.olen = send->vec.len - to->len;
	kofi_copy(&recv->vec, 0, &send->vec, 0, to->len);
}
EXPORT_SYMBOL_GPL(kofi_op_meet);

/* --- one-sided operations on regions of the core's table --- */

static int mr_rma(struct fid_domain *domain, const struct fi_msg_rma *msg, bool write)
{
	size_t i, done = 0;

	for (i = 0; i < msg->rma_iov_count; done += msg->rma_iov[i++].len) {
		const struct fi_rma_iov *at = &msg->rma_iov[i];
		struct kofi_mr *mr = kofi_mr_get(domain, at->key, at->addr, at->len,
						 write ? FI_REMOTE_WRITE : FI_REMOTE_READ);

		if (IS_ERR(mr))
			return PTR_ERR(mr);
		if (write)
			kofi_copy(&mr->vec, at->addr, &msg->msg.vec, done, at->len);
		else
			kofi_copy(&msg->msg.vec, done, &mr->vec, at->addr, at->len);
		kofi_mr_put(mr);
	}
	return 0;
}

static int mr_atomic(struct fid_domain *domain, const struct fi_msg_atomic *msg)
{
	size_t len = msg->msg.vec.len;
	struct kofi_mr *mr = kofi_mr_get(domain, msg->key, msg->addr, len,
					 (msg->op == FI_ATOMIC_READ ? 0 : FI_REMOTE_WRITE) |
					 (msg->result ? FI_REMOTE_READ : 0));
	int status;

	if (IS_ERR(mr))
		return PTR_ERR(mr);
	status = kofi_atomic(mr, msg->addr, msg->datatype, msg->op, msg->msg.vec.buf,
			     msg->compare, msg->result, len / fi_datatype_size(msg->datatype));
	kofi_mr_put(mr);
	return status;
}

/* Of a peer inside the machine: both sides' completions. */
static void finish_here(struct fid_ep *ep, struct fid_ep *to, const struct fi_msg *msg, u64 kind,
			bool write, int status, u64 flags)
{
	if (!status)
		kofi_complete_remote(to, kind, write, msg->vec.len, flags, msg->data);
	kofi_complete_rma(ep, kind, write, msg, status, flags);
}

ssize_t kofi_rma_here(struct fid_ep *ep, struct fid_ep *to, const struct fi_msg_rma *msg,
		      u64 flags, bool write, size_t inject_max)
{
	int status = kofi_check_rma(msg, flags, inject_max) ?: kofi_cq_reserve(ep->tx_cq);

	if (status)
		return status;
	status = mr_rma(container_of(to->fid.parent, struct fid_domain, fid), msg, write);
	finish_here(ep, to, &msg->msg, FI_RMA, write, status, flags);
	return 0;
}
EXPORT_SYMBOL_GPL(kofi_rma_here);

ssize_t kofi_atomic_here(struct fid_ep *ep, struct fid_ep *to, const struct fi_msg_atomic *msg,
			 u64 flags)
{
	int status = kofi_check_atomic(msg, flags) ?: kofi_cq_reserve(ep->tx_cq);

	if (status)
		return status;
	status = mr_atomic(container_of(to->fid.parent, struct fid_domain, fid), msg);
	finish_here(ep, to, &msg->msg, FI_ATOMIC, msg->op != FI_ATOMIC_READ, status, flags);
	return 0;
}
EXPORT_SYMBOL_GPL(kofi_atomic_here);

/* --- connection requests that wait for an answer --- */

static DEFINE_MUTEX(requests_lock);
static LIST_HEAD(requests);

int kofi_request_offer(struct kofi_request *request, struct fid_pep *pep, struct fi_info *info,
		       const void *data, size_t len)
{
	int status;

	if (!info)
		return -ENOMEM;
	request->pep = pep;
	request->fid.fclass = FI_CLASS_CONNREQ;
	info->handle = &request->fid;
	mutex_lock(&requests_lock);
	list_add_tail(&request->node, &requests);
	mutex_unlock(&requests_lock);
	status = kofi_eq_write_cm(pep->eq, FI_CONNREQ, &pep->fid, info, data, len);
	if (status) {
		kofi_request_take(&request->fid, &pep->fid);
		fi_freeinfo(info);
	}
	return status;
}
EXPORT_SYMBOL_GPL(kofi_request_offer);

/* An endpoint answers requests of its provider's passive endpoints: their types are its own. */
static bool answers(const struct fid *of, const struct kofi_request *request)
{
	const struct fid *pep = &request->pep->fid;

	return of->fclass == FI_CLASS_PEP ? of == pep : of->reg == pep->reg;
}

struct kofi_request *kofi_request_take(const struct fid *handle, const struct fid *of)
{
	struct kofi_request *request, *found = NULL;

	mutex_lock(&requests_lock);
	list_for_each_entry(request, &requests, node)
		if ((handle ? &request->fid == handle : of->fclass == FI_CLASS_PEP) &&
		    answers(of, request)) {
			found = request;
			list_del(&request->node);
			break;
		}
	mutex_unlock(&requests_lock);
	return found;
}
EXPORT_SYMBOL_GPL(kofi_request_take);

/* --- objects --- */

static void fabric_close(struct fid *fid)
{
	kfree(container_of(fid, struct fid_fabric, fid));
}

static void domain_close(struct fid *fid)
{
	kfree(container_of(fid, struct fid_domain, fid));
}

static const struct fi_ops fabric_fid = { .close = fabric_close };
static const struct fi_ops domain_fid = { .close = domain_close };

int kofi_fabric_new(const struct fi_ops_fabric *ops, struct fid_fabric **out)
{
	struct fid_fabric *fabric = kzalloc(sizeof(*fabric), GFP_KERNEL);

	if (!fabric)
		return -ENOMEM;
	fabric->fid.ops = &fabric_fid;
	fabric->ops = ops;
	*out = fabric;
	return 0;
}

int kofi_domain_new(const struct fi_ops_fabric *ops, struct fid_domain **out)
{
	struct fid_domain *domain = kzalloc(sizeof(*domain), GFP_KERNEL);

	if (!domain)
		return -ENOMEM;
	domain->fid.ops = &domain_fid;
	domain->ops = ops->domain_ops;
	domain->addrlen = ops->addrlen;
	*out = domain;
	return 0;
}

int kofi_give_name(const void *name, size_t name_len, void *addr, size_t *len)
{
	size_t room = *len;

	*len = name_len;
	memcpy(addr, name, min(room, name_len));
	return room < name_len ? -FI_ETOOSMALL : 0;
}
EXPORT_SYMBOL_GPL(kofi_give_name);

struct fi_info *kofi_offer_new(const struct kofi_offer *offer, enum fi_ep_type type,
			       const void *src, const void *dest)
{
	struct fi_info *info = kofi_info_new(NULL, src, offer->addrlen, dest, offer->addrlen);
	size_t iov_limit = offer->iov_limit ?: SIZE_MAX;

	if (!info)
		return NULL;
	info->caps = offer->caps;
	info->addr_format = offer->addr_format;
	*info->tx_attr = (struct fi_tx_attr){ .caps = offer->caps, .msg_order = offer->order,
		.inject_size = offer->inject_size, .size = offer->size, .iov_limit = iov_limit,
		.rma_iov_limit = offer->rma_iov_limit };
	*info->rx_attr = (struct fi_rx_attr){ .caps = offer->caps, .msg_order = offer->order,
		.size = offer->size, .iov_limit = iov_limit,
		.total_buffered_recv = offer->buffered };
	*info->ep_attr = (struct fi_ep_attr){ .type = type, .protocol = offer->protocol,
		.protocol_version = 1, .max_msg_size = offer->max_msg_size };
	*info->domain_attr = (struct fi_domain_attr){
		.threading = FI_THREAD_SAFE, .control_progress = FI_PROGRESS_AUTO,
		.data_progress = FI_PROGRESS_AUTO, .resource_mgmt = FI_RM_ENABLED,
		.mr_mode = offer->mr_mode, .av_type = FI_AV_TABLE, .mr_key_size = 8,
		.cq_data_size = offer->cq_data_size ?: 8 };
	strscpy(info->domain_attr->name, offer->name, FI_NAME_MAX);
	strscpy(info->fabric_attr->name, offer->fabric ?: offer->name, FI_NAME_MAX);
	return info;
}
EXPORT_SYMBOL_GPL(kofi_offer_new);
