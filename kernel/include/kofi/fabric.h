/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Objects of the fabric interface in the kernel and the calls that make, join
 * and end them. The data calls are in <kofi/data.h>; docs/kofi.md has the
 * whole flow.
 *
 * Contexts. "Process": the call may sleep and checks that with might_sleep().
 * "Any": process or softirq context with interrupts enabled, never sleeps.
 *
 * Life. An object holds a reference on its parent (endpoint, AV, MR, CQ and
 * counter on the domain; domain, EQ and passive endpoint on the fabric), on
 * all that is bound to it, on its provider and on the provider's module.
 * fi_close() of an object that others hold is -EBUSY. No call may run on an
 * object while fi_close() of the same object runs.
 *
 * All calls return 0 or a negative errno, or FI_E* of <kofi/types.h>.
 */
#ifndef _KOFI_FABRIC_H
#define _KOFI_FABRIC_H

#include <kofi/types.h>
#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/list.h>
#include <linux/refcount.h>
#include <linux/wait.h>

struct kofi_registration;
struct fid_fabric;
struct fid_domain;
struct fid_ep;
struct fid_pep;
struct fid_mr;
struct fid_av;

struct fi_ops {
	/* Frees the object. Process. Waits until no completion of it is written. */
	void	(*close)(struct fid *fid);
};

/* The common begin of every object. Below the line: the core's own. */
struct fid {
	enum fi_class			fclass;
	void				*context;
	const struct fi_ops		*ops;
	/* --- */
	struct fid			*parent;
	struct kofi_registration	*reg;
	struct list_head		node;
	atomic_t			users;	/* negative: being closed */
	u32				id;
};

struct fi_ops_domain;

struct fi_ops_fabric {
	/* NULL: the core makes one that has nothing but these operations. */
	int (*domain)(struct fid_fabric *fabric, const struct fi_info *info,
		      struct fid_domain **domain);
	const struct fi_ops_domain	*domain_ops;
	size_t				addrlen;	/* as fid_domain's */
	/* NULL: no connected endpoints */
	int (*passive_ep)(struct fid_fabric *fabric, const struct fi_info *info,
			  struct fid_pep **pep);
};

struct fid_fabric {
	struct fid			fid;
	const struct fi_ops_fabric	*ops;
};

struct fi_ops_domain {
	int (*endpoint)(struct fid_domain *domain, const struct fi_info *info,
			struct fid_ep **ep);
	/* NULL, each: the core's. kofi_complete() is for queues of the core. */
	int (*cq_open)(struct fid_domain *domain, const struct fi_cq_attr *attr,
		       struct fid_cq **cq);
	int (*mr_regattr)(struct fid_domain *domain, const struct fi_mr_attr *attr,
			  u64 flags, struct fid_mr **mr);
};

struct kofi_mr_table;

struct fid_domain {
	struct fid			fid;
	const struct fi_ops_domain	*ops;
	size_t				addrlen;	/* of an AV; 0: no AV */
	struct kofi_mr_table		*mrs;		/* the core's */
};

struct fi_ops_eq {
	ssize_t (*read)(struct fid_eq *eq, u32 *event, void *buf, size_t len, u64 flags);
	ssize_t (*readerr)(struct fid_eq *eq, struct fi_eq_err_entry *buf, u64 flags);
};

struct fid_eq {
	struct fid		fid;
	const struct fi_ops_eq	*ops;
	wait_queue_head_t	wait;
};

struct fi_ops_cq {
	ssize_t (*readfrom)(struct fid_cq *cq, void *buf, size_t count, fi_addr_t *src);
	ssize_t (*readerr)(struct fid_cq *cq, struct fi_cq_err_entry *buf, u64 flags);
};

struct fid_cq {
	struct fid		fid;
	const struct fi_ops_cq	*ops;
	wait_queue_head_t	wait;
	atomic_t		signalled;
};

struct fi_ops_cntr {
	u64	(*read)(struct fid_cntr *cntr);
	u64	(*readerr)(struct fid_cntr *cntr);
	void	(*add)(struct fid_cntr *cntr, u64 value, bool error);
	void	(*set)(struct fid_cntr *cntr, u64 value, bool error);
};

struct fid_cntr {
	struct fid			fid;
	const struct fi_ops_cntr	*ops;
	wait_queue_head_t		wait;
};

struct fid_av {
	struct fid	fid;
};

struct fid_mr {
	struct fid	fid;
	void		*desc;
	u64		key;
};

/* Data operations of an endpoint: <kofi/data.h> fills the messages. Any. */
struct fi_ops_msg {
	ssize_t (*recvmsg)(struct fid_ep *ep, const struct fi_msg *msg, u64 flags);
	ssize_t (*sendmsg)(struct fid_ep *ep, const struct fi_msg *msg, u64 flags);
};

struct fi_ops_tagged {
	ssize_t (*recvmsg)(struct fid_ep *ep, const struct fi_msg_tagged *msg, u64 flags);
	ssize_t (*sendmsg)(struct fid_ep *ep, const struct fi_msg_tagged *msg, u64 flags);
};

struct fi_ops_rma {
	ssize_t (*readmsg)(struct fid_ep *ep, const struct fi_msg_rma *msg, u64 flags);
	ssize_t (*writemsg)(struct fid_ep *ep, const struct fi_msg_rma *msg, u64 flags);
};

struct fi_ops_atomic {
	/* compare and result say which of the three forms it is */
	ssize_t (*atomicmsg)(struct fid_ep *ep, const struct fi_msg_atomic *msg, u64 flags);
	/* Elements at most; 0: there is no such operation. NULL: those of kofi_atomic(). */
	size_t	(*valid)(enum fi_datatype datatype, enum fi_op op, bool fetch, bool compare);
};

/* Process. */
struct fi_ops_ep {
	int	(*enable)(struct fid_ep *ep);
	/* Ends a posted operation with ECANCELED; its error entry follows. */
	ssize_t	(*cancel)(struct fid_ep *ep, void *context);
};

/* Process. NULL entries: -ENOSYS. Of RDM endpoints only getname is called. */
struct fi_ops_cm {
	size_t	param_max;	/* of param: more is -EINVAL; 0: they look themselves */
	int (*connect)(struct fid_ep *ep, const void *addr, const void *param, size_t len);
	int (*accept)(struct fid_ep *ep, const void *param, size_t len);
	int (*shutdown)(struct fid_ep *ep, u64 flags);
	int (*getname)(struct fid *fid, void *addr, size_t *len);	/* ep and pep */
	int (*getpeer)(struct fid_ep *ep, void *addr, size_t *len);
};

struct fi_ops_pep {
	size_t	param_max;	/* of reject, likewise */
	int (*listen)(struct fid_pep *pep);	/* NULL: nothing to do */
	int (*reject)(struct fid_pep *pep, struct fid *handle, const void *param, size_t len);
	int (*getname)(struct fid *fid, void *addr, size_t *len);
};

struct fid_pep {
	struct fid			fid;
	const struct fi_ops_pep		*ops;
	/* --- the core's, for the provider to read --- */
	struct fid_eq			*eq;
	struct fi_info			*info;	/* a copy of what it was opened with */
	bool				listening;
};

enum {
	KOFI_CNTR_SEND, KOFI_CNTR_RECV, KOFI_CNTR_READ, KOFI_CNTR_WRITE,
	KOFI_CNTR_REMOTE_READ, KOFI_CNTR_REMOTE_WRITE, KOFI_CNTR_COUNT
};

struct kofi_ep_ops {
	const struct fi_ops_msg		*msg;
	const struct fi_ops_tagged	*tagged;
	const struct fi_ops_rma		*rma;
	const struct fi_ops_atomic	*atomic;
};

struct fid_ep {
	struct fid			fid;
	/* Before fi_enable() these answer -FI_EOPBADSTATE. */
	struct kofi_ep_ops		data;
	u64				tx_flags;	/* op_flags */
	u64				rx_flags;
	/* What is bound. */
	struct fid_cq			*tx_cq;
	struct fid_cq			*rx_cq;
	struct fid_eq			*eq;
	struct fid_av			*av;
	struct fid_cntr			*cntr[KOFI_CNTR_COUNT];
	bool				tx_selective;
	bool				rx_selective;
	bool				enabled;
	enum fi_ep_type			type;
	const struct fi_ops_ep		*ops;
	const struct fi_ops_cm		*cm;
	/* --- the core's own --- */
	struct kofi_ep_ops		provided;
	atomic_t			posted[2];	/* kofi_op that are: receives, others */
	int				posted_max[2];	/* of these */
	refcount_t			held;		/* kofi_ep_get() */
	struct completion		unused;
	atomic64_t			tx_count, tx_bytes, rx_count, rx_bytes, errors;
};

/*
 * fi_getinfo(3): the offers of all providers that fit @hints, as a list that
 * fi_freeinfo() frees; -ENODATA when there is none. @version is the client's
 * FI_VERSION(); @node and @service as of user space, or NULL; flags FI_SOURCE
 * and FI_NUMERICHOST (names are never resolved). Process; no lock of the core
 * is held while a provider answers.
 */
int fi_getinfo(u32 version, const char *node, const char *service, u64 flags,
	       const struct fi_info *hints, struct fi_info **info);
void fi_freeinfo(struct fi_info *info);			/* Any. */
struct fi_info *fi_dupinfo(const struct fi_info *info);	/* Process. NULL: a new one. */
#define fi_allocinfo() fi_dupinfo(NULL)

/* Process, all of these. @attr of info->fabric_attr: prov_name selects. */
int fi_fabric(const struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
int fi_domain(struct fid_fabric *fabric, const struct fi_info *info,
	      struct fid_domain **domain, void *context);
int fi_endpoint(struct fid_domain *domain, const struct fi_info *info,
		struct fid_ep **ep, void *context);
int fi_passive_ep(struct fid_fabric *fabric, const struct fi_info *info,
		  struct fid_pep **pep, void *context);
int fi_eq_open(struct fid_fabric *fabric, const struct fi_eq_attr *attr,
	       struct fid_eq **eq, void *context);
int fi_cq_open(struct fid_domain *domain, const struct fi_cq_attr *attr,
	       struct fid_cq **cq, void *context);
int fi_cntr_open(struct fid_domain *domain, const struct fi_cntr_attr *attr,
		 struct fid_cntr **cntr, void *context);
int fi_av_open(struct fid_domain *domain, const struct fi_av_attr *attr,
	       struct fid_av **av, void *context);

/*
 * fi_mr(3). @access of FI_SEND, FI_RECV, FI_READ, FI_WRITE, FI_REMOTE_READ and
 * FI_REMOTE_WRITE. Process. fi_close() waits until no peer's operation uses
 * the memory. -ENOKEY: @requested_key is in use.
 */
int fi_mr_reg(struct fid_domain *domain, const void *buf, size_t len, u64 access,
	      u64 offset, u64 requested_key, u64 flags, struct fid_mr **mr, void *context);
int fi_mr_regattr(struct fid_domain *domain, const struct fi_mr_attr *attr, u64 flags,
		  struct fid_mr **mr);

static inline void *fi_mr_desc(struct fid_mr *mr)
{
	return mr->desc;
}

static inline u64 fi_mr_key(struct fid_mr *mr)
{
	return mr->key;
}

/*
 * fi_endpoint(3). @flags for a CQ: FI_TRANSMIT, FI_RECV, either with
 * FI_SELECTIVE_COMPLETION; for a counter: FI_SEND, FI_RECV, FI_READ, FI_WRITE,
 * FI_REMOTE_READ, FI_REMOTE_WRITE. Before fi_enable(). Process.
 */
int fi_ep_bind(struct fid_ep *ep, struct fid *fid, u64 flags);
int fi_pep_bind(struct fid_pep *pep, struct fid *fid, u64 flags);
int fi_enable(struct fid_ep *ep);
ssize_t fi_cancel(struct fid_ep *ep, void *context);

/* fi_cm(3). Process. The outcome of connect and accept is an event. */
int fi_listen(struct fid_pep *pep);
int fi_connect(struct fid_ep *ep, const void *addr, const void *param, size_t paramlen);
int fi_accept(struct fid_ep *ep, const void *param, size_t paramlen);
int fi_reject(struct fid_pep *pep, struct fid *handle, const void *param, size_t paramlen);
int fi_shutdown(struct fid_ep *ep, u64 flags);
int fi_getname(struct fid *fid, void *addr, size_t *addrlen);
int fi_getpeer(struct fid_ep *ep, void *addr, size_t *addrlen);

/* fi_av(3). Process. Returns how many were inserted; fi_addr may be NULL. */
int fi_av_insert(struct fid_av *av, const void *addr, size_t count, fi_addr_t *fi_addr,
		 u64 flags, void *context);
int fi_av_remove(struct fid_av *av, const fi_addr_t *fi_addr, size_t count, u64 flags);
int fi_av_lookup(struct fid_av *av, fi_addr_t fi_addr, void *addr, size_t *addrlen);

/* Process. -EBUSY: others hold it. */
int fi_close(struct fid *fid);

/*
 * Waiting reads of queues and counters. @timeout in ms, negative: for ever.
 * -EAGAIN: none within the time; -EINTR: a signal. Process.
 */
ssize_t fi_cq_sread(struct fid_cq *cq, void *buf, size_t count, const void *cond, int timeout);
ssize_t fi_eq_sread(struct fid_eq *eq, u32 *event, void *buf, size_t len, int timeout, u64 flags);
int fi_cntr_wait(struct fid_cntr *cntr, u64 threshold, int timeout);
int fi_cq_signal(struct fid_cq *cq);			/* Any. */

/* Any. */
const char *fi_cq_strerror(struct fid_cq *cq, int prov_errno, const void *err_data,
			   char *buf, size_t len);
const char *fi_strerror(int errnum);

/* Whether @op on @datatype exists; *count elements at most. Any. */
int fi_atomicvalid(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op, size_t *count);
int fi_fetch_atomicvalid(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op,
			 size_t *count);
int fi_compare_atomicvalid(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op,
			   size_t *count);

#endif
