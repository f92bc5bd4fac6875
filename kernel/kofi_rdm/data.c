// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Data calls, and how operations go down to the provider below.
 *
 * Short messages travel with their head, copied. Long ones are registered and
 * announced; their receiver reads them and says so. RMA and atomics are those
 * of the provider below.
 */
#include "rdm.h"

#include <linux/mm.h>
#include <linux/random.h>
#include <linux/slab.h>

/* Flags that mean something below. */
#define RDM_FLAGS_BELOW (FI_REMOTE_CQ_DATA | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | \
			 FI_DELIVERY_COMPLETE)
#define RDM_RETRY (HZ / 50 + 1)

/* @extra: bytes of frame[]. A short message is copied there, whatever its flags say. */
static struct rdm_op *op_new(struct fid_ep *ep, enum rdm_op_kind kind, const struct fi_msg *msg,
			     u64 tag, u64 what, u64 flags, size_t extra)
{
	size_t inject_max = min_t(size_t, to_rdm(ep)->domain->info->tx_attr->inject_size,
				  RDM_EAGER_MAX);
	bool recv = kind == RDM_OP_RECV, eager = kind == RDM_OP_EAGER;
	int counter = recv ? KOFI_CNTR_RECV : what & FI_SEND ? KOFI_CNTR_SEND :
		      what & FI_READ ? KOFI_CNTR_READ : KOFI_CNTR_WRITE;
	int status = eager ? kofi_check_msg(msg, flags, inject_max) : 0;
	struct kofi_op *new;
	struct rdm_op *op;

	if (status)
		return ERR_PTR(status);
	new = kofi_op_new(ep, counter, struct_size(op, frame, extra), msg, tag, what,
			  eager ? flags & ~FI_INJECT : flags, inject_max);
	if (IS_ERR(new))
		return ERR_CAST(new);
	op = container_of(new, struct rdm_op, op);
	op->io.type = RDM_IO_OP;
	op->kind = kind;
	op->flags = flags;
	op->frame_len = extra;
	return op;
}

void rdm_op_end(struct rdm_op *op, int err, int reason)
{
	if (op->kind == RDM_OP_FRAME) {
		kfree(op);
		return;
	}
	if (op->mr)
		WARN_ON(fi_close(&op->mr->fid));
	kvfree(op->bounce);
	kofi_op_end(&op->op, err, reason);
}

/* --- frames --- */

static void put_head(struct rdm_op *op, u8 kind, const struct rdm_op *of, u64 id, u64 key, int err)
{
	struct rdm_head head = { .kind = kind, .id = cpu_to_le64(id), .key = cpu_to_le64(key),
				 .status = cpu_to_le32(err) };

	if (of) {
		head.flags = (of->op.done.entry.flags & FI_TAGGED ? RDM_TAGGED : 0) |
			     (of->flags & FI_REMOTE_CQ_DATA ? RDM_DATA : 0);
		head.tag = cpu_to_le64(of->op.done.entry.tag);
		head.data = cpu_to_le64(of->op.done.entry.data);
		head.len = cpu_to_le64(of->op.vec.len);
	}
	memcpy(op->frame, &head, sizeof(head));
}

static struct rdm_op *frame_new(struct rdm_ep *ep)
{
	struct rdm_op *op = kzalloc(struct_size(op, frame, sizeof(struct rdm_head)), GFP_ATOMIC);

	if (!op)
		return NULL;
	op->io.type = RDM_IO_OP;
	op->kind = RDM_OP_FRAME;
	op->op.ep = &ep->ep;
	op->frame_len = sizeof(struct rdm_head);
	return op;
}

void rdm_finish(struct rdm_conn *conn, u64 id, int err)
{
	struct rdm_op *frame;

	if (!rdm_enter(conn))
		return;
	frame = conn->answers < RDM_ANSWERS_MAX ? frame_new(conn->ep) : NULL;
	if (frame) {
		spin_lock_bh(&conn->ep->lock);
		conn->answers++;
		spin_unlock_bh(&conn->ep->lock);
		put_head(frame, RDM_FIN, NULL, id, 0, err);
		rdm_give(conn, frame);
	} else {
		rdm_over(conn, ENOMEM, KOFI_PE_DIED);
	}
	rdm_idle(conn);
}

/* --- down --- */

static ssize_t send_frame(struct rdm_conn *conn, struct rdm_op *op)
{
	struct fi_msg msg = { .vec = kofi_vec_buf(op->frame, op->frame_len), .context = &op->io };

	return fi_sendmsg(conn->lower, &msg, 0);
}

/* Registers a copy, where the provider below has no regions of such pieces. */
static int register_copy(struct rdm_conn *conn, struct rdm_op *op, struct fi_mr_attr *attr)
{
	struct kofi_vec copy;

	op->bounce = kvmalloc(op->op.vec.len, GFP_NOIO);
	if (!op->bounce)
		return -ENOMEM;
	copy = kofi_vec_buf(op->bounce, op->op.vec.len);
	kofi_copy(&copy, 0, &op->op.vec, 0, op->op.vec.len);
	attr->vec = copy;
	return fi_mr_regattr(conn->ep->domain->lower, attr, 0, &op->mr);
}

/* Process. On success the operation is the peer's to end: it is not touched any more. */
static ssize_t announce(struct rdm_conn *conn, struct rdm_op *op)
{
	struct fi_mr_attr attr = { .vec = op->op.vec, .access = FI_REMOTE_READ,
				   .requested_key = get_random_u64() | RDM_KEY_OWN };
	struct rdm_op *frame = frame_new(conn->ep);
	int status;

	if (!frame)
		return -EAGAIN;
	status = fi_mr_regattr(conn->ep->domain->lower, &attr, 0, &op->mr);
	if (status == -EINVAL)
		status = register_copy(conn, op, &attr);
	if (!status)
		status = xa_alloc_cyclic(&conn->announced, &op->id, op, XA_LIMIT(1, U32_MAX),
					 &conn->next_id, GFP_NOIO);
	if (status < 0) {
		if (op->mr)
			fi_close(&op->mr->fid);
		op->mr = NULL;
		kfree(frame);
		return status;
	}
	frame->id = op->id;
	put_head(frame, RDM_RTS, op, op->id, op->mr->key, 0);
	rdm_give(conn, frame);
	return 0;
}

static ssize_t access_down(struct rdm_conn *conn, struct rdm_op *op)
{
	struct fi_msg_rma rma = { .msg = { .vec = op->op.vec, .context = &op->io,
					   .data = op->op.done.entry.data },
				  .rma_iov = op->target, .rma_iov_count = op->target_count };
	u64 flags = op->flags & RDM_FLAGS_BELOW;

	return op->kind == RDM_OP_WRITE ? fi_writemsg(conn->lower, &rma, flags) :
					  fi_readmsg(conn->lower, &rma, flags);
}

static ssize_t give_down(struct rdm_conn *conn, struct rdm_op *op)
{
	switch (op->kind) {
	case RDM_OP_EAGER:
	case RDM_OP_FRAME:
		return send_frame(conn, op);
	case RDM_OP_ANNOUNCE:
		return announce(conn, op);
	case RDM_OP_ATOMIC:
		op->atomic.msg.context = &op->io;
		return fi_atomicmsg(conn->lower, &op->atomic, op->flags & RDM_FLAGS_BELOW);
	default:
		return access_down(conn, op);
	}
}

/* What waits for room below, or for the end of its connection, which ends it. */
static bool waits(ssize_t status)
{
	return status == -EAGAIN || status == -ENOTCONN;
}

void rdm_give(struct rdm_conn *conn, struct rdm_op *op)
{
	ssize_t status = give_down(conn, op);

	if (waits(status)) {
		spin_lock_bh(&conn->ep->lock);
		list_add_tail(&op->op.node, &conn->pending);
		if (status == -EAGAIN && list_empty(&conn->todo)) {
			list_add_tail(&conn->todo, &conn->ep->todo);
			queue_delayed_work(rdm_wq, &conn->ep->work, RDM_RETRY);
		}
		spin_unlock_bh(&conn->ep->lock);
	} else if (status) {
		rdm_op_end(op, -status, 0);
	}
}

/* The next operation that waits; it is given down until drain_end(). */
static struct rdm_op *drain_next(struct rdm_conn *conn)
{
	struct rdm_op *op = NULL;

	spin_lock_bh(&conn->ep->lock);
	if (conn->state == RDM_OPEN)
		op = list_first_entry_or_null(&conn->pending, struct rdm_op, op.node);
	if (op) {
		list_del(&op->op.node);
		conn->busy++;
	}
	conn->draining = op;
	spin_unlock_bh(&conn->ep->lock);
	return op;
}

void rdm_drain(struct rdm_conn *conn)
{
	struct rdm_op *op;
	ssize_t status = 0;

	while (!waits(status) && (op = drain_next(conn))) {
		status = give_down(conn, op);
		if (waits(status)) {
			spin_lock_bh(&conn->ep->lock);
			list_add(&op->op.node, &conn->pending);
			conn->draining = false;
			if (status == -EAGAIN && list_empty(&conn->todo)) {
				list_add_tail(&conn->todo, &conn->ep->todo);
				queue_delayed_work(rdm_wq, &conn->ep->work, RDM_RETRY);
			}
			spin_unlock_bh(&conn->ep->lock);
		} else if (status) {
			rdm_op_end(op, -status, 0);
		}
		rdm_idle(conn);
	}
}

/* --- posting --- */

static ssize_t post(struct rdm_op *op, fi_addr_t addr)
{
	struct rdm_ep *ep = to_rdm(op->op.ep);
	struct rdm_conn *conn;
	bool direct = false;
	ssize_t status = 0;

	spin_lock_bh(&ep->lock);
	conn = rdm_conn_for_locked(ep, addr);
	if (!conn)
		status = -EHOSTUNREACH;
	else if (IS_ERR(conn))
		status = PTR_ERR(conn);
	if (!status) {
		direct = conn->state == RDM_OPEN && list_empty(&conn->pending) &&
			 !conn->draining && op->kind != RDM_OP_ANNOUNCE;
		conn->busy += direct;
		if (!direct) {
			list_add_tail(&op->op.node, &conn->pending);
			if (conn->state == RDM_OPEN)
				rdm_todo_locked(conn);
		}
	}
	spin_unlock_bh(&ep->lock);
	if (status) {
		kofi_op_refuse(&op->op);
	} else if (direct) {
		rdm_give(conn, op);
		rdm_idle(conn);
	}
	return status;
}

static ssize_t post_send(struct fid_ep *ep, const struct fi_msg *msg, u64 tag, u64 what, u64 flags)
{
	bool eager = msg->vec.len <= RDM_EAGER_MAX &&
		     !(flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE));
	struct rdm_op *op = op_new(ep, eager ? RDM_OP_EAGER : RDM_OP_ANNOUNCE, msg, tag, what,
				   flags, eager ? sizeof(struct rdm_head) + msg->vec.len : 0);

	if (IS_ERR(op))
		return PTR_ERR(op);
	if (eager) {
		op->op.vec = kofi_vec_buf(op->frame + sizeof(struct rdm_head), msg->vec.len);
		kofi_copy(&op->op.vec, 0, &msg->vec, 0, msg->vec.len);
		put_head(op, RDM_MESSAGE, op, 0, 0, 0);
	}
	return post(op, msg->addr);
}

static ssize_t post_message(struct fid_ep *ep, const struct fi_msg *msg, bool tagged, u64 tag,
			    u64 ignore, u64 flags, bool send)
{
	u64 what = (send ? FI_SEND : FI_RECV) | (tagged ? FI_TAGGED : FI_MSG);
	struct rdm_op *op;

	if (send)
		return post_send(ep, msg, tag, what, flags);
	op = op_new(ep, RDM_OP_RECV, msg, tag, what, flags, 0);
	if (IS_ERR(op))
		return PTR_ERR(op);
	op->ignore = ignore;
	rdm_post_recv(op);
	return 0;
}

KOFI_MESSAGE_CALLS(rdm, post_message);

static ssize_t post_rma(struct fid_ep *ep, const struct fi_msg_rma *msg, u64 flags, bool write)
{
	struct rdm_domain *domain = to_rdm(ep)->domain;
	struct rdm_op *op;
	int status;

	if (!msg->rma_iov_count ||
	    msg->rma_iov_count > min_t(size_t, domain->info->tx_attr->rma_iov_limit,
				       RDM_TARGETS_MAX))
		return -EINVAL;
	status = kofi_check_rma(msg, flags, RDM_EAGER_MAX);
	if (status)
		return status;
	op = op_new(ep, write ? RDM_OP_WRITE : RDM_OP_READ, &msg->msg, 0,
		    FI_RMA | (write ? FI_WRITE : FI_READ), flags, 0);
	if (IS_ERR(op))
		return PTR_ERR(op);
	op->target_count = msg->rma_iov_count;
	memcpy(op->target, msg->rma_iov, msg->rma_iov_count * sizeof(*msg->rma_iov));
	return post(op, msg->msg.addr);
}

KOFI_RMA_CALLS(rdm, post_rma);

static ssize_t rdm_atomicmsg(struct fid_ep *ep, const struct fi_msg_atomic *msg, u64 flags)
{
	size_t len = msg->msg.vec.len;
	bool reads_only = msg->op == FI_ATOMIC_READ;
	size_t operand = reads_only ? 0 : len, compare = msg->compare ? len : 0;
	struct fi_msg plain = msg->msg;
	struct rdm_op *op;
	int status = kofi_check_atomic(msg, flags);

	if (status)
		return status;
	if (reads_only)
		plain.vec.buf = msg->result;
	op = op_new(ep, RDM_OP_ATOMIC, &plain, 0, FI_ATOMIC | (reads_only ? FI_READ : FI_WRITE),
		    flags & ~FI_INJECT, operand + compare);
	if (IS_ERR(op))
		return PTR_ERR(op);
	op->atomic = *msg;
	if (operand) {
		memcpy(op->frame, msg->msg.vec.buf, operand);
		op->atomic.msg.vec = kofi_vec_buf(op->frame, operand);
	}
	if (compare) {
		memcpy(op->frame + operand, msg->compare, compare);
		op->atomic.compare = op->frame + operand;
	}
	return post(op, msg->msg.addr);
}

ssize_t rdm_cancel(struct fid_ep *fid_ep, void *context)
{
	struct rdm_ep *ep = to_rdm(fid_ep);
	struct rdm_op *op, *found = NULL;
	int i;

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
		rdm_op_end(found, ECANCELED, KOFI_PE_LOCAL);
	return 0;
}

static const struct fi_ops_atomic atomic_ops = { .atomicmsg = rdm_atomicmsg };

const struct kofi_ep_ops rdm_data_ops = { .msg = &rdm_msg, .tagged = &rdm_tagged,
					  .rma = &rdm_rma, .atomic = &atomic_ops };
