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

static struct rdm_op *op_new(struct fid_ep *fid_ep, enum rdm_op_kind kind,
			     const struct fi_msg *msg, u64 flags, size_t extra)
{
	struct rdm_ep *ep = to_rdm(fid_ep);
	bool recv = kind == RDM_OP_RECV;
	struct fid_cq *cq = recv ? fid_ep->rx_cq : fid_ep->tx_cq;
	struct rdm_op *op;

	if (flags & FI_FENCE)
		return ERR_PTR(-FI_EBADFLAGS);
	if (!kofi_vec_valid(&msg->vec))
		return ERR_PTR(-EINVAL);
	if (!recv && (flags & FI_INJECT) &&
	    msg->vec.len > min_t(size_t, ep->domain->info->tx_attr->inject_size, RDM_EAGER_MAX))
		return ERR_PTR(-EMSGSIZE);
	if (kofi_cq_reserve(cq))
		return ERR_PTR(-EAGAIN);
	op = kzalloc(struct_size(op, frame, extra), GFP_ATOMIC);
	if (!op) {
		kofi_cq_unreserve(cq);
		return ERR_PTR(-EAGAIN);
	}
	op->io.type = RDM_IO_OP;
	op->kind = kind;
	op->ep = ep;
	op->vec = msg->vec;
	op->flags = flags;
	op->frame_len = extra;
	op->done.entry.op_context = msg->context;
	op->done.entry.data = msg->data;
	op->done.entry.len = msg->vec.len;
	op->done.src = FI_ADDR_NOTAVAIL;
	op->done.silent = !kofi_wants_entry(fid_ep, !recv, flags);
	return op;
}

static void op_refuse(struct rdm_op *op)
{
	kofi_cq_unreserve(op->kind == RDM_OP_RECV ? op->ep->ep.rx_cq : op->ep->ep.tx_cq);
	kfree(op);
}

void rdm_op_end(struct rdm_op *op, int err, int reason)
{
	static const int counters[] = { [RDM_OP_EAGER] = KOFI_CNTR_SEND,
					[RDM_OP_ANNOUNCE] = KOFI_CNTR_SEND,
					[RDM_OP_RECV] = KOFI_CNTR_RECV,
					[RDM_OP_WRITE] = KOFI_CNTR_WRITE,
					[RDM_OP_READ] = KOFI_CNTR_READ };
	struct rdm_ep *ep = op->ep;

	if (op->kind != RDM_OP_FRAME) {
		if (op->mr)
			WARN_ON(fi_close(&op->mr->fid));
		kvfree(op->bounce);
		spin_lock_bh(&ep->lock);
		ep->used[op->kind != RDM_OP_RECV]--;
		spin_unlock_bh(&ep->lock);
		op->done.err = err;
		op->done.prov_errno = reason;
		kofi_complete(&ep->ep, op->kind != RDM_OP_ATOMIC ? counters[op->kind] :
			      op->done.entry.flags & FI_READ ? KOFI_CNTR_READ : KOFI_CNTR_WRITE,
			      &op->done);
	}
	kfree(op);
}

/* --- frames --- */

static void put_head(struct rdm_op *op, u8 kind, const struct rdm_op *of, u64 id, u64 key, int err)
{
	struct rdm_head head = { .kind = kind, .id = cpu_to_le64(id), .key = cpu_to_le64(key),
				 .status = cpu_to_le32(err) };

	if (of) {
		head.flags = (of->done.entry.flags & FI_TAGGED ? RDM_TAGGED : 0) |
			     (of->flags & FI_REMOTE_CQ_DATA ? RDM_DATA : 0);
		head.tag = cpu_to_le64(of->done.entry.tag);
		head.data = cpu_to_le64(of->done.entry.data);
		head.len = cpu_to_le64(of->vec.len);
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
	op->ep = ep;
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

	op->bounce = kvmalloc(op->vec.len, GFP_NOIO);
	if (!op->bounce)
		return -ENOMEM;
	copy = kofi_vec_buf(op->bounce, op->vec.len);
	kofi_copy(&copy, 0, &op->vec, 0, op->vec.len);
	attr->vec = copy;
	return fi_mr_regattr(conn->ep->domain->lower, attr, 0, &op->mr);
}

/* Process. On success the operation is the peer's to end: it is not touched any more. */
static ssize_t announce(struct rdm_conn *conn, struct rdm_op *op)
{
	struct fi_mr_attr attr = { .vec = op->vec, .access = FI_REMOTE_READ,
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
	struct fi_msg_rma rma = { .msg = { .vec = op->vec, .context = &op->io,
					   .data = op->done.entry.data },
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
		list_add_tail(&op->node, &conn->pending);
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
		op = list_first_entry_or_null(&conn->pending, struct rdm_op, node);
	if (op) {
		list_del(&op->node);
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
			list_add(&op->node, &conn->pending);
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
	struct rdm_ep *ep = op->ep;
	struct rdm_conn *conn = NULL;
	bool direct = false;
	ssize_t status = 0;

	spin_lock_bh(&ep->lock);
	if (ep->used[true] >= ep->size[true])
		status = -EAGAIN;
	else
		conn = rdm_conn_for_locked(ep, addr);
	if (!status && !conn)
		status = -EHOSTUNREACH;
	else if (IS_ERR(conn))
		status = PTR_ERR(conn);
	if (!status) {
		ep->used[true]++;
		direct = conn->state == RDM_OPEN && list_empty(&conn->pending) &&
			 !conn->draining && op->kind != RDM_OP_ANNOUNCE;
		conn->busy += direct;
		if (!direct) {
			list_add_tail(&op->node, &conn->pending);
			if (conn->state == RDM_OPEN)
				rdm_todo_locked(conn);
		}
	}
	spin_unlock_bh(&ep->lock);
	if (status) {
		op_refuse(op);
	} else if (direct) {
		rdm_give(conn, op);
		rdm_idle(conn);
	}
	return status;
}

static ssize_t post_send(struct fid_ep *ep, const struct fi_msg *msg, bool tagged, u64 tag,
			 u64 flags)
{
	bool eager = msg->vec.len <= RDM_EAGER_MAX &&
		     !(flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE));
	struct rdm_op *op = op_new(ep, eager ? RDM_OP_EAGER : RDM_OP_ANNOUNCE, msg, flags,
				   eager ? sizeof(struct rdm_head) + msg->vec.len :
				   flags & FI_INJECT ? msg->vec.len : 0);
	struct kofi_vec copy;

	if (IS_ERR(op))
		return PTR_ERR(op);
	op->done.entry.tag = tag;
	op->done.entry.flags = FI_SEND | (tagged ? FI_TAGGED : FI_MSG);
	if (eager || (flags & FI_INJECT)) {
		copy = kofi_vec_buf(op->frame + (eager ? sizeof(struct rdm_head) : 0),
				    msg->vec.len);
		kofi_copy(&copy, 0, &msg->vec, 0, msg->vec.len);
		op->vec = copy;
	}
	if (eager)
		put_head(op, RDM_MESSAGE, op, 0, 0, 0);
	return post(op, msg->addr);
}

static ssize_t post_recv(struct fid_ep *ep, const struct fi_msg *msg, bool tagged, u64 tag,
			 u64 ignore, u64 flags)
{
	struct rdm_op *op = op_new(ep, RDM_OP_RECV, msg, flags, 0);
	ssize_t status;

	if (IS_ERR(op))
		return PTR_ERR(op);
	op->ignore = ignore;
	op->done.entry.tag = tag;
	op->done.entry.flags = FI_RECV | (tagged ? FI_TAGGED : FI_MSG);
	status = rdm_post_recv(op);
	if (status)
		op_refuse(op);
	return status;
}

static ssize_t rdm_recvmsg(struct fid_ep *ep, const struct fi_msg *msg, u64 flags)
{
	return post_recv(ep, msg, false, 0, 0, flags);
}

static ssize_t rdm_sendmsg(struct fid_ep *ep, const struct fi_msg *msg, u64 flags)
{
	return post_send(ep, msg, false, 0, flags);
}

static ssize_t rdm_trecvmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg, u64 flags)
{
	return post_recv(ep, &msg->msg, true, msg->tag, msg->ignore, flags);
}

static ssize_t rdm_tsendmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg, u64 flags)
{
	return post_send(ep, &msg->msg, true, msg->tag, flags);
}

static ssize_t post_rma(struct fid_ep *ep, const struct fi_msg_rma *msg, u64 flags, bool write)
{
	struct rdm_domain *domain = to_rdm(ep)->domain;
	bool inject = write && (flags & FI_INJECT);
	struct kofi_vec copy;
	struct rdm_op *op;
	u64 total = 0;
	size_t i;

	if (!msg->rma_iov_count ||
	    msg->rma_iov_count > min_t(size_t, domain->info->tx_attr->rma_iov_limit,
				       RDM_TARGETS_MAX))
		return -EINVAL;
	for (i = 0; i < msg->rma_iov_count; i++)
		total += msg->rma_iov[i].len;
	if (total != msg->msg.vec.len)
		return -EINVAL;
	if (!write)
		flags &= ~(FI_INJECT | FI_REMOTE_CQ_DATA);
	op = op_new(ep, write ? RDM_OP_WRITE : RDM_OP_READ, &msg->msg, flags, inject ? total : 0);
	if (IS_ERR(op))
		return PTR_ERR(op);
	if (inject) {
		copy = kofi_vec_buf(op->frame, total);
		kofi_copy(&copy, 0, &msg->msg.vec, 0, total);
		op->vec = copy;
	}
	op->target_count = msg->rma_iov_count;
	memcpy(op->target, msg->rma_iov, msg->rma_iov_count * sizeof(*msg->rma_iov));
	op->done.entry.flags = FI_RMA | (write ? FI_WRITE : FI_READ);
	return post(op, msg->msg.addr);
}

static ssize_t rdm_readmsg(struct fid_ep *ep, const struct fi_msg_rma *msg, u64 flags)
{
	return post_rma(ep, msg, flags, false);
}

static ssize_t rdm_writemsg(struct fid_ep *ep, const struct fi_msg_rma *msg, u64 flags)
{
	return post_rma(ep, msg, flags, true);
}

static ssize_t rdm_atomicmsg(struct fid_ep *ep, const struct fi_msg_atomic *msg, u64 flags)
{
	size_t len = msg->msg.vec.len;
	bool reads_only = msg->op == FI_ATOMIC_READ;
	size_t operand = reads_only ? 0 : len, compare = msg->compare ? len : 0;
	struct fi_msg plain = msg->msg;
	struct rdm_op *op;

	if (!kofi_atomic_valid(msg->datatype, msg->op, msg->result, msg->compare))
		return -EOPNOTSUPP;
	if (plain.vec.type != KOFI_BUF || !len || len > KOFI_ATOMIC_BYTES_MAX ||
	    len % fi_datatype_size(msg->datatype) || (operand && !plain.vec.buf))
		return -EINVAL;
	if (reads_only)
		plain.vec.buf = msg->result;
	op = op_new(ep, RDM_OP_ATOMIC, &plain, flags & ~FI_INJECT, operand + compare);
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
	op->done.entry.flags = FI_ATOMIC | (reads_only ? FI_READ : FI_WRITE);
	return post(op, msg->msg.addr);
}

ssize_t rdm_cancel(struct fid_ep *fid_ep, void *context)
{
	struct rdm_ep *ep = to_rdm(fid_ep);
	struct rdm_op *op, *found = NULL;
	int i;

	spin_lock_bh(&ep->lock);
	for (i = 0; i < 2 && !found; i++)
		list_for_each_entry(op, &ep->posted[i], node)
			if (op->done.entry.op_context == context) {
				found = op;
				list_del(&op->node);
				break;
			}
	spin_unlock_bh(&ep->lock);
	if (found)
		rdm_op_end(found, ECANCELED, KOFI_PE_LOCAL);
	return 0;
}

static const struct fi_ops_msg msg_ops = { .recvmsg = rdm_recvmsg, .sendmsg = rdm_sendmsg };
static const struct fi_ops_tagged tagged_ops = { .recvmsg = rdm_trecvmsg,
						 .sendmsg = rdm_tsendmsg };
static const struct fi_ops_rma rma_ops = { .readmsg = rdm_readmsg, .writemsg = rdm_writemsg };
static const struct fi_ops_atomic atomic_ops = { .atomicmsg = rdm_atomicmsg };

const struct kofi_ep_ops rdm_data_ops = { .msg = &msg_ops, .tagged = &tagged_ops,
					  .rma = &rma_ops, .atomic = &atomic_ops };
