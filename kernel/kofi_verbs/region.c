// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Memory regions: fast registration. The work request that registers a region
 * goes through a queue pair of the domain that is connected to itself, so that
 * a region is there when fi_mr_reg() returns, with or without endpoints.
 *
 * Addresses are offsets in the region. The device wants that the address of the
 * first byte has the byte's offset in its page: the key carries it.
 */
#include "verbs.h"

#include <linux/mm.h>
#include <linux/slab.h>
#include <rdma/ib_cache.h>

/* --- the queue pair that registers --- */

void kv_registrar_close(struct kv_domain *domain)
{
	if (domain->qp) {
		ib_drain_qp(domain->qp);
		ib_destroy_qp(domain->qp);
	}
	if (domain->cq)
		ib_free_cq(domain->cq);
}

static int to_init(struct ib_qp *qp, u32 port)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_INIT, .port_num = port };

	return ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT |
			    IB_QP_ACCESS_FLAGS);
}

/* Its own peer, by an address of the port. */
static int to_ready(struct ib_qp *qp, u32 port, const struct ib_port_attr *port_attr, int index)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_RTR, .path_mtu = port_attr->active_mtu,
		.dest_qp_num = qp->qp_num, .max_dest_rd_atomic = 1, .min_rnr_timer = 12 };
	union ib_gid gid;
	int status = rdma_query_gid(qp->device, port, index, &gid);

	if (!status && !gid.global.interface_id && !gid.global.subnet_prefix)
		status = -ENOENT;
	if (status)
		return status;
	attr.ah_attr.type = rdma_ah_find_type(qp->device, port);
	rdma_ah_set_port_num(&attr.ah_attr, port);
	rdma_ah_set_dlid(&attr.ah_attr, port_attr->lid);
	rdma_ah_set_grh(&attr.ah_attr, &gid, 0, index, 1, 0);
	return ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN |
			    IB_QP_RQ_PSN | IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER);
}

static int to_send(struct ib_qp *qp)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_RTS, .timeout = 14, .retry_cnt = 7,
				   .rnr_retry = 7, .max_rd_atomic = 1 };

	return ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_TIMEOUT | IB_QP_RETRY_CNT |
			    IB_QP_RNR_RETRY | IB_QP_SQ_PSN | IB_QP_MAX_QP_RD_ATOMIC);
}

static int join_itself(struct ib_qp *qp)
{
	struct ib_port_attr port_attr;
	int status = -ENETDOWN, index;
	u32 port;

	rdma_for_each_port(qp->device, port) {
		if (ib_query_port(qp->device, port, &port_attr) ||
		    port_attr.state != IB_PORT_ACTIVE)
			continue;
		status = to_init(qp, port);
		if (status)
			return status;
		for (index = 0, status = -ENOENT; status && index < port_attr.gid_tbl_len; index++)
			status = to_ready(qp, port, &port_attr, index);
		return status ?: to_send(qp);
	}
	return status;
}

int kv_registrar_open(struct kv_domain *domain)
{
	struct ib_device *device = domain->device->device;
	struct ib_qp_init_attr attr = {
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IB_QPT_RC, .sq_sig_type = IB_SIGNAL_REQ_WR };
	int status;

	domain->cq = ib_alloc_cq_any(device, domain, 32, IB_POLL_WORKQUEUE);
	status = PTR_ERR_OR_ZERO(domain->cq);
	if (status) {
		domain->cq = NULL;
		return status;
	}
	attr.send_cq = domain->cq;
	attr.recv_cq = domain->cq;
	domain->qp = ib_create_qp(domain->pd, &attr);
	status = PTR_ERR_OR_ZERO(domain->qp);
	if (status)
		domain->qp = NULL;
	else
		status = join_itself(domain->qp);
	if (status) {
		kv_registrar_close(domain);
		domain->qp = NULL;
		domain->cq = NULL;
	}
	return status;
}

static void registered(struct ib_cq *cq, struct ib_wc *wc)
{
	struct kv_mr *mr = container_of(wc->wr_cqe, struct kv_mr, cqe);

	mr->status = wc->status == IB_WC_SUCCESS ? 0 : -EIO;
	complete(&mr->done);
}

static int register_now(struct kv_mr *mr)
{
	struct kv_domain *domain = mr->domain;
	int status;

	init_completion(&mr->done);
	mutex_lock(&domain->lock);
	status = ib_post_send(domain->qp, &mr->wr.wr, NULL);
	if (!status)
		wait_for_completion(&mr->done);
	mutex_unlock(&domain->lock);
	return status ?: mr->status;
}

/* --- memory --- */

struct page *kv_page(const struct kofi_piece *piece, size_t *offset)
{
	*offset = piece->addr ? offset_in_page(piece->addr) : piece->offset;
	if (!piece->addr)
		return piece->page;
	/* Of a module's own data, too, which lies where vmalloc's does. */
	return virt_addr_valid(piece->addr) ? virt_to_page(piece->addr) :
					      vmalloc_to_page(piece->addr);
}

/* Entries of one page each at most. */
static int fill_table(struct kv_mr *mr, const struct kofi_vec *vec)
{
	struct scatterlist *sg = NULL;
	struct kofi_piece piece;
	struct kofi_iter iter;
	unsigned int count = 0;
	int status;

	for (kofi_iter_init(&iter, vec, 0); kofi_iter_next(&iter, &piece, SIZE_MAX);)
		count += DIV_ROUND_UP(offset_in_page(piece.addr ?: (void *)piece.offset) +
				      piece.len, PAGE_SIZE);
	status = sg_alloc_table(&mr->table, count, GFP_KERNEL);
	if (status)
		return status;
	for (kofi_iter_init(&iter, vec, 0); kofi_iter_next(&iter, &piece, SIZE_MAX);)
		while (piece.len) {
			size_t offset, len;
			struct page *page = kv_page(&piece, &offset);

			len = min_t(size_t, piece.len, PAGE_SIZE - offset);
			sg = sg ? sg_next(sg) : mr->table.sgl;
			sg_set_page(sg, page, len, offset);
			piece.len -= len;
			if (piece.addr)
				piece.addr += len;
			else
				piece.offset += len;
		}
	return 0;
}

static int access_of(u64 access)
{
	int flags = IB_ACCESS_LOCAL_WRITE;

	if (access & FI_REMOTE_READ)
		flags |= IB_ACCESS_REMOTE_READ;
	if (access & FI_REMOTE_WRITE)
		flags |= IB_ACCESS_REMOTE_WRITE;
	if ((access & FI_REMOTE_WRITE) && (access & FI_REMOTE_READ))
		flags |= IB_ACCESS_REMOTE_ATOMIC;
	return flags;
}

static int map_below(struct kv_mr *mr, const struct fi_mr_attr *attr)
{
	struct ib_device *device = mr->domain->device->device;
	struct scatterlist *first;
	int mapped, status;

	status = fill_table(mr, &attr->vec);
	if (status)
		return status;
	status = -EINVAL;
	if (mr->table.orig_nents > device->attrs.max_fast_reg_page_list_len)
		goto free_table;
	mapped = ib_dma_map_sg(device, mr->table.sgl, mr->table.orig_nents, DMA_BIDIRECTIONAL);
	if (!mapped)
		goto free_table;
	mr->mr_below = ib_alloc_mr(mr->domain->pd, IB_MR_TYPE_MEM_REG, mr->table.orig_nents);
	if (IS_ERR(mr->mr_below)) {
		status = PTR_ERR(mr->mr_below);
		goto unmap;
	}
	/* All but the first begin with their page, all but the last end with it. */
	if (ib_map_mr_sg(mr->mr_below, mr->table.sgl, mapped, NULL, PAGE_SIZE) != mapped)
		goto free_mr;
	first = mr->table.sgl;
	mr->mr_below->iova = offset_in_page(first->offset);
	mr->cqe.done = registered;
	mr->wr = (struct ib_reg_wr){ .wr = { .opcode = IB_WR_REG_MR, .wr_cqe = &mr->cqe,
					     .send_flags = IB_SEND_SIGNALED },
				     .mr = mr->mr_below, .key = mr->mr_below->rkey,
				     .access = access_of(attr->access) };
	mr->mr.key = mr->mr_below->rkey | mr->mr_below->iova << KV_KEY_SHIFT;
	return 0;
free_mr:
	ib_dereg_mr(mr->mr_below);
unmap:
	ib_dma_unmap_sg(device, mr->table.sgl, mr->table.orig_nents, DMA_BIDIRECTIONAL);
free_table:
	sg_free_table(&mr->table);
	mr->mr_below = NULL;
	return status;
}

static void unmap_below(struct kv_mr *mr)
{
	ib_dereg_mr(mr->mr_below);
	ib_dma_unmap_sg(mr->domain->device->device, mr->table.sgl, mr->table.orig_nents,
			DMA_BIDIRECTIONAL);
	sg_free_table(&mr->table);
}

static void mr_close(struct fid *fid)
{
	struct kv_mr *mr = container_of(fid, struct kv_mr, mr.fid);

	if (mr->mr_below)
		unmap_below(mr);
	kfree(mr);
}

static const struct fi_ops mr_ops = { .close = mr_close };

int kv_mr_regattr(struct fid_domain *domain, const struct fi_mr_attr *attr, u64 flags,
		  struct fid_mr **out)
{
	struct kv_mr *mr;
	int status = 0;

	if (!kofi_vec_valid(&attr->vec))
		return -EINVAL;
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return -ENOMEM;
	mr->domain = container_of(domain, struct kv_domain, domain);
	mr->mr.fid.ops = &mr_ops;
	mr->mr.key = FI_KEY_NOTAVAIL;
	if (attr->vec.len && (attr->access & (FI_REMOTE_READ | FI_REMOTE_WRITE)))
		status = map_below(mr, attr);
	if (!status && mr->mr_below) {
		status = register_now(mr);
		if (status)
			unmap_below(mr);
	}
	if (status) {
		kfree(mr);
		return status;
	}
	*out = &mr->mr;
	return 0;
}
