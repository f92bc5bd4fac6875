// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Data calls: operations become work requests, their completions end them.
 *
 * Payloads are mapped for the device where they are. An RMA operation of many
 * pieces is several work requests; all of them report, and the last report
 * ends it.
 */
#include "verbs.h"

#include <linux/mm.h>
#include <linux/slab.h>

/* --- memory --- */

/* Runs of contiguous pages; stores them when @map is not NULL. */
static u32 runs_of(const struct kofi_vec *vec, struct kv_map *map)
{
	phys_addr_t end = 0;
	struct kofi_piece piece;
	struct kofi_iter iter;
	u32 runs = 0;

	for (kofi_iter_init(&iter, vec, 0); kofi_iter_next(&iter, &piece, SIZE_MAX);)
		while (piece.len) {
			size_t offset, len;
			struct page *page = kv_page(&piece, &offset);
			phys_addr_t at = page_to_phys(page) + offset;

			len = min_t(size_t, piece.len, PAGE_SIZE - offset);
			if (runs && at == end) {
				if (map)
					map[runs - 1].len += len;
			} else {
				if (map)
					map[runs] = (struct kv_map){ page, offset, len };
				runs++;
			}
			end = at + len;
			piece.len -= len;
			if (piece.addr)
				piece.addr += len;
			else
				piece.offset += len;
		}
	return runs;
}

static struct ib_device *device_of(const struct kv_op *op)
{
	return ep_of(op)->domain->device->device;
}

static enum dma_data_direction direction_of(const struct kv_op *op)
{
	return op->kind == KV_SEND || op->kind == KV_WRITE ? DMA_TO_DEVICE : DMA_FROM_DEVICE;
}

static void unmap(struct kv_op *op)
{
	while (op->maps) {
		const struct kv_map *map = &op->map[--op->maps];

		ib_dma_unmap_page(device_of(op), map->addr, map->len, direction_of(op));
	}
}

static int map_runs(struct kv_op *op, u32 runs)
{
	for (op->maps = 0; op->maps < runs; op->maps++) {
		struct kv_map *map = &op->map[op->maps];

		map->addr = ib_dma_map_page(device_of(op), map->page, map->offset, map->len,
					    direction_of(op));
		if (ib_dma_mapping_error(device_of(op), map->addr)) {
			unmap(op);
			return -EAGAIN;
		}
	}
	return 0;
}

/* --- the end --- */

static int errno_of(const struct kv_op *op, enum ib_wc_status status, int *reason)
{
	switch (status) {
	case IB_WC_SUCCESS:
		*reason = KOFI_PE_NONE;
		return 0;
	case IB_WC_WR_FLUSH_ERR:
		*reason = ep_of(op)->reason ?: KOFI_PE_DIED;
		return op->kind == KV_RECV ? ECANCELED : EIO;
	case IB_WC_REM_ACCESS_ERR:
		*reason = KOFI_PE_REMOTE_ACCESS;
		return EACCES;
	case IB_WC_LOC_LEN_ERR:
	case IB_WC_REM_INV_REQ_ERR:
		*reason = KOFI_PE_NONE;
		return op->kind == KV_RECV ? FI_ETRUNC : EIO;
	case IB_WC_RETRY_EXC_ERR:
	case IB_WC_RNR_RETRY_EXC_ERR:
		*reason = KOFI_PE_TIMED_OUT;
		return ETIMEDOUT;
	default:
		*reason = KOFI_PE_DIED;
		return EIO;
	}
}

static void op_end(struct kv_op *op, int err, int reason)
{
	struct kv_ep *ep = ep_of(op);

	unmap(op);
	spin_lock_bh(&ep->lock);
	ep->work_used -= op->kind == KV_RECV ? 0 : op->work;
	spin_unlock_bh(&ep->lock);
	if (!err && op->kind == KV_ATOMIC && op->result)
		memcpy(op->result, &op->old, sizeof(op->old));
	kofi_op_end(&op->op, err, reason);
}

static int post_recv_locked(struct kv_op *op)
{
	struct ib_sge sge[KV_SGE];
	struct ib_recv_wr wr = { .wr_cqe = &op->cqe, .sg_list = sge, .num_sge = op->maps };
	u32 i;

	for (i = 0; i < op->maps; i++)
		sge[i] = (struct ib_sge){ op->map[i].addr, op->map[i].len,
					  ep_of(op)->domain->pd->local_dma_lkey };
	atomic_set(&op->pending, 1);
	return ib_post_recv(ep_of(op)->qp, &wr, NULL);
}

/* A peer's write with data takes a receive; it is given back: it belongs to messages. */
static void on_remote_write(struct kv_op *op, const struct ib_wc *wc)
{
	int status;

	kofi_complete_remote(op->op.ep, FI_RMA, true, wc->byte_len, FI_REMOTE_CQ_DATA,
			     be32_to_cpu(wc->ex.imm_data));
	spin_lock_bh(&ep_of(op)->lock);
	status = post_recv_locked(op);
	spin_unlock_bh(&ep_of(op)->lock);
	if (status)
		op_end(op, ECANCELED, KOFI_PE_DIED);
}

static void op_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct kv_op *op = container_of(wc->wr_cqe, struct kv_op, cqe);
	bool fatal = wc->status != IB_WC_SUCCESS && wc->status != IB_WC_WR_FLUSH_ERR;
	struct kv_ep *ep = ep_of(op);
	int err, reason;

	if (op->kind == KV_RECV && wc->status == IB_WC_SUCCESS) {
		if (wc->opcode == IB_WC_RECV_RDMA_WITH_IMM) {
			on_remote_write(op, wc);
			return;
		}
		op->op.done.entry.len = wc->byte_len;
		if (wc->wc_flags & IB_WC_WITH_IMM) {
			op->op.done.entry.flags |= FI_REMOTE_CQ_DATA;
			op->op.done.entry.data = be32_to_cpu(wc->ex.imm_data);
		}
	}
	/* Reports of one queue pair come one after the other. */
	if (wc->status != IB_WC_SUCCESS && !op->failed)
		op->failed = wc->status;
	if (atomic_dec_and_test(&op->pending)) {
		err = errno_of(op, op->failed, &reason);
		op_end(op, err, reason);
	}
	/* The queue pair is in error, of which the connection manager knows nothing. */
	if (fatal)
		kv_over(ep, EIO, KOFI_PE_DIED, NULL, 0);
}

/* --- operations --- */

static struct kv_op *op_new(struct fid_ep *ep, enum kv_kind kind, const struct fi_msg *msg, u64 what,
			    u64 flags)
{
	int counter = kind == KV_SEND ? KOFI_CNTR_SEND : kind == KV_RECV ? KOFI_CNTR_RECV :
		      kind == KV_READ ? KOFI_CNTR_READ : KOFI_CNTR_WRITE;
	bool inject = (kind == KV_SEND || kind == KV_WRITE) && (flags & FI_INJECT);
	int status = kofi_check_msg(msg, inject ? flags : flags & ~FI_INJECT, KV_INJECT_MAX);
	struct kofi_op *new;
	struct kv_op *op;
	u32 runs;

	if (!status && msg->vec.len > KV_MESSAGE_MAX)
		status = -EINVAL;
	if (status)
		return ERR_PTR(status);
	runs = inject ? 2 : runs_of(&msg->vec, NULL);
	if (runs > (kind == KV_SEND || kind == KV_RECV ? KV_SGE : KV_SGE * KV_PARTS))
		return ERR_PTR(-EMSGSIZE);
	new = kofi_op_new(ep, counter, struct_size(op, map, runs), msg, 0, what,
			  inject ? flags : flags & ~FI_INJECT, KV_INJECT_MAX);
	if (IS_ERR(new))
		return ERR_CAST(new);
	op = container_of(new, struct kv_op, op);
	op->kind = kind;
	op->cqe.done = op_done;
	op->flags = flags;
	status = map_runs(op, runs_of(&op->op.vec, op->map));
	if (!status)
		return op;
	kofi_op_refuse(new);
	return ERR_PTR(status);
}

static void op_refuse(struct kv_op *op)
{
	unmap(op);
	kofi_op_refuse(&op->op);
}

/* --- receives --- */

static ssize_t kv_recvmsg(struct fid_ep *fid_ep, const struct fi_msg *msg, u64 flags)
{
	struct kv_ep *ep = to_kv(fid_ep);
	struct kv_op *op = op_new(fid_ep, KV_RECV, msg, FI_RECV | FI_MSG, flags);
	int status = 0;

	if (IS_ERR(op))
		return PTR_ERR(op);
	spin_lock_bh(&ep->lock);
	if (ep->state == KV_OVER)
		status = -ENOTCONN;
	else if (!ep->qp)
		list_add_tail(&op->op.node, &ep->early);
	else
		status = post_recv_locked(op);
	spin_unlock_bh(&ep->lock);
	if (status)
		op_refuse(op);
	return status == -ENOMEM ? -EAGAIN : status;
}

/* There is a queue pair now. */
int kv_post_early(struct kv_ep *ep)
{
	struct kv_op *op, *next;
	int status = 0;

	spin_lock_bh(&ep->lock);
	list_for_each_entry_safe(op, next, &ep->early, op.node) {
		status = post_recv_locked(op);
		if (status)
			break;
		list_del(&op->op.node);
	}
	spin_unlock_bh(&ep->lock);
	return status;
}

void kv_end_early(struct kv_ep *ep)
{
	struct kv_op *op, *next;
	LIST_HEAD(gone);

	spin_lock_bh(&ep->lock);
	list_splice_init(&ep->early, &gone);
	spin_unlock_bh(&ep->lock);
	list_for_each_entry_safe(op, next, &gone, op.node)
		op_end(op, ECANCELED, ep->reason);
}

/* What the device has cannot be taken back. */
ssize_t kv_cancel(struct fid_ep *fid_ep, void *context)
{
	struct kv_ep *ep = to_kv(fid_ep);
	struct kv_op *op, *found = NULL;

	spin_lock_bh(&ep->lock);
	list_for_each_entry(op, &ep->early, op.node)
		if (op->op.done.entry.op_context == context) {
			found = op;
			list_del(&op->op.node);
			break;
		}
	spin_unlock_bh(&ep->lock);
	if (found)
		op_end(found, ECANCELED, KOFI_PE_LOCAL);
	return found ? 0 : -EOPNOTSUPP;
}

/* --- what goes through the send queue --- */

static int begin_locked(struct kv_ep *ep, u32 work)
{
	if (ep->state != KV_OPEN)
		return -ENOTCONN;
	if (ep->work_used + work > ep->work_size)
		return -EAGAIN;
	return 0;
}

static int post_one(struct kv_op *op, struct ib_send_wr *wr, u32 first, u32 count)
{
	struct ib_sge sge[KV_SGE];
	u32 i;

	for (i = 0; i < count; i++)
		sge[i] = (struct ib_sge){ op->map[first + i].addr, op->map[first + i].len,
					  ep_of(op)->domain->pd->local_dma_lkey };
	wr->wr_cqe = &op->cqe;
	wr->sg_list = sge;
	wr->num_sge = count;
	wr->send_flags = IB_SEND_SIGNALED;
	return ib_post_send(ep_of(op)->qp, wr, NULL);
}

static ssize_t finish_post(struct kv_op *op, int status)
{
	if (status)
		op_refuse(op);
	return status == -ENOMEM ? -EAGAIN : status;
}

static ssize_t kv_sendmsg(struct fid_ep *fid_ep, const struct fi_msg *msg, u64 flags)
{
	struct kv_ep *ep = to_kv(fid_ep);
	struct kv_op *op = op_new(fid_ep, KV_SEND, msg, FI_SEND | FI_MSG, flags);
	struct ib_send_wr wr = { .opcode = IB_WR_SEND };
	int status;

	if (IS_ERR(op))
		return PTR_ERR(op);
	op->work = 1;
	atomic_set(&op->pending, 1);
	if (flags & FI_REMOTE_CQ_DATA) {
		wr.opcode = IB_WR_SEND_WITH_IMM;
		wr.ex.imm_data = cpu_to_be32(msg->data);
	}
	spin_lock_bh(&ep->lock);
	status = begin_locked(ep, 1) ?: post_one(op, &wr, 0, op->maps);
	if (!status)
		ep->work_used++;
	spin_unlock_bh(&ep->lock);
	return finish_post(op, status);
}

/*
 * All work requests of an RMA operation. When one cannot be posted, those
 * before it have to report; *over: they have, and nobody else ends it.
 */
static int post_parts_locked(struct kv_op *op, const struct fi_rma_iov *target, u32 data,
			     bool *over)
{
	struct ib_rdma_wr wr = { .rkey = (u32)target->key,
				 .remote_addr = (target->key >> KV_KEY_SHIFT) + target->addr };
	u32 first = 0, done, i;
	int status = 0;

	atomic_set(&op->pending, op->work);
	for (done = 0; done < op->work; done++) {
		u32 count = min_t(u32, KV_SGE, op->maps - first);
		bool last = done == op->work - 1;

		wr.wr.opcode = op->kind == KV_READ ? IB_WR_RDMA_READ :
			       last && (op->flags & FI_REMOTE_CQ_DATA) ?
			       IB_WR_RDMA_WRITE_WITH_IMM : IB_WR_RDMA_WRITE;
		wr.wr.ex.imm_data = cpu_to_be32(data);
		status = post_one(op, &wr.wr, first, count);
		if (status)
			break;
		for (i = 0; i < count; i++)
			wr.remote_addr += op->map[first + i].len;
		first += count;
	}
	if (!done)
		return status;
	if (status) {
		op->failed = IB_WC_GENERAL_ERR;
		*over = atomic_sub_and_test(op->work - done, &op->pending);
	}
	return 0;
}

static ssize_t post_rma(struct fid_ep *fid_ep, const struct fi_msg_rma *msg, u64 flags, bool write)
{
	struct kv_ep *ep = to_kv(fid_ep);
	bool over = false;
	struct kv_op *op;
	int status;

	if (msg->rma_iov_count != 1 || msg->rma_iov->len != msg->msg.vec.len)
		return -EINVAL;
	op = op_new(fid_ep, write ? KV_WRITE : KV_READ, &msg->msg,
		    FI_RMA | (write ? FI_WRITE : FI_READ), flags);
	if (IS_ERR(op))
		return PTR_ERR(op);
	op->work = max_t(u32, 1, DIV_ROUND_UP(op->maps, KV_SGE));
	spin_lock_bh(&ep->lock);
	status = begin_locked(ep, op->work) ?:
		 post_parts_locked(op, msg->rma_iov, msg->msg.data, &over);
	if (!status)
		ep->work_used += op->work;
	spin_unlock_bh(&ep->lock);
	if (over)
		op_end(op, EIO, KOFI_PE_DIED);
	return finish_post(op, status);
}

KOFI_RMA_CALLS(kv, post_rma);

/* The two that RDMA has, on one word of 8 bytes. */
static size_t atomic_valid(enum fi_datatype datatype, enum fi_op op, bool fetch, bool compare)
{
	if (datatype != FI_UINT64 && datatype != FI_INT64)
		return 0;
	return compare ? op == FI_CSWAP : op == FI_SUM;
}

static ssize_t kv_atomicmsg(struct fid_ep *fid_ep, const struct fi_msg_atomic *msg, u64 flags)
{
	struct kv_ep *ep = to_kv(fid_ep);
	struct ib_atomic_wr wr = { .rkey = (u32)msg->key,
				   .remote_addr = (msg->key >> KV_KEY_SHIFT) + msg->addr };
	struct fi_msg plain = msg->msg;
	struct kv_op *op;
	u64 operand = 0, compare = 0;
	int status;

	if (!kofi_atomic_valid(msg->datatype, msg->op, msg->result, msg->compare) ||
	    !atomic_valid(msg->datatype, msg->op, msg->result, msg->compare))
		return -EOPNOTSUPP;
	if (plain.vec.type != KOFI_BUF || plain.vec.len != sizeof(u64) || !plain.vec.buf)
		return -EINVAL;
	memcpy(&operand, plain.vec.buf + plain.vec.offset, sizeof(operand));
	if (msg->compare)
		memcpy(&compare, msg->compare, sizeof(compare));
	/* The old value comes into the operation itself: results may be anywhere. */
	op = op_new(fid_ep, KV_ATOMIC, &plain, FI_ATOMIC | FI_WRITE, flags & ~FI_INJECT);
	if (IS_ERR(op))
		return PTR_ERR(op);
	unmap(op);
	op->op.vec = kofi_vec_buf(&op->old, sizeof(op->old));
	op->result = msg->result;
	op->work = 1;
	status = map_runs(op, runs_of(&op->op.vec, op->map));
	if (status)
		return finish_post(op, status);
	atomic_set(&op->pending, 1);
	wr.wr.opcode = msg->compare ? IB_WR_ATOMIC_CMP_AND_SWP : IB_WR_ATOMIC_FETCH_AND_ADD;
	wr.compare_add = msg->compare ? compare : operand;
	wr.swap = operand;
	spin_lock_bh(&ep->lock);
	status = begin_locked(ep, 1) ?: post_one(op, &wr.wr, 0, op->maps);
	if (!status)
		ep->work_used++;
	spin_unlock_bh(&ep->lock);
	return finish_post(op, status);
}

static const struct fi_ops_msg msg_ops = { .recvmsg = kv_recvmsg, .sendmsg = kv_sendmsg };
static const struct fi_ops_atomic atomic_ops = { .atomicmsg = kv_atomicmsg,
						 .valid = atomic_valid };

const struct kofi_ep_ops kv_data_ops = { .msg = &msg_ops, .rma = &kv_rma,
					 .atomic = &atomic_ops };
