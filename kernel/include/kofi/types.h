/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Constants and plain structures of the fabric interface in the kernel.
 *
 * Names, values and meaning are those of the manual pages fi_getinfo(3),
 * fi_endpoint(3), fi_cq(3), fi_eq(3), fi_mr(3), fi_rma(3) and fi_atomic(3).
 * Where the kernel has a better type for a thing, that type is used: see
 * struct kofi_vec for buffers.
 */
#ifndef _KOFI_TYPES_H
#define _KOFI_TYPES_H

#include <linux/bits.h>
#include <linux/bvec.h>
#include <linux/errno.h>
#include <linux/scatterlist.h>
#include <linux/types.h>
#include <linux/uio.h>

#define FI_MAJOR_VERSION	1
#define FI_MINOR_VERSION	17
#define FI_VERSION(major, minor)	(((u32)(major) << 16) | (u32)(minor))
#define FI_MAJOR(version)	((version) >> 16)
#define FI_MINOR(version)	((version) & 0xffff)

/* fi_errno(3): what the kernel has no errno for. */
enum {
	FI_EOTHER	= 256,
	FI_ETOOSMALL	= 257,
	FI_EOPBADSTATE	= 258,
	FI_EAVAIL	= 259,
	FI_EBADFLAGS	= 260,
	FI_ENOEQ	= 261,
	FI_EDOMAIN	= 262,
	FI_ENOCQ	= 263,
	FI_ECRC		= 264,
	FI_ETRUNC	= 265,
	FI_ENOKEY	= 266,
	FI_ENOAV	= 267,
	FI_EOVERRUN	= 268,
};

/* Capabilities and operation flags. */
#define FI_MSG			BIT_ULL(1)
#define FI_RMA			BIT_ULL(2)
#define FI_TAGGED		BIT_ULL(3)
#define FI_ATOMIC		BIT_ULL(4)
#define FI_READ			BIT_ULL(8)
#define FI_WRITE		BIT_ULL(9)
#define FI_RECV			BIT_ULL(10)
#define FI_SEND			BIT_ULL(11)
#define FI_TRANSMIT		FI_SEND
#define FI_REMOTE_READ		BIT_ULL(12)
#define FI_REMOTE_WRITE		BIT_ULL(13)
#define FI_REMOTE_CQ_DATA	BIT_ULL(17)
#define FI_MORE			BIT_ULL(18)
#define FI_FENCE		BIT_ULL(21)
#define FI_COMPLETION		BIT_ULL(24)
#define FI_INJECT		BIT_ULL(25)
#define FI_INJECT_COMPLETE	BIT_ULL(26)
#define FI_TRANSMIT_COMPLETE	BIT_ULL(27)
#define FI_DELIVERY_COMPLETE	BIT_ULL(28)
#define FI_MATCH_COMPLETE	BIT_ULL(31)
#define FI_LOCAL_COMM		BIT_ULL(51)
#define FI_REMOTE_COMM		BIT_ULL(52)
#define FI_NUMERICHOST		BIT_ULL(55)
#define FI_SOURCE		BIT_ULL(57)
#define FI_DIRECTED_RECV	BIT_ULL(59)
/* Of the inject calls: no entry even in a queue without selective completion. */
#define KOFI_INJECT_CALL	BIT_ULL(63)
/* fi_ep_bind() of a queue */
#define FI_SELECTIVE_COMPLETION	BIT_ULL(59)
/* fi_fetch_atomicmsg(), fi_compare_atomicmsg(): fi_atomicvalid() */
#define FI_FETCH_ATOMIC		BIT_ULL(58)
#define FI_COMPARE_ATOMIC	BIT_ULL(59)

/* mr_mode. Addresses in RMA are always offsets from the begin of a region. */
#define FI_MR_LOCAL		BIT(2)
#define FI_MR_PROV_KEY		BIT(6)

/* Message order. */
#define FI_ORDER_RAR		BIT_ULL(0)
#define FI_ORDER_RAW		BIT_ULL(1)
#define FI_ORDER_WAR		BIT_ULL(3)
#define FI_ORDER_WAW		BIT_ULL(4)
#define FI_ORDER_SAS		BIT_ULL(8)

#define FI_PROV_SPECIFIC	BIT(31)

typedef u64 fi_addr_t;
#define FI_ADDR_UNSPEC		(~0ULL)
#define FI_ADDR_NOTAVAIL	(~0ULL)
#define FI_KEY_NOTAVAIL		(~0ULL)
#define FI_NAME_MAX		64

enum fi_class {
	FI_CLASS_UNSPEC,
	FI_CLASS_FABRIC,
	FI_CLASS_DOMAIN,
	FI_CLASS_EP,
	FI_CLASS_PEP,
	FI_CLASS_AV,
	FI_CLASS_MR,
	FI_CLASS_EQ,
	FI_CLASS_CQ,
	FI_CLASS_CNTR,
	FI_CLASS_CONNREQ,
	FI_CLASS_COUNT,
};

enum fi_ep_type { FI_EP_UNSPEC, FI_EP_MSG, FI_EP_DGRAM, FI_EP_RDM };
enum fi_av_type { FI_AV_UNSPEC, FI_AV_MAP, FI_AV_TABLE };
enum fi_threading { FI_THREAD_UNSPEC, FI_THREAD_SAFE };
enum fi_progress { FI_PROGRESS_UNSPEC, FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL };
enum fi_resource_mgmt { FI_RM_UNSPEC, FI_RM_DISABLED, FI_RM_ENABLED };

enum {
	FI_FORMAT_UNSPEC,
	FI_SOCKADDR,		/* struct sockaddr_in or sockaddr_in6 */
	FI_SOCKADDR_IN,		/* struct sockaddr_in */
	FI_SOCKADDR_IN6,	/* struct sockaddr_in6 */
};

enum {
	FI_PROTO_UNSPEC,
	FI_PROTO_RDMA_CM_IB_RC = 1,
	FI_PROTO_SOCK_TCP = 6,
	FI_PROTO_SHM = 16,
};

enum fi_datatype {
	FI_INT8, FI_UINT8, FI_INT16, FI_UINT16,
	FI_INT32, FI_UINT32, FI_INT64, FI_UINT64,
	FI_DATATYPE_LAST,	/* the kernel computes no floating point */
};

enum fi_op {
	FI_MIN, FI_MAX, FI_SUM, FI_PROD, FI_LOR, FI_LAND, FI_BOR, FI_BAND,
	FI_LXOR, FI_BXOR, FI_ATOMIC_READ, FI_ATOMIC_WRITE, FI_CSWAP,
	FI_CSWAP_NE, FI_CSWAP_LE, FI_CSWAP_LT, FI_CSWAP_GE, FI_CSWAP_GT,
	FI_MSWAP, FI_ATOMIC_OP_LAST,
};

/*
 * A buffer of an operation or of a memory region: plain kernel memory, or an
 * array of kvecs, bio_vecs or scatterlist entries (these not mapped for DMA).
 * The memory and the array belong to the provider until the operation has
 * completed or the region is closed; of an inject only until the call returns.
 * @offset bytes at the begin of the array are left out, @len bytes follow.
 */
enum kofi_vec_type { KOFI_BUF, KOFI_KVEC, KOFI_BVEC, KOFI_SG };

struct kofi_vec {
	u8			type;		/* enum kofi_vec_type */
	u32			count;		/* entries of the array */
	size_t			offset;
	size_t			len;
	union {
		void			*buf;
		const struct kvec	*kvec;
		const struct bio_vec	*bvec;
		struct scatterlist	*sg;
	};
};

static inline struct kofi_vec kofi_vec_buf(const void *buf, size_t len)
{
	return (struct kofi_vec){ .type = KOFI_BUF, .count = 1, .len = len,
				  .buf = (void *)buf };
}

static inline struct kofi_vec kofi_vec_kvec(const struct kvec *kvec, u32 count)
{
	struct kofi_vec vec = { .type = KOFI_KVEC, .count = count, .kvec = kvec };

	while (count--)
		vec.len += kvec++->iov_len;
	return vec;
}

/* @len bytes behind the first @offset ones. */
static inline struct kofi_vec kofi_vec_bvec(const struct bio_vec *bvec, u32 count,
					    size_t offset, size_t len)
{
	return (struct kofi_vec){ .type = KOFI_BVEC, .count = count,
				  .offset = offset, .len = len, .bvec = bvec };
}

static inline struct kofi_vec kofi_vec_sg(struct scatterlist *sg, u32 count,
					  size_t offset, size_t len)
{
	return (struct kofi_vec){ .type = KOFI_SG, .count = count,
				  .offset = offset, .len = len, .sg = sg };
}

/* fi_getinfo(3). Names are arrays here; the attributes are never NULL. */
struct fi_tx_attr {
	u64	caps;
	u64	mode;
	u64	op_flags;
	u64	msg_order;
	u64	comp_order;
	size_t	inject_size;
	size_t	size;
	size_t	iov_limit;
	size_t	rma_iov_limit;
};

struct fi_rx_attr {
	u64	caps;
	u64	mode;
	u64	op_flags;
	u64	msg_order;
	u64	comp_order;
	size_t	total_buffered_recv;
	size_t	size;
	size_t	iov_limit;
};

struct fi_ep_attr {
	enum fi_ep_type	type;
	u32		protocol;
	u32		protocol_version;
	size_t		max_msg_size;
	u64		mem_tag_format;
};

struct fi_domain_attr {
	char			name[FI_NAME_MAX];
	enum fi_threading	threading;
	enum fi_progress	control_progress;
	enum fi_progress	data_progress;
	enum fi_resource_mgmt	resource_mgmt;
	enum fi_av_type		av_type;
	int			mr_mode;
	size_t			mr_key_size;
	size_t			cq_data_size;
};

struct fi_fabric_attr {
	char	name[FI_NAME_MAX];
	char	prov_name[FI_NAME_MAX];
	u32	prov_version;
	u32	api_version;
};

struct fid;

struct fi_info {
	struct fi_info		*next;
	u64			caps;
	u64			mode;
	u32			addr_format;
	size_t			src_addrlen;
	size_t			dest_addrlen;
	void			*src_addr;	/* owned by the fi_info */
	void			*dest_addr;	/* likewise */
	struct fid		*handle;	/* FI_CONNREQ: of the passive endpoint */
	struct fi_tx_attr	*tx_attr;
	struct fi_rx_attr	*rx_attr;
	struct fi_ep_attr	*ep_attr;
	struct fi_domain_attr	*domain_attr;
	struct fi_fabric_attr	*fabric_attr;
};

/* fi_cq(3) */
enum fi_cq_format {
	FI_CQ_FORMAT_UNSPEC,
	FI_CQ_FORMAT_CONTEXT,
	FI_CQ_FORMAT_MSG,
	FI_CQ_FORMAT_DATA,
	FI_CQ_FORMAT_TAGGED,
};

struct fi_cq_entry {
	void	*op_context;
};

struct fi_cq_msg_entry {
	void	*op_context;
	u64	flags;
	size_t	len;
};

struct fi_cq_data_entry {
	void	*op_context;
	u64	flags;
	size_t	len;
	void	*buf;
	u64	data;
};

struct fi_cq_tagged_entry {
	void	*op_context;
	u64	flags;
	size_t	len;
	void	*buf;
	u64	data;
	u64	tag;
};

struct fi_cq_err_entry {
	void	*op_context;
	u64	flags;
	size_t	len;
	void	*buf;
	u64	data;
	u64	tag;
	size_t	olen;
	int	err;		/* positive */
	int	prov_errno;
};

struct fid_cq;
struct fid_eq;
struct fid_cntr;

/*
 * @handler is called when an entry came into an empty queue; it reads until
 * -EAGAIN. It runs in process context on a workqueue, may sleep, is never
 * called from within a call of the client and never twice at a time for one
 * queue. fi_close() of the queue waits for it (so it cannot close the queue).
 */
struct fi_cq_attr {
	size_t			size;		/* entries; 0: 1024 */
	enum fi_cq_format	format;		/* UNSPEC: TAGGED */
	void			(*handler)(struct fid_cq *cq, void *context);
	bool			noio;		/* its allocations start no I/O */
};

/* fi_eq(3) */
enum fi_eq_event { FI_NOTIFY, FI_CONNREQ, FI_CONNECTED, FI_SHUTDOWN };

struct fi_eq_attr {
	size_t	size;			/* events; 0: 1024 */
	void	(*handler)(struct fid_eq *eq, void *context);	/* as of a CQ */
};

struct fi_eq_entry {
	struct fid	*fid;
	void		*context;
	u64		data;
};

struct fi_eq_cm_entry {
	struct fid	*fid;
	struct fi_info	*info;		/* FI_CONNREQ: the reader frees it */
	u8		data[];
};

struct fi_eq_err_entry {
	struct fid	*fid;
	void		*context;
	u64		data;
	int		err;		/* positive */
	int		prov_errno;
	size_t		err_data_size;	/* in: room in err_data; out: bytes there */
	void		*err_data;	/* buffer of the caller, or NULL */
};

/* fi_cntr(3) */
struct fi_cntr_attr {
	void	(*handler)(struct fid_cntr *cntr, void *context);
};

/* fi_av(3) */
struct fi_av_attr {
	enum fi_av_type	type;		/* both are tables */
	size_t		count;
};

/* fi_mr(3) */
struct fi_mr_attr {
	struct kofi_vec	vec;
	u64		access;
	u64		requested_key;
	void		*context;
};

/* fi_rma(3) */
struct fi_rma_iov {
	u64	addr;		/* offset in the region */
	size_t	len;
	u64	key;
};

struct fi_msg {
	struct kofi_vec	vec;
	void		*desc;
	fi_addr_t	addr;
	void		*context;
	u64		data;
};

struct fi_msg_tagged {
	struct fi_msg	msg;
	u64		tag;
	u64		ignore;
};

struct fi_msg_rma {
	struct fi_msg			msg;
	const struct fi_rma_iov		*rma_iov;	/* until the call returns */
	size_t				rma_iov_count;
};

/* fi_atomic(3). Operands are arrays of @datatype. */
struct fi_msg_atomic {
	struct fi_msg	msg;		/* the operand */
	u64		addr;		/* of the target */
	u64		key;
	enum fi_datatype datatype;
	enum fi_op	op;
	const void	*compare;	/* until the call returns; or NULL */
	void		*result;	/* until completion; or NULL */
};

/* Why, in words, of prov_errno: what all providers share. */
enum kofi_prov_errno {
	KOFI_PE_NONE,
	KOFI_PE_CLOSED,		/* the peer closed its endpoint */
	KOFI_PE_DIED,		/* the connection broke */
	KOFI_PE_MISBEHAVED,	/* the peer breaks the protocol */
	KOFI_PE_REFUSED,	/* nobody listens */
	KOFI_PE_REJECTED,	/* fi_reject() */
	KOFI_PE_FOREIGN,	/* another protocol or version is there */
	KOFI_PE_TIMED_OUT,
	KOFI_PE_UNREACHABLE,
	KOFI_PE_LOCAL,		/* this endpoint was shut down or closed */
	KOFI_PE_REMOTE_KEY,
	KOFI_PE_REMOTE_ACCESS,
	KOFI_PE_COUNT,
};

#endif
