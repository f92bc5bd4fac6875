// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Endpoints: what data calls post, the work item, the object. */
#include "tcp.h"

#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <net/tcp.h>

static unsigned int frame_timeout = KTCP_FRAME_S;
module_param(frame_timeout, uint, 0644);
MODULE_PARM_DESC(frame_timeout, "seconds without a byte in the middle of a frame (0: for ever)");

#define KTCP_ROUNDS 64	/* of one run of the work item */

/* --- posting --- */

/* @copy_len: bytes behind the operation for what an atomic sends. */
static struct ktcp_op *op_new(struct fid_ep *ep, enum ktcp_op_kind kind, const struct fi_msg *msg,
			      u64 tag, u64 what, u64 flags, u32 copy_len)
{
	int counter = kind == KTCP_SEND ? KOFI_CNTR_SEND : kind == KTCP_RECV ? KOFI_CNTR_RECV :
		      what & FI_READ ? KOFI_CNTR_READ : KOFI_CNTR_WRITE;
	size_t bytes = kind == KTCP_SEND || kind == KTCP_RECV ? offsetof(struct ktcp_op, access) :
								sizeof(struct ktcp_op);
	struct kofi_op *new;
	struct ktcp_op *op;

	if (!(flags & FI_FENCE) && msg->vec.len > KTCP_MESSAGE_MAX)
		return ERR_PTR(-EINVAL);
	new = kofi_op_new(ep, counter, bytes + copy_len, msg, tag, what, flags, KTCP_INJECT_MAX);
	if (IS_ERR(new))
		return ERR_CAST(new);
	op = container_of(new, struct ktcp_op, op);
	op->kind = kind;
	op->flags = flags;
	op->total = msg->vec.len;
	op->copy_len = copy_len;
	op->copy = (u8 *)op + bytes;
	return op;
}

/* A receive joins those that wait; while the work item looks at them, it sees it first. */
static int post_recv(struct ktcp_ep *ep, struct ktcp_op *op)
{
	int status = 0;
	bool wake;

	spin_lock_bh(&ep->lock);
	wake = ep->has_unexpected;
	if (READ_ONCE(ep->closed) && !wake)
		status = -ENOTCONN;
	else
		list_add_tail(&op->op.node, ep->rx_idle ? &ep->posted[op->tagged] : &ep->fresh);
	wake |= ep->awaited;
	spin_unlock_bh(&ep->lock);
	if (wake)
		queue_work(ktcp_wq, &ep->work);
	return status;
}

/* Writes it now, or hands it to the work item. */
static int post_send(struct ktcp_ep *ep, struct ktcp_op *op)
{
	int status = 0;
	bool wake = false;

	spin_lock_bh(&ep->tx_lock);
	if (ep->closed || !ep->connected) {
		status = -ENOTCONN;
	} else if (!ktcp_begin_now(ep, op)) {
		list_add_tail(&op->op.node, &ep->pending);
		ep->tx_idle = false;
		wake = true;
	}
	spin_unlock_bh(&ep->tx_lock);
	if (wake)
		queue_work(ktcp_wq, &ep->work);
	return status;
}

/* Once it is posted it may end at once, and is gone. */
static ssize_t op_post(struct ktcp_ep *ep, struct ktcp_op *op)
{
	int status = op->kind == KTCP_RECV ? post_recv(ep, op) : post_send(ep, op);

	if (status)
		kofi_op_refuse(&op->op);
	return status;
}

/* A short message is complete when the socket has copied it. False: it takes the long way. */
static bool send_now(struct ktcp_ep *ep, const struct fi_msg *msg, bool tagged, u64 tag, u64 flags)
{
	struct kofi_completion done = {
		.entry = { .op_context = msg->context, .len = msg->vec.len, .data = msg->data,
			   .tag = tag, .flags = FI_SEND | (tagged ? FI_TAGGED : FI_MSG) },
		.src = FI_ADDR_NOTAVAIL, .silent = !kofi_wants_entry(&ep->ep, true, flags) };

	if (!READ_ONCE(ep->tx_idle) || msg->vec.len > KT_EAGER_MAX ||
	    (flags & (FI_FENCE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)) ||
	    ((flags & FI_INJECT) && msg->vec.len > KTCP_INJECT_MAX) || !kofi_vec_valid(&msg->vec) ||
	    kofi_cq_reserve(ep->ep.tx_cq))
		return false;
	if (!ktcp_send_now(ep, msg, tagged, tag, flags)) {
		kofi_cq_unreserve(ep->ep.tx_cq);
		return false;
	}
	kofi_complete(&ep->ep, KOFI_CNTR_SEND, &done);
	return true;
}

static ssize_t post_message(struct fid_ep *fid_ep, const struct fi_msg *msg, bool tagged, u64 tag,
			    u64 ignore, u64 flags, bool send)
{
	struct ktcp_op *op;

	if (send && send_now(to_ktcp(fid_ep), msg, tagged, tag, flags))
		return 0;
	op = op_new(fid_ep, send ? KTCP_SEND : KTCP_RECV, msg, tag,
		    (send ? FI_SEND : FI_RECV) | (tagged ? FI_TAGGED : FI_MSG), flags, 0);
	if (IS_ERR(op))
		return PTR_ERR(op);
	op->tagged = tagged;
	op->ignore = ignore;
	return op_post(to_ktcp(fid_ep), op);
}

KOFI_MESSAGE_CALLS(ktcp, post_message);

static ssize_t post_rma(struct fid_ep *fid_ep, const struct fi_msg_rma *msg, u64 flags, bool write)
{
	struct ktcp_op *op;
	int status;

	if (!msg->rma_iov_count || msg->rma_iov_count > KT_TARGETS_MAX)
		return -EINVAL;
	status = kofi_check_rma(msg, flags, KTCP_INJECT_MAX);
	if (status)
		return status;
	op = op_new(fid_ep, write ? KTCP_WRITE : KTCP_READ, &msg->msg, 0,
		    FI_RMA | (write ? FI_WRITE : FI_READ), flags, 0);
	if (IS_ERR(op))
		return PTR_ERR(op);
	op->access.count = msg->rma_iov_count;
	memcpy(op->access.target, msg->rma_iov, msg->rma_iov_count * sizeof(*msg->rma_iov));
	return op_post(to_ktcp(fid_ep), op);
}

KOFI_RMA_CALLS(ktcp, post_rma);

static ssize_t ktcp_atomicmsg(struct fid_ep *fid_ep, const struct fi_msg_atomic *msg, u64 flags)
{
	size_t len = msg->msg.vec.len;
	bool reads_only = msg->op == FI_ATOMIC_READ;
	u32 operand = reads_only ? 0 : len, compare = msg->compare ? len : 0;
	struct fi_msg plain = msg->msg;
	struct ktcp_op *op;
	int status = kofi_check_atomic(msg, flags);

	if (status)
		return status;
	if (reads_only)
		plain.vec.buf = msg->result;
	op = op_new(fid_ep, KTCP_ATOMIC, &plain, 0, FI_ATOMIC | (reads_only ? FI_READ : FI_WRITE),
		    flags & ~FI_INJECT, operand + compare);
	if (IS_ERR(op))
		return PTR_ERR(op);
	memcpy(op->copy, msg->msg.vec.buf, operand);
	if (compare)
		memcpy(op->copy + operand, msg->compare, compare);
	op->atomic = *msg;
	return op_post(to_ktcp(fid_ep), op);
}

static const struct fi_ops_atomic atomic_ops = { .atomicmsg = ktcp_atomicmsg };

/* --- the work item --- */

static ssize_t ep_cancel(struct fid_ep *fid_ep, void *context)
{
	struct ktcp_ep *ep = to_ktcp(fid_ep);
	struct ktcp_op *op, *found = NULL;
	int i;

	mutex_lock(&ep->io);
	ktcp_take_over(ep);
	ktcp_match_fresh(ep);
	spin_lock_bh(&ep->lock);
	for (i = 0; i < 2 && !found; i++)
		list_for_each_entry(op, &ep->posted[i], op.node)
			if (op->op.done.entry.op_context == context) {
				found = op;
				list_del(&op->op.node);
				break;
			}
	spin_unlock_bh(&ep->lock);
	if (found)
		ktcp_op_end(ep, found, ECANCELED, KOFI_PE_LOCAL);
	mutex_unlock(&ep->io);
	queue_work(ktcp_wq, &ep->work);
	return 0;
}

/* The connection is over, but messages that came whole are still received. */
static void drain(struct ktcp_ep *ep)
{
	struct ktcp_op *op, *next;
	LIST_HEAD(gone);
	int i;

	ktcp_match_fresh(ep);
	spin_lock_bh(&ep->lock);
	for (i = 0; i < 2 && !ep->has_unexpected; i++)
		list_splice_tail_init(&ep->posted[i], &gone);
	if (!ep->has_unexpected)
		list_splice_tail_init(&ep->fresh, &gone);
	spin_unlock_bh(&ep->lock);
	list_for_each_entry_safe(op, next, &gone, op.node)
		ktcp_op_end(ep, op, ECANCELED, ep->reason);
}

/* A peer that has sent a part of a frame, and then nothing. */
static void watch_frame(struct ktcp_ep *ep, bool received)
{
	unsigned int limit = READ_ONCE(frame_timeout);

	if (!limit || ep->later || (!ep->rx_left && ep->stage_at == ep->stage_end)) {
		ep->owed = false;
		return;
	}
	if (!ep->owed || received) {
		ep->owed = true;
		ep->deadline = jiffies + limit * HZ;
	} else if (time_after_eq(jiffies, ep->deadline)) {
		ktcp_end(ep, EIO, KOFI_PE_TIMED_OUT);
		return;
	}
	queue_delayed_work(ktcp_wq, &ep->timer, ep->deadline - jiffies + 1);
}

static void ep_work(struct work_struct *work)
{
	struct ktcp_ep *ep = container_of(work, struct ktcp_ep, work);
	unsigned int noio = memalloc_noio_save();
	int rounds = KTCP_ROUNDS;
	bool moved = true, received = false, got;

	mutex_lock(&ep->io);
	ktcp_take_over(ep);
	if (ep->state == KTCP_CONNECTING || ep->state == KTCP_GREETING)
		ktcp_advance(ep);
	if (ep->owed_count && ktcp_pay_owed(ep))
		ep->error = -ENOMEM;
	while (ep->state == KTCP_OPEN && moved && rounds--) {
		ktcp_match_fresh(ep);
		moved = ktcp_transmit(ep);
		got = !ep->error && ktcp_receive(ep);
		moved |= got;
		received |= got;
		if (ep->error)
			ktcp_end(ep, EIO, ep->reason);
	}
	if (ep->state == KTCP_OPEN)
		watch_frame(ep, received);
	if (ep->state == KTCP_OVER)
		drain(ep);
	ktcp_update_idle(ep);
	mutex_unlock(&ep->io);
	if (rounds < 0)
		queue_work(ktcp_wq, &ep->work);
	memalloc_noio_restore(noio);
}

static void timer_work(struct work_struct *work)
{
	queue_work(ktcp_wq, &container_of(work, struct ktcp_ep, timer.work)->work);
}

/* --- the object --- */

static void ep_close(struct fid *fid)
{
	struct ktcp_ep *ep = container_of(fid, struct ktcp_ep, ep.fid);

	ep->ep.cm->shutdown(&ep->ep, 0);
	mutex_lock(&ep->io);
	ep->released = true;
	ktcp_end(ep, EIO, KOFI_PE_LOCAL);
	mutex_unlock(&ep->io);
	if (ep->handle)
		ktcp_request_drop(ep);
	ktcp_sock_close(ep->sock);
	cancel_delayed_work_sync(&ep->timer);
	cancel_work_sync(&ep->work);
	xa_destroy(&ep->ops);
	kfree(ep->stage);
	kfree(ep->rest);
	kfree(ep);
}

static const struct fi_ops ep_fid_ops = { .close = ep_close };
static const struct fi_ops_ep ep_ops = { .cancel = ep_cancel };

int ktcp_endpoint(struct fid_domain *domain, const struct fi_info *info, struct fid_ep **out)
{
	struct ktcp_ep *ep;
	int i;

	if (info->ep_attr->type != FI_EP_MSG)
		return -EINVAL;
	ep = kzalloc(sizeof(*ep), GFP_KERNEL);
	if (!ep)
		return -ENOMEM;
	ep->stage = kmalloc(KTCP_STAGE_BYTES, GFP_KERNEL);
	ep->rest = kmalloc(KTCP_REST_BYTES, GFP_KERNEL);
	if (!ep->stage || !ep->rest) {
		kfree(ep->stage);
		kfree(ep->rest);
		kfree(ep);
		return -ENOMEM;
	}
	ep->domain = domain;
	ep->handle = info->handle;
	if (info->src_addr && info->src_addrlen <= sizeof(ep->source))
		memcpy(&ep->source, info->src_addr, info->src_addrlen);
	ep->ahead = KTCP_READ_AHEAD;
	kofi_ep_sizes(&ep->ep, info, KTCP_SIZE, INT_MAX);
	mutex_init(&ep->io);
	spin_lock_init(&ep->tx_lock);
	spin_lock_init(&ep->lock);
	INIT_WORK(&ep->work, ep_work);
	INIT_DELAYED_WORK(&ep->timer, timer_work);
	INIT_LIST_HEAD(&ep->pending);
	INIT_LIST_HEAD(&ep->fresh);
	INIT_LIST_HEAD(&ep->frames);
	INIT_LIST_HEAD(&ep->control);
	for (i = 0; i < 2; i++) {
		INIT_LIST_HEAD(&ep->posted[i]);
		INIT_LIST_HEAD(&ep->unexpected[i]);
	}
	xa_init_flags(&ep->ops, XA_FLAGS_ALLOC1 | XA_FLAGS_LOCK_BH);
	ep->ep.fid.ops = &ep_fid_ops;
	ep->ep.ops = &ep_ops;
	ep->ep.cm = &ktcp_cm_ops;
	ep->ep.data = (struct kofi_ep_ops){ .msg = &ktcp_msg, .tagged = &ktcp_tagged,
					    .rma = &ktcp_rma, .atomic = &atomic_ops };
	*out = &ep->ep;
	return 0;
}
