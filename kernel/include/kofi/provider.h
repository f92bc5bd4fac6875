/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a provider needs: registration, and the parts that providers share.
 * kernel/kofi_loop is the smallest example.
 */
#ifndef _KOFI_PROVIDER_H
#define _KOFI_PROVIDER_H

#include <kofi/data.h>
#include <linux/completion.h>
#include <linux/highmem.h>
#include <linux/module.h>

struct kofi_provider {
	const char	*name;		/* unique, without ';' */
	u32		version;
	struct module	*owner;
	/*
	 * A layer over other providers: its offers carry their prov_name already,
	 * "LOWER;NAME", and it opens what is below it by the calls of clients. In
	 * getinfo() it has to refuse what it asks for itself.
	 */
	bool		layer;
	/*
	 * Offers in *info, a list; the core drops what does not fit the hints.
	 * -ENODATA or NULL: none. Process.
	 */
	int (*getinfo)(const char *node, const char *service, u64 flags,
		       const struct fi_info *hints, struct fi_info **info);
	/* NULL: the core makes one that has nothing but these operations. */
	int (*fabric)(const struct fi_fabric_attr *attr, struct fid_fabric **fabric);
	const struct fi_ops_fabric	*fabric_ops;
};

/*
 * @version: KOFI_PROVIDER_VERSION that the provider was compiled with. -EPROTO:
 * another one; -EEXIST: the name is taken; -ENOSPC: too many. Process.
 */
#define KOFI_PROVIDER_VERSION FI_VERSION(1, 0)
int kofi_provider_register(u32 version, struct kofi_provider *provider);

/*
 * -EBUSY while an object of the provider is open: then it stays registered and
 * usable. Otherwise no call reaches it any more when this returns; calls of
 * getinfo that run are waited for. From module_exit() it is never refused, for
 * each open object holds the module. Process.
 */
int kofi_provider_deregister(struct kofi_provider *provider);

/* All of a module that is a provider and nothing else. */
#define module_kofi_provider(provider)						\
	static int __init provider##_init(void)					\
	{									\
		return kofi_provider_register(KOFI_PROVIDER_VERSION, &(provider));	\
	}									\
	static void __exit provider##_exit(void)				\
	{									\
		WARN_ON(kofi_provider_deregister(&(provider)));			\
	}									\
	module_init(provider##_init);						\
	module_exit(provider##_exit)

/* What a provider offers: keys of 8 bytes, automatic progress. */
struct kofi_offer {
	const char	*name;		/* of the domain */
	const char	*fabric;	/* NULL: name */
	u64		caps, order;
	u32		addr_format, addrlen, protocol;
	size_t		inject_size, size, rma_iov_limit, max_msg_size, buffered;
	size_t		iov_limit;	/* 0: any */
	size_t		cq_data_size;	/* 0: 8 */
	int		mr_mode;
};

/* An fi_info with copies of two addresses (or NULL). Process. */
struct fi_info *kofi_offer_new(const struct kofi_offer *offer, enum fi_ep_type type,
			       const void *src, const void *dest);

/*
 * The offers of a provider whose addresses are IPv4 and IPv6 ones: what
 * fi_getinfo() was asked, and whether an endpoint of @of can have a source
 * address (NULL: any). Process.
 */
struct kofi_ip_query {
	const char		*node, *service;
	u64			flags;
	const struct fi_info	*hints;
	bool			(*serves)(const void *of, const void *src);
	const void		*of;
};

/*
 * Appends an offer for each family that is meant, behind *tail; addr_format and
 * addrlen of @offer are filled in. -ENODATA, or -ENOMEM: there may be some.
 */
int kofi_ip_offers(const struct kofi_offer *offer, const struct kofi_ip_query *query,
		   struct fi_info ***tail);
/* Bytes of a struct sockaddr_in or sockaddr_in6; 0: another family. Any. */
size_t kofi_ip_len(const void *addr);
/* kofi_give_name() of such an address. */
int kofi_give_ip_name(const void *name, void *addr, size_t *len);

/* fi_getname(3): as much of a name as there is room for, and its length. */
int kofi_give_name(const void *name, size_t name_len, void *addr, size_t *len);

/* --- memory --- */

/*
 * Copies @len bytes; offsets are relative to the vectors (behind vec.offset).
 * Returns the bytes copied: less where a vector ends. Any.
 */
size_t kofi_copy(const struct kofi_vec *to, size_t to_offset, const struct kofi_vec *from,
		 size_t from_offset, size_t len);

/*
 * Goes over the pieces of a vector: contiguous kernel memory (addr), or a part
 * of one page (page, offset). Any.
 */
struct kofi_piece {
	void		*addr;		/* NULL: page and offset */
	struct page	*page;
	size_t		offset;
	size_t		len;
};

struct kofi_iter {
	const struct kofi_vec	*vec;
	struct scatterlist	*sg;
	u32			index;
	size_t			skip;	/* bytes of the current entry */
	size_t			left;
};

void kofi_iter_init(struct kofi_iter *iter, const struct kofi_vec *vec, size_t offset);
/* The next piece, of at most @max bytes; false at the end. */
bool kofi_iter_next(struct kofi_iter *iter, struct kofi_piece *piece, size_t max);

static inline void *kofi_piece_map(const struct kofi_piece *piece)
{
	return piece->addr ?: kmap_local_page(piece->page) + piece->offset;
}

static inline void kofi_piece_unmap(const struct kofi_piece *piece, void *mapped)
{
	if (!piece->addr)
		kunmap_local(mapped);
}

/* Whether the array has offset + len bytes. Any. */
bool kofi_vec_valid(const struct kofi_vec *vec);

/*
 * A region of the core's table that grants @access to @len bytes at @addr, held
 * until kofi_mr_put(). -EKEYREJECTED, -EACCES. Any.
 */
struct kofi_mr {
	struct fid_mr		mr;
	struct kofi_vec		vec;
	u64			access;
	atomic_t		pins;
	struct completion	unused;
};

struct kofi_mr *kofi_mr_get(struct fid_domain *domain, u64 key, u64 addr, size_t len, u64 access);
void kofi_mr_put(struct kofi_mr *mr);

#define KOFI_ATOMIC_BYTES_MAX 4096	/* of the operand of one operation */

/* Whether kofi_atomic() has it. */
bool kofi_atomic_valid(enum fi_datatype datatype, enum fi_op op, bool fetch, bool compare);
/*
 * @count elements at @addr of @mr, which is pinned and checked. Atomic with all
 * other accesses of the processors. -EINVAL: not aligned. Any.
 */
int kofi_atomic(struct kofi_mr *mr, u64 addr, enum fi_datatype datatype, enum fi_op op,
		const void *operand, const void *compare, void *result, size_t count);

/* --- what is posted; any --- */

/* What no provider takes: 0, or the errno of the call. */
int kofi_check_msg(const struct fi_msg *msg, u64 flags, size_t inject_max);
int kofi_check_rma(const struct fi_msg_rma *msg, u64 flags, size_t inject_max);
int kofi_check_atomic(const struct fi_msg_atomic *msg, u64 flags);

/*
 * The four calls of messages, as @name_msg and @name_tagged, from one function:
 * ssize_t post(ep, msg, tagged, tag, ignore, flags, send).
 */
#define KOFI_MESSAGE_CALLS(name, post)							\
	static ssize_t name##_recvmsg(struct fid_ep *ep, const struct fi_msg *msg, u64 flags)	\
	{										\
		return post(ep, msg, false, 0, 0, flags, false);			\
	}										\
	static ssize_t name##_sendmsg(struct fid_ep *ep, const struct fi_msg *msg, u64 flags)	\
	{										\
		return post(ep, msg, false, 0, 0, flags, true);				\
	}										\
	static ssize_t name##_trecvmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg,	\
				       u64 flags)					\
	{										\
		return post(ep, &msg->msg, true, msg->tag, msg->ignore, flags, false);	\
	}										\
	static ssize_t name##_tsendmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg,	\
				       u64 flags)					\
	{										\
		return post(ep, &msg->msg, true, msg->tag, 0, flags, true);		\
	}										\
	static const struct fi_ops_msg name##_msg = { name##_recvmsg, name##_sendmsg };	\
	static const struct fi_ops_tagged name##_tagged = { name##_trecvmsg, name##_tsendmsg }

/* Likewise of RMA, as @name_rma: ssize_t post(ep, msg, flags, write). */
#define KOFI_RMA_CALLS(name, post)							\
	static ssize_t name##_readmsg(struct fid_ep *ep, const struct fi_msg_rma *msg, u64 flags) \
	{										\
		return post(ep, msg, flags & ~(FI_INJECT | FI_REMOTE_CQ_DATA), false);	\
	}										\
	static ssize_t name##_writemsg(struct fid_ep *ep, const struct fi_msg_rma *msg, u64 flags) \
	{										\
		return post(ep, msg, flags, true);					\
	}										\
	static const struct fi_ops_rma name##_rma = { name##_readmsg, name##_writemsg }

/* --- completions --- */

/*
 * Every operation reserves an entry of its queue when it is posted, so that a
 * completion always finds room: -EAGAIN is for the caller. NULL is accepted.
 * Any, as all of the following.
 */
int kofi_cq_reserve(struct fid_cq *cq);
void kofi_cq_unreserve(struct fid_cq *cq);

struct kofi_completion {
	struct fi_cq_tagged_entry	entry;
	fi_addr_t			src;
	size_t				olen;
	int				err;		/* positive */
	int				prov_errno;
	bool				silent;		/* no entry unless err */
	bool				unreserved;	/* nothing was reserved for it */
};

/* Ends an operation: entry, counter and statistics. @kind of KOFI_CNTR_*. */
void kofi_complete(struct fid_ep *ep, int kind, const struct kofi_completion *completion);

/*
 * One-sided operations: the initiator's completion (@status: a negative errno),
 * and what the target sees of one (its counter; an entry when data came along).
 * @kind: FI_RMA or FI_ATOMIC; @flags of the operation.
 */
void kofi_complete_rma(struct fid_ep *ep, u64 kind, bool write, const struct fi_msg *msg,
		       int status, u64 flags);
void kofi_complete_remote(struct fid_ep *ep, u64 kind, bool write, size_t len, u64 flags,
			  u64 data);

/*
 * One-sided operations whose target @to is an endpoint of this machine with
 * regions of the core's table: done, and complete at both sides, when they
 * return 0; else the errno of the call.
 */
ssize_t kofi_rma_here(struct fid_ep *ep, struct fid_ep *to, const struct fi_msg_rma *msg,
		      u64 flags, bool write, size_t inject_max);
ssize_t kofi_atomic_here(struct fid_ep *ep, struct fid_ep *to, const struct fi_msg_atomic *msg,
			 u64 flags);

/*
 * Who works on an endpoint that another thread may close holds it. A provider
 * with such endpoints calls kofi_ep_init() before others can find one, and
 * kofi_ep_wait() before its memory goes.
 */
static inline void kofi_ep_init(struct fid_ep *ep, struct fid_domain *domain,
				const struct fi_info *info)
{
	ep->fid.parent = &domain->fid;
	ep->type = info->ep_attr->type;
	refcount_set(&ep->held, 1);
	init_completion(&ep->unused);
}

static inline void kofi_ep_get(struct fid_ep *ep)
{
	refcount_inc(&ep->held);
}

static inline void kofi_ep_put(struct fid_ep *ep)
{
	if (refcount_dec_and_test(&ep->held))
		complete(&ep->unused);
}

static inline void kofi_ep_wait(struct fid_ep *ep)
{
	kofi_ep_put(ep);	/* its own */
	wait_for_completion(&ep->unused);
}

/* What an endpoint may have posted, of its attributes: @usual of a size of 0, at most @max. */
static inline void kofi_ep_sizes(struct fid_ep *ep, const struct fi_info *info, int usual, int max)
{
	ep->posted_max[false] = min_t(size_t, info->rx_attr->size ?: usual, max);
	ep->posted_max[true] = min_t(size_t, info->tx_attr->size ?: usual, max);
}

/*
 * An operation that waits for its end, at the begin of a provider's own struct
 * of @size bytes. What is wrong with every operation is refused, and what is
 * more than the endpoint may have posted (kofi_ep_sizes()); its entry is reserved, what
 * FI_INJECT sends is copied, the completion is filled in.
 * @kind: KOFI_CNTR_*; @what: FI_SEND or FI_RECV, FI_MSG or FI_TAGGED, ... The
 * errno of the call as ERR_PTR.
 */
struct kofi_op {
	struct list_head	node;	/* the provider's */
	struct fid_ep		*ep;
	int			kind;
	struct kofi_vec		vec;
	struct kofi_completion	done;
};

struct kofi_op *kofi_op_new(struct fid_ep *ep, int kind, size_t size, const struct fi_msg *msg,
			    u64 tag, u64 what, u64 flags, size_t inject_max);
void kofi_op_refuse(struct kofi_op *op);	/* it was not posted */
void kofi_op_end(struct kofi_op *op, int err, int reason);
/* A message of this machine and its receive: what was sent is there; neither has ended. */
void kofi_op_meet(struct kofi_op *send, struct kofi_op *recv);

/* Whether an operation with these flags wants an entry. */
static inline bool kofi_wants_entry(const struct fid_ep *ep, bool tx, u64 flags)
{
	return !(flags & KOFI_INJECT_CALL) &&
	       (!(tx ? ep->tx_selective : ep->rx_selective) || (flags & FI_COMPLETION));
}

static inline struct fid_cq *kofi_cq_of(struct fid_ep *ep, int kind)
{
	return kind == KOFI_CNTR_RECV || kind >= KOFI_CNTR_REMOTE_READ ? ep->rx_cq : ep->tx_cq;
}

/* --- connection requests; process --- */

/* A request that its client has not answered: fi_info.handle is &request->fid. */
struct kofi_request {
	struct fid		fid;
	struct list_head	node;
	struct fid_pep		*pep;
};

/* Writes FI_CONNREQ with @info (NULL: -ENOMEM). On failure nobody has the request. */
int kofi_request_offer(struct kofi_request *request, struct fid_pep *pep, struct fi_info *info,
		       const void *data, size_t len);
/*
 * Whoever gets it answers it. @of: a passive endpoint that offered it (@handle
 * NULL: any of its requests), or an endpoint of the same provider that @handle
 * was given to. NULL: there is none, or somebody else has it.
 */
struct kofi_request *kofi_request_take(const struct fid *handle, const struct fid *of);

/* --- events; process --- */

/* @data: of a peer; at most @len bytes follow the entry. @info goes to the reader. */
int kofi_eq_write_cm(struct fid_eq *eq, u32 event, struct fid *fid, struct fi_info *info,
		     const void *data, size_t len);
int kofi_eq_write_err(struct fid_eq *eq, struct fid *fid, int err, int prov_errno,
		      const void *data, size_t len);
/* The bytes of an address of the core's AV; NULL: no such. Valid in the RCU section. */
const void *kofi_av_get(struct fid_av *av, fi_addr_t addr);

/* An fi_info with copies of two addresses (or NULL). Process. */
struct fi_info *kofi_info_new(const struct fi_info *model, const void *src, size_t src_len,
			      const void *dest, size_t dest_len);

#endif
