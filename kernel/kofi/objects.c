// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Objects: opening, binding, enabling, closing, and who holds whom.
 *
 * fid.users counts children and bindings. fi_close() turns 0 into a negative
 * number, after which nobody gets a reference: opening a child and closing the
 * parent cannot both succeed.
 */
#include "internal.h"

#include <linux/slab.h>

#include "trace.h"

#define KOFI_CLOSING INT_MIN

static DEFINE_SPINLOCK(kofi_objects_lock);	/* the list, over calls of seq_printf */
static LIST_HEAD(kofi_objects);
static u32 kofi_object_ids;

static const char * const class_names[FI_CLASS_COUNT] = {
	[FI_CLASS_FABRIC] = "fabric", [FI_CLASS_DOMAIN] = "domain", [FI_CLASS_EP] = "ep",
	[FI_CLASS_PEP] = "pep", [FI_CLASS_AV] = "av", [FI_CLASS_MR] = "mr",
	[FI_CLASS_EQ] = "eq", [FI_CLASS_CQ] = "cq", [FI_CLASS_CNTR] = "cntr",
	[FI_CLASS_CONNREQ] = "connreq",
};

static bool hold(struct fid *fid)
{
	return atomic_inc_unless_negative(&fid->users);
}

static void release(struct fid *fid)
{
	if (fid)
		atomic_dec(&fid->users);
}

/* The object is there: from now on it is seen, and holds what it stands on. */
static void adopt(struct fid *fid, enum fi_class fclass, void *context, struct fid *parent,
		  struct kofi_registration *reg)
{
	fid->fclass = fclass;
	fid->context = context;
	fid->parent = parent;
	fid->reg = reg;
	atomic_set(&fid->users, 0);
	spin_lock(&kofi_objects_lock);
	fid->id = ++kofi_object_ids;
	list_add_tail(&fid->node, &kofi_objects);
	spin_unlock(&kofi_objects_lock);
	trace_kofi_open(fid);
}

/* References for a child of @parent that is about to be opened. */
static int begin_child(struct fid *parent, enum fi_class fclass)
{
	might_sleep();
	if (!parent || parent->fclass != fclass)
		return -EINVAL;
	if (!hold(parent))
		return -FI_EOPBADSTATE;
	kofi_registration_hold(parent->reg);
	return 0;
}

static int fail_child(struct fid *parent, int status)
{
	kofi_registration_put(parent->reg);
	release(parent);
	return status;
}

int fi_fabric(const struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
	struct kofi_registration *reg;
	struct fid_fabric *new;
	int status;

	might_sleep();
	reg = kofi_registration_find(attr->prov_name);
	if (!reg)
		return -ENODATA;
	status = reg->provider->fabric ? reg->provider->fabric(attr, &new) :
					 kofi_fabric_new(reg->provider->fabric_ops, &new);
	if (status) {
		kofi_registration_put(reg);
		return status;
	}
	adopt(&new->fid, FI_CLASS_FABRIC, context, NULL, reg);
	*fabric = new;
	return 0;
}
EXPORT_SYMBOL_GPL(fi_fabric);

int fi_domain(struct fid_fabric *fabric, const struct fi_info *info,
	      struct fid_domain **domain, void *context)
{
	struct kofi_mr_table *mrs;
	struct fid_domain *new;
	int status = begin_child(&fabric->fid, FI_CLASS_FABRIC);

	if (status)
		return status;
	status = kofi_mr_table_new(&mrs);
	if (status)
		return fail_child(&fabric->fid, status);
	status = fabric->ops->domain ? fabric->ops->domain(fabric, info, &new) :
				       kofi_domain_new(fabric->ops, &new);
	if (status) {
		kfree(mrs);
		return fail_child(&fabric->fid, status);
	}
	new->mrs = mrs;
	adopt(&new->fid, FI_CLASS_DOMAIN, context, &fabric->fid, fabric->fid.reg);
	*domain = new;
	return 0;
}
EXPORT_SYMBOL_GPL(fi_domain);

int fi_passive_ep(struct fid_fabric *fabric, const struct fi_info *info,
		  struct fid_pep **pep, void *context)
{
	struct fi_info *copy;
	struct fid_pep *new;
	int status = begin_child(&fabric->fid, FI_CLASS_FABRIC);

	if (status)
		return status;
	copy = fi_dupinfo(info);
	status = !fabric->ops->passive_ep ? -ENOSYS : !copy ? -ENOMEM :
		 fabric->ops->passive_ep(fabric, info, &new);
	if (status) {
		fi_freeinfo(copy);
		return fail_child(&fabric->fid, status);
	}
	new->eq = NULL;
	new->info = copy;
	new->listening = false;
	adopt(&new->fid, FI_CLASS_PEP, context, &fabric->fid, fabric->fid.reg);
	*pep = new;
	return 0;
}
EXPORT_SYMBOL_GPL(fi_passive_ep);

int fi_eq_open(struct fid_fabric *fabric, const struct fi_eq_attr *attr,
	       struct fid_eq **eq, void *context)
{
	int status = begin_child(&fabric->fid, FI_CLASS_FABRIC);

	if (status)
		return status;
	status = kofi_eq_new(attr, eq);
	if (status)
		return fail_child(&fabric->fid, status);
	init_waitqueue_head(&(*eq)->wait);
	adopt(&(*eq)->fid, FI_CLASS_EQ, context, &fabric->fid, fabric->fid.reg);
	return 0;
}
EXPORT_SYMBOL_GPL(fi_eq_open);

/* --- data operations of endpoints that are not enabled, or lack a capability --- */

static ssize_t msg_closed(struct fid_ep *ep, const struct fi_msg *msg, u64 flags)
{
	return -FI_EOPBADSTATE;
}

static ssize_t tagged_closed(struct fid_ep *ep, const struct fi_msg_tagged *msg, u64 flags)
{
	return -FI_EOPBADSTATE;
}

static ssize_t rma_closed(struct fid_ep *ep, const struct fi_msg_rma *msg, u64 flags)
{
	return -FI_EOPBADSTATE;
}

static ssize_t atomic_closed(struct fid_ep *ep, const struct fi_msg_atomic *msg, u64 flags)
{
	return -FI_EOPBADSTATE;
}

static ssize_t msg_missing(struct fid_ep *ep, const struct fi_msg *msg, u64 flags)
{
	return -ENOSYS;
}

static ssize_t tagged_missing(struct fid_ep *ep, const struct fi_msg_tagged *msg, u64 flags)
{
	return -ENOSYS;
}

static ssize_t rma_missing(struct fid_ep *ep, const struct fi_msg_rma *msg, u64 flags)
{
	return -ENOSYS;
}

static ssize_t atomic_missing(struct fid_ep *ep, const struct fi_msg_atomic *msg, u64 flags)
{
	return -ENOSYS;
}

static const struct fi_ops_msg msg_ops_closed = { msg_closed, msg_closed };
static const struct fi_ops_tagged tagged_ops_closed = { tagged_closed, tagged_closed };
static const struct fi_ops_rma rma_ops_closed = { rma_closed, rma_closed };
static const struct fi_ops_atomic atomic_ops_closed = { atomic_closed };
static const struct fi_ops_msg msg_ops_missing = { msg_missing, msg_missing };
static const struct fi_ops_tagged tagged_ops_missing = { tagged_missing, tagged_missing };
static const struct fi_ops_rma rma_ops_missing = { rma_missing, rma_missing };
static const struct fi_ops_atomic atomic_ops_missing = { atomic_missing };

static const struct kofi_ep_ops ep_ops_closed = {
	.msg = &msg_ops_closed, .tagged = &tagged_ops_closed,
	.rma = &rma_ops_closed, .atomic = &atomic_ops_closed,
};

static void fill_missing(struct kofi_ep_ops *ops, u64 caps)
{
	if (!ops->msg || !(caps & FI_MSG))
		ops->msg = &msg_ops_missing;
	if (!ops->tagged || !(caps & FI_TAGGED))
		ops->tagged = &tagged_ops_missing;
	if (!ops->rma || !(caps & FI_RMA))
		ops->rma = &rma_ops_missing;
	if (!ops->atomic || !(caps & FI_ATOMIC))
		ops->atomic = &atomic_ops_missing;
}

int fi_endpoint(struct fid_domain *domain, const struct fi_info *info,
		struct fid_ep **out, void *context)
{
	struct fid_ep *ep;
	int status = begin_child(&domain->fid, FI_CLASS_DOMAIN);

	if (status)
		return status;
	status = domain->ops->endpoint(domain, info, &ep);
	if (status)
		return fail_child(&domain->fid, status);
	ep->provided = ep->data;
	fill_missing(&ep->provided, info->caps);
	ep->data = ep_ops_closed;
	if (!ep->posted_max[false])
		ep->posted_max[false] = min_t(size_t, info->rx_attr->size ?: INT_MAX, INT_MAX);
	if (!ep->posted_max[true])
		ep->posted_max[true] = min_t(size_t, info->tx_attr->size ?: INT_MAX, INT_MAX);
	ep->tx_flags = info->tx_attr->op_flags;
	ep->rx_flags = info->rx_attr->op_flags;
	ep->type = info->ep_attr->type;
	adopt(&ep->fid, FI_CLASS_EP, context, &domain->fid, domain->fid.reg);
	*out = ep;
	return 0;
}
EXPORT_SYMBOL_GPL(fi_endpoint);

int fi_cq_open(struct fid_domain *domain, const struct fi_cq_attr *attr,
	       struct fid_cq **cq, void *context)
{
	int status = begin_child(&domain->fid, FI_CLASS_DOMAIN);

	if (status)
		return status;
	status = domain->ops->cq_open ? domain->ops->cq_open(domain, attr, cq) :
					kofi_cq_new(attr, cq);
	if (status)
		return fail_child(&domain->fid, status);
	init_waitqueue_head(&(*cq)->wait);
	atomic_set(&(*cq)->signalled, 0);
	adopt(&(*cq)->fid, FI_CLASS_CQ, context, &domain->fid, domain->fid.reg);
	return 0;
}
EXPORT_SYMBOL_GPL(fi_cq_open);

int fi_cntr_open(struct fid_domain *domain, const struct fi_cntr_attr *attr,
		 struct fid_cntr **cntr, void *context)
{
	int status = begin_child(&domain->fid, FI_CLASS_DOMAIN);

	if (status)
		return status;
	status = kofi_cntr_new(attr, cntr);
	if (status)
		return fail_child(&domain->fid, status);
	init_waitqueue_head(&(*cntr)->wait);
	adopt(&(*cntr)->fid, FI_CLASS_CNTR, context, &domain->fid, domain->fid.reg);
	return 0;
}
EXPORT_SYMBOL_GPL(fi_cntr_open);

int fi_av_open(struct fid_domain *domain, const struct fi_av_attr *attr,
	       struct fid_av **av, void *context)
{
	int status = begin_child(&domain->fid, FI_CLASS_DOMAIN);

	if (status)
		return status;
	status = kofi_av_new(domain, attr, av);
	if (status)
		return fail_child(&domain->fid, status);
	adopt(&(*av)->fid, FI_CLASS_AV, context, &domain->fid, domain->fid.reg);
	return 0;
}
EXPORT_SYMBOL_GPL(fi_av_open);

#define FI_MR_ACCESS (FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)

int fi_mr_regattr(struct fid_domain *domain, const struct fi_mr_attr *attr, u64 flags,
		  struct fid_mr **mr)
{
	int status = begin_child(&domain->fid, FI_CLASS_DOMAIN);

	if (status)
		return status;
	if (flags)
		return fail_child(&domain->fid, -FI_EBADFLAGS);
	if (attr->access & ~FI_MR_ACCESS)
		return fail_child(&domain->fid, -EINVAL);
	status = domain->ops->mr_regattr ? domain->ops->mr_regattr(domain, attr, flags, mr) :
					   kofi_mr_new(domain, attr, mr);
	if (status)
		return fail_child(&domain->fid, status);
	adopt(&(*mr)->fid, FI_CLASS_MR, attr->context, &domain->fid, domain->fid.reg);
	return 0;
}
EXPORT_SYMBOL_GPL(fi_mr_regattr);

int fi_mr_reg(struct fid_domain *domain, const void *buf, size_t len, u64 access, u64 offset,
	      u64 requested_key, u64 flags, struct fid_mr **mr, void *context)
{
	struct fi_mr_attr attr = { .vec = kofi_vec_buf(buf, len), .access = access,
				   .requested_key = requested_key, .context = context };

	return offset ? -EINVAL : fi_mr_regattr(domain, &attr, flags, mr);
}
EXPORT_SYMBOL_GPL(fi_mr_reg);

/* --- binding --- */

#define FI_CNTR_FLAGS (FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)

static int bind_cq(struct fid_ep *ep, struct fid_cq *cq, u64 flags)
{
	bool tx = flags & FI_TRANSMIT, rx = flags & FI_RECV;

	if (flags & ~(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION))
		return -FI_EBADFLAGS;
	if (!tx && !rx)
		return -EINVAL;
	if ((tx && ep->tx_cq) || (rx && ep->rx_cq))
		return -EINVAL;
	if (tx) {
		hold(&cq->fid);
		ep->tx_cq = cq;
		ep->tx_selective = flags & FI_SELECTIVE_COMPLETION;
	}
	if (rx) {
		hold(&cq->fid);
		ep->rx_cq = cq;
		ep->rx_selective = flags & FI_SELECTIVE_COMPLETION;
	}
	return 0;
}

static int bind_cntr(struct fid_ep *ep, struct fid_cntr *cntr, u64 flags)
{
	static const u64 which[KOFI_CNTR_COUNT] = {
		[KOFI_CNTR_SEND] = FI_SEND, [KOFI_CNTR_RECV] = FI_RECV,
		[KOFI_CNTR_READ] = FI_READ, [KOFI_CNTR_WRITE] = FI_WRITE,
		[KOFI_CNTR_REMOTE_READ] = FI_REMOTE_READ,
		[KOFI_CNTR_REMOTE_WRITE] = FI_REMOTE_WRITE,
	};
	int i;

	if (!flags || (flags & ~FI_CNTR_FLAGS))
		return -FI_EBADFLAGS;
	for (i = 0; i < KOFI_CNTR_COUNT; i++)
		if ((flags & which[i]) && ep->cntr[i])
			return -EINVAL;
	for (i = 0; i < KOFI_CNTR_COUNT; i++)
		if (flags & which[i]) {
			hold(&cntr->fid);
			ep->cntr[i] = cntr;
		}
	return 0;
}

int fi_ep_bind(struct fid_ep *ep, struct fid *fid, u64 flags)
{
	struct fid *domain = ep->fid.parent;
	int status = -EINVAL;

	might_sleep();
	if (ep->enabled)
		return -FI_EOPBADSTATE;
	if (fid->parent != (fid->fclass == FI_CLASS_EQ ? domain->parent : domain))
		return -FI_EDOMAIN;
	if (!hold(fid))
		return -FI_EOPBADSTATE;
	switch (fid->fclass) {
	case FI_CLASS_CQ:
		status = bind_cq(ep, container_of(fid, struct fid_cq, fid), flags);
		break;
	case FI_CLASS_CNTR:
		status = bind_cntr(ep, container_of(fid, struct fid_cntr, fid), flags);
		break;
	case FI_CLASS_EQ:
		if (flags)
			status = -FI_EBADFLAGS;
		else if (!ep->eq && hold(fid)) {
			ep->eq = container_of(fid, struct fid_eq, fid);
			status = 0;
		}
		break;
	case FI_CLASS_AV:
		if (flags)
			status = -FI_EBADFLAGS;
		else if (!ep->av && ep->type != FI_EP_MSG && hold(fid)) {
			ep->av = container_of(fid, struct fid_av, fid);
			status = 0;
		}
		break;
	default:
		break;
	}
	release(fid);
	return status;
}
EXPORT_SYMBOL_GPL(fi_ep_bind);

int fi_pep_bind(struct fid_pep *pep, struct fid *fid, u64 flags)
{
	might_sleep();
	if (fid->fclass != FI_CLASS_EQ || fid->parent != pep->fid.parent || pep->eq)
		return -EINVAL;
	if (flags)
		return -FI_EBADFLAGS;
	if (!hold(fid))
		return -FI_EOPBADSTATE;
	pep->eq = container_of(fid, struct fid_eq, fid);
	return 0;
}
EXPORT_SYMBOL_GPL(fi_pep_bind);

int fi_enable(struct fid_ep *ep)
{
	int status;

	might_sleep();
	if (ep->enabled)
		return -FI_EOPBADSTATE;
	if (ep->type == FI_EP_MSG && !ep->eq)
		return -FI_ENOEQ;
	if (ep->type != FI_EP_MSG && !ep->av)
		return -FI_ENOAV;
	if (!ep->tx_cq && !ep->rx_cq && !ep->cntr[KOFI_CNTR_SEND] && !ep->cntr[KOFI_CNTR_RECV])
		return -FI_ENOCQ;
	status = ep->ops && ep->ops->enable ? ep->ops->enable(ep) : 0;
	if (status)
		return status;
	ep->enabled = true;
	ep->data = ep->provided;
	return 0;
}
EXPORT_SYMBOL_GPL(fi_enable);

ssize_t fi_cancel(struct fid_ep *ep, void *context)
{
	might_sleep();
	return ep->ops && ep->ops->cancel ? ep->ops->cancel(ep, context) : -ENOSYS;
}
EXPORT_SYMBOL_GPL(fi_cancel);

/* --- connections --- */

static bool connects(const struct fid_ep *ep)
{
	return ep->cm && ep->type == FI_EP_MSG;
}

/* What the peer is to hear: no more than there is room for. */
static bool too_long(size_t len, size_t max)
{
	return max && len > max;
}

int fi_listen(struct fid_pep *pep)
{
	int status;

	might_sleep();
	if (!pep->eq || pep->listening)
		return pep->eq ? -FI_EOPBADSTATE : -FI_ENOEQ;
	status = pep->ops->listen ? pep->ops->listen(pep) : 0;
	pep->listening = !status;
	return status;
}
EXPORT_SYMBOL_GPL(fi_listen);

int fi_connect(struct fid_ep *ep, const void *addr, const void *param, size_t paramlen)
{
	int status = ep->enabled ? 0 : fi_enable(ep);

	if (status)
		return status;
	if (connects(ep) && too_long(paramlen, ep->cm->param_max))
		return -EINVAL;
	return connects(ep) && ep->cm->connect ? ep->cm->connect(ep, addr, param, paramlen) :
						 -ENOSYS;
}
EXPORT_SYMBOL_GPL(fi_connect);

int fi_accept(struct fid_ep *ep, const void *param, size_t paramlen)
{
	int status = ep->enabled ? 0 : fi_enable(ep);

	if (status)
		return status;
	if (connects(ep) && too_long(paramlen, ep->cm->param_max))
		return -EINVAL;
	return connects(ep) && ep->cm->accept ? ep->cm->accept(ep, param, paramlen) : -ENOSYS;
}
EXPORT_SYMBOL_GPL(fi_accept);

int fi_reject(struct fid_pep *pep, struct fid *handle, const void *param, size_t paramlen)
{
	might_sleep();
	if (!handle || too_long(paramlen, pep->ops->param_max))
		return -EINVAL;
	return pep->ops->reject(pep, handle, param, paramlen);
}
EXPORT_SYMBOL_GPL(fi_reject);

int fi_shutdown(struct fid_ep *ep, u64 flags)
{
	might_sleep();
	return connects(ep) && ep->cm->shutdown ? ep->cm->shutdown(ep, flags) : -ENOSYS;
}
EXPORT_SYMBOL_GPL(fi_shutdown);

int fi_getname(struct fid *fid, void *addr, size_t *addrlen)
{
	might_sleep();
	if (fid->fclass == FI_CLASS_PEP)
		return container_of(fid, struct fid_pep, fid)->ops->getname(fid, addr, addrlen);
	if (fid->fclass == FI_CLASS_EP) {
		const struct fi_ops_cm *cm = container_of(fid, struct fid_ep, fid)->cm;

		return cm && cm->getname ? cm->getname(fid, addr, addrlen) : -ENOSYS;
	}
	return -EINVAL;
}
EXPORT_SYMBOL_GPL(fi_getname);

int fi_getpeer(struct fid_ep *ep, void *addr, size_t *addrlen)
{
	might_sleep();
	return connects(ep) && ep->cm->getpeer ? ep->cm->getpeer(ep, addr, addrlen) : -ENOSYS;
}
EXPORT_SYMBOL_GPL(fi_getpeer);

/* --- the end --- */

static void close_ep(struct fid *fid)
{
	struct fid_ep *ep = container_of(fid, struct fid_ep, fid);
	struct fid *bound[4 + KOFI_CNTR_COUNT] = {
		ep->tx_cq ? &ep->tx_cq->fid : NULL, ep->rx_cq ? &ep->rx_cq->fid : NULL,
		ep->eq ? &ep->eq->fid : NULL, ep->av ? &ep->av->fid : NULL };
	struct fid_eq *eq = ep->eq;
	int i;

	for (i = 0; i < KOFI_CNTR_COUNT; i++)
		bound[4 + i] = ep->cntr[i] ? &ep->cntr[i]->fid : NULL;
	fid->ops->close(fid);
	if (eq)
		kofi_eq_forget(eq, fid);
	for (i = 0; i < ARRAY_SIZE(bound); i++)
		release(bound[i]);
}

static void close_pep(struct fid *fid)
{
	struct fid_eq *eq = container_of(fid, struct fid_pep, fid)->eq;
	struct fi_info *info = container_of(fid, struct fid_pep, fid)->info;

	fid->ops->close(fid);
	fi_freeinfo(info);
	if (!eq)
		return;
	kofi_eq_forget(eq, fid);
	release(&eq->fid);
}

static void close_domain(struct fid *fid)
{
	struct kofi_mr_table *mrs = container_of(fid, struct fid_domain, fid)->mrs;

	fid->ops->close(fid);
	xa_destroy(&mrs->regions);
	kfree(mrs);
}

int fi_close(struct fid *fid)
{
	struct kofi_registration *reg = fid->reg;
	struct fid *parent = fid->parent;

	might_sleep();
	if (atomic_cmpxchg(&fid->users, 0, KOFI_CLOSING))
		return -EBUSY;
	trace_kofi_close(fid);
	spin_lock(&kofi_objects_lock);
	list_del(&fid->node);
	spin_unlock(&kofi_objects_lock);
	switch (fid->fclass) {
	case FI_CLASS_EP:
		close_ep(fid);
		break;
	case FI_CLASS_PEP:
		close_pep(fid);
		break;
	case FI_CLASS_DOMAIN:
		close_domain(fid);
		break;
	default:
		fid->ops->close(fid);
	}
	release(parent);
	kofi_registration_put(reg);
	return 0;
}
EXPORT_SYMBOL_GPL(fi_close);

/* --- words --- */

const char *fi_cq_strerror(struct fid_cq *cq, int prov_errno, const void *err_data,
			   char *buf, size_t len)
{
	static const char * const texts[KOFI_PE_COUNT] = {
		[KOFI_PE_NONE] = "no further reason",
		[KOFI_PE_CLOSED] = "the peer closed its endpoint",
		[KOFI_PE_DIED] = "the connection broke",
		[KOFI_PE_MISBEHAVED] = "the peer breaks the protocol",
		[KOFI_PE_REFUSED] = "nobody listens there",
		[KOFI_PE_REJECTED] = "the peer rejected the connection",
		[KOFI_PE_FOREIGN] = "another protocol or version is there",
		[KOFI_PE_TIMED_OUT] = "no answer in time",
		[KOFI_PE_UNREACHABLE] = "the peer cannot be reached",
		[KOFI_PE_LOCAL] = "this endpoint was shut down",
		[KOFI_PE_REMOTE_KEY] = "the peer has no region with this key",
		[KOFI_PE_REMOTE_ACCESS] = "the peer's region does not grant this access",
	};
	const char *text = (unsigned int)prov_errno < KOFI_PE_COUNT ? texts[prov_errno] :
								      "unknown reason";

	if (buf && len)
		strscpy(buf, text, len);
	return text;
}
EXPORT_SYMBOL_GPL(fi_cq_strerror);

const char *fi_strerror(int errnum)
{
	switch (errnum < 0 ? -errnum : errnum) {
	case 0: return "success";
	case FI_EOTHER: return "unspecified error";
	case FI_ETOOSMALL: return "the buffer is too small";
	case FI_EOPBADSTATE: return "not permitted in this state";
	case FI_EAVAIL: return "an error is available";
	case FI_EBADFLAGS: return "flags not supported";
	case FI_ENOEQ: return "no event queue";
	case FI_EDOMAIN: return "an object of another domain";
	case FI_ENOCQ: return "no completion queue";
	case FI_ETRUNC: return "truncated";
	case FI_ENOKEY: return "the key is not available";
	case FI_ENOAV: return "no address vector";
	case FI_EOVERRUN: return "the queue has overrun";
	default: return "an errno";
	}
}
EXPORT_SYMBOL_GPL(fi_strerror);

static int atomicvalid(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op,
		       size_t *count, bool fetch, bool compare)
{
	if (ep->provided.atomic == &atomic_ops_missing ||
	    !kofi_atomic_valid(datatype, op, fetch, compare))
		return -EOPNOTSUPP;
	*count = ep->provided.atomic->valid ?
		 ep->provided.atomic->valid(datatype, op, fetch, compare) :
		 KOFI_ATOMIC_BYTES_MAX / fi_datatype_size(datatype);
	return *count ? 0 : -EOPNOTSUPP;
}

int fi_atomicvalid(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op, size_t *count)
{
	return atomicvalid(ep, datatype, op, count, false, false);
}
EXPORT_SYMBOL_GPL(fi_atomicvalid);

int fi_fetch_atomicvalid(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op,
			 size_t *count)
{
	return atomicvalid(ep, datatype, op, count, true, false);
}
EXPORT_SYMBOL_GPL(fi_fetch_atomicvalid);

int fi_compare_atomicvalid(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op,
			   size_t *count)
{
	return atomicvalid(ep, datatype, op, count, true, true);
}
EXPORT_SYMBOL_GPL(fi_compare_atomicvalid);

/* --- debugfs --- */

void kofi_objects_show(struct seq_file *seq, bool counters)
{
	struct fid *fid;

	spin_lock(&kofi_objects_lock);
	list_for_each_entry(fid, &kofi_objects, node) {
		seq_printf(seq, "%u %s", fid->id, class_names[fid->fclass]);
		if (!counters) {
			seq_printf(seq, " parent %u provider %s users %d\n",
				   fid->parent ? fid->parent->id : 0, fid->reg->provider->name,
				   atomic_read(&fid->users));
			continue;
		}
		if (fid->fclass == FI_CLASS_EP) {
			struct fid_ep *ep = container_of(fid, struct fid_ep, fid);

			seq_printf(seq, " tx %lld bytes %lld rx %lld bytes %lld errors %lld",
				   atomic64_read(&ep->tx_count), atomic64_read(&ep->tx_bytes),
				   atomic64_read(&ep->rx_count), atomic64_read(&ep->rx_bytes),
				   atomic64_read(&ep->errors));
		} else if (fid->fclass == FI_CLASS_CQ) {
			kofi_cq_show(seq, container_of(fid, struct fid_cq, fid));
		} else if (fid->fclass == FI_CLASS_CNTR) {
			kofi_cntr_show(seq, container_of(fid, struct fid_cntr, fid));
		}
		seq_putc(seq, '\n');
	}
	spin_unlock(&kofi_objects_lock);
}
