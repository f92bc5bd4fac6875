/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * kofi_verbs between its files: MSG endpoints are RC queue pairs.
 *
 * kv_ep.lock guards the state and the lists that data calls touch; data calls
 * post under it. Completions come in process context (ib_alloc_cq with
 * IB_POLL_WORKQUEUE). kv_domain.lock, a mutex: one registration at a time.
 */
#ifndef _KOFI_VERBS_H
#define _KOFI_VERBS_H

#include <kofi/provider.h>
#include <linux/mutex.h>
#include <linux/workqueue.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

#define KV_SIZE		512		/* operations of each direction */
#define KV_SIZE_MAX	2048
#define KV_SGE		30		/* pieces of a work request */
#define KV_PARTS	64		/* work requests of an operation */
#define KV_INJECT_MAX	1024
#define KV_MESSAGE_MAX	(1u << 30)
#define KV_PARAM_MAX	55		/* of 56 bytes; one is the length */
#define KV_RESOLVE_MS	5000
#define KV_LINGER_MS	500
#define KV_KEY_SHIFT	32		/* of a key: rkey, and above it the first address */

struct kv_device {
	struct list_head	node;
	struct ib_device	*device;
	refcount_t		users;
	struct completion	unused;
};

struct kv_domain {
	struct fid_domain	domain;
	struct kv_device	*device;
	struct ib_pd		*pd;
	struct mutex		lock;
	struct ib_cq		*cq;		/* of qp */
	struct ib_qp		*qp;		/* connected to itself: registers regions */
};

struct kv_mr {
	struct fid_mr		mr;
	struct kv_domain	*domain;
	struct ib_mr		*mr_below;	/* NULL: no peer may reach it */
	struct sg_table		table;
	struct ib_reg_wr	wr;
	struct ib_cqe		cqe;
	struct completion	done;
	int			status;
};

enum kv_state { KV_IDLE, KV_CONNECTING, KV_OPEN, KV_OVER };

struct kv_ep {
	struct fid_ep		ep;
	struct kv_domain	*domain;
	struct rdma_cm_id	*id;
	struct ib_qp		*qp;
	struct ib_cq		*cq;
	struct fid		*handle;	/* of the request to accept */
	struct sockaddr_storage	source, target;
	u8			param_len;
	u8			param[KV_PARAM_MAX];
	struct mutex		cm;		/* connect, accept, shutdown, close */
	bool			closing;	/* of the id's handler lock */

	spinlock_t		lock;
	enum kv_state		state;
	int			reason;
	struct list_head	early;		/* receives before there is a queue pair */
	u32			work_used, work_size;	/* work requests of the send queue */
};

enum kv_kind { KV_SEND, KV_RECV, KV_WRITE, KV_READ, KV_ATOMIC };

/* Physically contiguous bytes. */
struct kv_map {
	struct page	*page;
	u32		offset;
	u32		len;
	u64		addr;		/* of the device */
};

struct kv_op {
	struct kofi_op		op;		/* node: of early */
	enum kv_kind		kind;
	struct ib_cqe		cqe;		/* of all its work requests */
	atomic_t		pending;	/* of these */
	enum ib_wc_status	failed;
	u32			work;
	u32			maps;
	u64			flags;
	void			*result;	/* atomic: where old goes */
	u64			old;
	struct kv_map		map[];
};

static inline struct kv_ep *to_kv(struct fid_ep *ep)
{
	return container_of(ep, struct kv_ep, ep);
}

static inline struct kv_ep *ep_of(const struct kv_op *op)
{
	return to_kv(op->op.ep);
}

/* data.c */
extern const struct kofi_ep_ops kv_data_ops;
int kv_post_early(struct kv_ep *ep);
void kv_end_early(struct kv_ep *ep);
ssize_t kv_cancel(struct fid_ep *ep, void *context);

/* connect.c */
int kv_endpoint(struct fid_domain *domain, const struct fi_info *info, struct fid_ep **ep);
int kv_passive_ep(struct fid_fabric *fabric, const struct fi_info *info, struct fid_pep **pep);
/* Process context. */
void kv_over(struct kv_ep *ep, int err, int reason, const void *data, size_t len);

/* region.c */
struct page *kv_page(const struct kofi_piece *piece, size_t *offset);
int kv_mr_regattr(struct fid_domain *domain, const struct fi_mr_attr *attr, u64 flags,
		  struct fid_mr **mr);
int kv_registrar_open(struct kv_domain *domain);
void kv_registrar_close(struct kv_domain *domain);

#endif
