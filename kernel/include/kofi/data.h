/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The data calls: static inlines, one indirect call each. Arguments and their
 * order are those of fi_msg(3), fi_tagged(3), fi_rma(3), fi_atomic(3), fi_cq(3),
 * fi_eq(3) and fi_cntr(3); vectors are arrays of kvecs, and the *msg forms take
 * any struct kofi_vec.
 *
 * All of them: any context (process or softirq, interrupts enabled); they never
 * sleep. -EAGAIN: no room, nothing has happened; -FI_EOPBADSTATE: not enabled;
 * -ENOSYS: not of this endpoint; -ENOTCONN: not connected any more.
 */
#ifndef _KOFI_DATA_H
#define _KOFI_DATA_H

#include <kofi/fabric.h>
#include <linux/lockdep.h>

#define kofi_data_context() lockdep_assert_irqs_enabled()

/* fi_msg(3) */
static inline ssize_t fi_recvmsg(struct fid_ep *ep, const struct fi_msg *msg, u64 flags)
{
	kofi_data_context();
	return ep->data.msg->recvmsg(ep, msg, flags);
}

static inline ssize_t fi_sendmsg(struct fid_ep *ep, const struct fi_msg *msg, u64 flags)
{
	kofi_data_context();
	return ep->data.msg->sendmsg(ep, msg, flags);
}

static inline ssize_t fi_recv(struct fid_ep *ep, void *buf, size_t len, void *desc,
			      fi_addr_t src_addr, void *context)
{
	struct fi_msg msg = { .vec = kofi_vec_buf(buf, len), .desc = desc,
			      .addr = src_addr, .context = context };

	return fi_recvmsg(ep, &msg, ep->rx_flags);
}

static inline ssize_t fi_send(struct fid_ep *ep, const void *buf, size_t len, void *desc,
			      fi_addr_t dest_addr, void *context)
{
	struct fi_msg msg = { .vec = kofi_vec_buf(buf, len), .desc = desc,
			      .addr = dest_addr, .context = context };

	return fi_sendmsg(ep, &msg, ep->tx_flags);
}

/* The names that the proposal has for endpoints with an address vector. */
#define fi_sendto fi_send
#define fi_recvfrom fi_recv

static inline ssize_t fi_recvv(struct fid_ep *ep, const struct kvec *iov, void **desc,
			       size_t count, fi_addr_t src_addr, void *context)
{
	struct fi_msg msg = { .vec = kofi_vec_kvec(iov, count), .desc = desc ? *desc : NULL,
			      .addr = src_addr, .context = context };

	return fi_recvmsg(ep, &msg, ep->rx_flags);
}

static inline ssize_t fi_sendv(struct fid_ep *ep, const struct kvec *iov, void **desc,
			       size_t count, fi_addr_t dest_addr, void *context)
{
	struct fi_msg msg = { .vec = kofi_vec_kvec(iov, count), .desc = desc ? *desc : NULL,
			      .addr = dest_addr, .context = context };

	return fi_sendmsg(ep, &msg, ep->tx_flags);
}

static inline ssize_t fi_senddata(struct fid_ep *ep, const void *buf, size_t len, void *desc,
				  u64 data, fi_addr_t dest_addr, void *context)
{
	struct fi_msg msg = { .vec = kofi_vec_buf(buf, len), .desc = desc,
			      .addr = dest_addr, .context = context, .data = data };

	return fi_sendmsg(ep, &msg, ep->tx_flags | FI_REMOTE_CQ_DATA);
}

/* No completion; @buf is free when the call returns. At most inject_size bytes. */
static inline ssize_t fi_inject(struct fid_ep *ep, const void *buf, size_t len,
				fi_addr_t dest_addr)
{
	struct fi_msg msg = { .vec = kofi_vec_buf(buf, len), .addr = dest_addr };

	return fi_sendmsg(ep, &msg, FI_INJECT | KOFI_INJECT_CALL);
}

static inline ssize_t fi_injectdata(struct fid_ep *ep, const void *buf, size_t len, u64 data,
				    fi_addr_t dest_addr)
{
	struct fi_msg msg = { .vec = kofi_vec_buf(buf, len), .addr = dest_addr, .data = data };

	return fi_sendmsg(ep, &msg, FI_INJECT | KOFI_INJECT_CALL | FI_REMOTE_CQ_DATA);
}

/* fi_tagged(3) */
static inline ssize_t fi_trecvmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg, u64 flags)
{
	kofi_data_context();
	return ep->data.tagged->recvmsg(ep, msg, flags);
}

static inline ssize_t fi_tsendmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg, u64 flags)
{
	kofi_data_context();
	return ep->data.tagged->sendmsg(ep, msg, flags);
}

static inline ssize_t fi_trecv(struct fid_ep *ep, void *buf, size_t len, void *desc,
			       fi_addr_t src_addr, u64 tag, u64 ignore, void *context)
{
	struct fi_msg_tagged msg = { .msg = { .vec = kofi_vec_buf(buf, len), .desc = desc,
					      .addr = src_addr, .context = context },
				     .tag = tag, .ignore = ignore };

	return fi_trecvmsg(ep, &msg, ep->rx_flags);
}

static inline ssize_t fi_tsend(struct fid_ep *ep, const void *buf, size_t len, void *desc,
			       fi_addr_t dest_addr, u64 tag, void *context)
{
	struct fi_msg_tagged msg = { .msg = { .vec = kofi_vec_buf(buf, len), .desc = desc,
					      .addr = dest_addr, .context = context },
				     .tag = tag };

	return fi_tsendmsg(ep, &msg, ep->tx_flags);
}

static inline ssize_t fi_tinject(struct fid_ep *ep, const void *buf, size_t len,
				 fi_addr_t dest_addr, u64 tag)
{
	struct fi_msg_tagged msg = { .msg = { .vec = kofi_vec_buf(buf, len),
					      .addr = dest_addr }, .tag = tag };

	return fi_tsendmsg(ep, &msg, FI_INJECT | KOFI_INJECT_CALL);
}

/* fi_rma(3). @addr is the offset in the region that @key names. */
static inline ssize_t fi_readmsg(struct fid_ep *ep, const struct fi_msg_rma *msg, u64 flags)
{
	kofi_data_context();
	return ep->data.rma->readmsg(ep, msg, flags);
}

static inline ssize_t fi_writemsg(struct fid_ep *ep, const struct fi_msg_rma *msg, u64 flags)
{
	kofi_data_context();
	return ep->data.rma->writemsg(ep, msg, flags);
}

static inline ssize_t kofi_rma(struct fid_ep *ep, bool write, struct kofi_vec vec, void *desc,
			       u64 data, fi_addr_t peer, u64 addr, u64 key, void *context,
			       u64 flags)
{
	struct fi_rma_iov target = { .addr = addr, .len = vec.len, .key = key };
	struct fi_msg_rma msg = { .msg = { .vec = vec, .desc = desc, .addr = peer,
					   .context = context, .data = data },
				  .rma_iov = &target, .rma_iov_count = 1 };

	return write ? fi_writemsg(ep, &msg, flags) : fi_readmsg(ep, &msg, flags);
}

static inline ssize_t fi_read(struct fid_ep *ep, void *buf, size_t len, void *desc,
			      fi_addr_t src_addr, u64 addr, u64 key, void *context)
{
	return kofi_rma(ep, false, kofi_vec_buf(buf, len), desc, 0, src_addr, addr, key,
			context, ep->tx_flags);
}

static inline ssize_t fi_readv(struct fid_ep *ep, const struct kvec *iov, void **desc,
			       size_t count, fi_addr_t src_addr, u64 addr, u64 key, void *context)
{
	return kofi_rma(ep, false, kofi_vec_kvec(iov, count), desc ? *desc : NULL, 0, src_addr,
			addr, key, context, ep->tx_flags);
}

static inline ssize_t fi_write(struct fid_ep *ep, const void *buf, size_t len, void *desc,
			       fi_addr_t dest_addr, u64 addr, u64 key, void *context)
{
	return kofi_rma(ep, true, kofi_vec_buf(buf, len), desc, 0, dest_addr, addr, key,
			context, ep->tx_flags);
}

static inline ssize_t fi_writev(struct fid_ep *ep, const struct kvec *iov, void **desc,
				size_t count, fi_addr_t dest_addr, u64 addr, u64 key,
				void *context)
{
	return kofi_rma(ep, true, kofi_vec_kvec(iov, count), desc ? *desc : NULL, 0, dest_addr,
			addr, key, context, ep->tx_flags);
}

static inline ssize_t fi_writedata(struct fid_ep *ep, const void *buf, size_t len, void *desc,
				   u64 data, fi_addr_t dest_addr, u64 addr, u64 key,
				   void *context)
{
	return kofi_rma(ep, true, kofi_vec_buf(buf, len), desc, data, dest_addr, addr, key,
			context, ep->tx_flags | FI_REMOTE_CQ_DATA);
}

static inline ssize_t fi_inject_write(struct fid_ep *ep, const void *buf, size_t len,
				      fi_addr_t dest_addr, u64 addr, u64 key)
{
	return kofi_rma(ep, true, kofi_vec_buf(buf, len), NULL, 0, dest_addr, addr, key, NULL,
			FI_INJECT | KOFI_INJECT_CALL);
}

/* fi_atomic(3) */
static inline size_t fi_datatype_size(enum fi_datatype datatype)
{
	return 1U << (datatype / 2);
}

static inline ssize_t fi_atomicmsg(struct fid_ep *ep, const struct fi_msg_atomic *msg, u64 flags)
{
	kofi_data_context();
	return ep->data.atomic->atomicmsg(ep, msg, flags);
}

static inline ssize_t fi_atomic(struct fid_ep *ep, const void *buf, size_t count, void *desc,
				fi_addr_t dest_addr, u64 addr, u64 key,
				enum fi_datatype datatype, enum fi_op op, void *context)
{
	struct fi_msg_atomic msg = {
		.msg = { .vec = kofi_vec_buf(buf, count * fi_datatype_size(datatype)),
			 .desc = desc, .addr = dest_addr, .context = context },
		.addr = addr, .key = key, .datatype = datatype, .op = op };

	return fi_atomicmsg(ep, &msg, ep->tx_flags);
}

static inline ssize_t fi_fetch_atomic(struct fid_ep *ep, const void *buf, size_t count,
				      void *desc, void *result, void *result_desc,
				      fi_addr_t dest_addr, u64 addr, u64 key,
				      enum fi_datatype datatype, enum fi_op op, void *context)
{
	struct fi_msg_atomic msg = {
		.msg = { .vec = kofi_vec_buf(buf, count * fi_datatype_size(datatype)),
			 .desc = desc, .addr = dest_addr, .context = context },
		.addr = addr, .key = key, .datatype = datatype, .op = op, .result = result };

	return fi_atomicmsg(ep, &msg, ep->tx_flags);
}

static inline ssize_t fi_compare_atomic(struct fid_ep *ep, const void *buf, size_t count,
					void *desc, const void *compare, void *compare_desc,
					void *result, void *result_desc, fi_addr_t dest_addr,
					u64 addr, u64 key, enum fi_datatype datatype,
					enum fi_op op, void *context)
{
	struct fi_msg_atomic msg = {
		.msg = { .vec = kofi_vec_buf(buf, count * fi_datatype_size(datatype)),
			 .desc = desc, .addr = dest_addr, .context = context },
		.addr = addr, .key = key, .datatype = datatype, .op = op,
		.compare = compare, .result = result };

	return fi_atomicmsg(ep, &msg, ep->tx_flags);
}

/*
 * fi_cq(3). @buf: @count entries of the queue's format. -EAGAIN: empty;
 * -FI_EAVAIL: an error is next, fi_cq_readerr() takes it; -FI_EOVERRUN.
 */
static inline ssize_t fi_cq_readfrom(struct fid_cq *cq, void *buf, size_t count,
				     fi_addr_t *src_addr)
{
	kofi_data_context();
	return cq->ops->readfrom(cq, buf, count, src_addr);
}

static inline ssize_t fi_cq_read(struct fid_cq *cq, void *buf, size_t count)
{
	return fi_cq_readfrom(cq, buf, count, NULL);
}

static inline ssize_t fi_cq_readerr(struct fid_cq *cq, struct fi_cq_err_entry *buf, u64 flags)
{
	kofi_data_context();
	return cq->ops->readerr(cq, buf, flags);
}

/* fi_eq(3). Returns the bytes of the event, or as a CQ; -FI_ETOOSMALL. */
static inline ssize_t fi_eq_read(struct fid_eq *eq, u32 *event, void *buf, size_t len, u64 flags)
{
	kofi_data_context();
	return eq->ops->read(eq, event, buf, len, flags);
}

static inline ssize_t fi_eq_readerr(struct fid_eq *eq, struct fi_eq_err_entry *buf, u64 flags)
{
	kofi_data_context();
	return eq->ops->readerr(eq, buf, flags);
}

/* fi_cntr(3) */
static inline u64 fi_cntr_read(struct fid_cntr *cntr)
{
	return cntr->ops->read(cntr);
}

static inline u64 fi_cntr_readerr(struct fid_cntr *cntr)
{
	return cntr->ops->readerr(cntr);
}

static inline int fi_cntr_add(struct fid_cntr *cntr, u64 value)
{
	cntr->ops->add(cntr, value, false);
	return 0;
}

static inline int fi_cntr_adderr(struct fid_cntr *cntr, u64 value)
{
	cntr->ops->add(cntr, value, true);
	return 0;
}

static inline int fi_cntr_set(struct fid_cntr *cntr, u64 value)
{
	cntr->ops->set(cntr, value, false);
	return 0;
}

static inline int fi_cntr_seterr(struct fid_cntr *cntr, u64 value)
{
	cntr->ops->set(cntr, value, true);
	return 0;
}

#endif
