/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * kofi_rdm between its files.
 *
 * Each direction of traffic has a connection of its own: an endpoint sends
 * over those that it opened, and receives over those that it accepted. So two
 * sides that connect at the same time never have to agree on one connection,
 * and no peer is believed when it says who it is.
 *
 * rdm_ep.cm, a mutex: connections come and go under it (the work item, events,
 * close). rdm_conn.rx, a mutex: one reader of the connection's queue.
 * rdm_ep.lock: all lists and states. Order: cm, rx, lock. No lock but cm and
 * rx is held over a call down.
 */
#ifndef _KOFI_RDM_H
#define _KOFI_RDM_H

#include <kofi/handler.h>
#include <kofi/provider.h>
#include <linux/hashtable.h>
#include <linux/mutex.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#define RDM_FRAME_BYTES		4096		/* of a receive buffer */
#define RDM_EAGER_MAX		(RDM_FRAME_BYTES - sizeof(struct rdm_head))
#define RDM_SIZE		1024		/* operations of each direction */
#define RDM_CONN_SIZE		128		/* operations of a connection below */
#define RDM_BUFFERS_IN		32		/* receive buffers of an accepted connection */
#define RDM_BUFFERS_OUT		8
#define RDM_CONNS_MAX		1024		/* of each direction */
#define RDM_BUFFERED_BYTES		(8u << 20)	/* messages without a receive */
#define RDM_BUFFERED_COUNT		65536
#define RDM_ANSWERS_MAX		8192		/* that a peer does not take */
#define RDM_TARGETS_MAX		8
#define RDM_NAME_MAX		32		/* bytes of an address below */
#define RDM_KEY_OWN		BIT_ULL(63)	/* keys of this layer */

/* What travels in messages of the provider below: docs/wire/kofi_rdm.md. */
enum rdm_kind { RDM_MESSAGE = 1, RDM_RTS, RDM_FIN };
#define RDM_TAGGED	1
#define RDM_DATA	2

struct rdm_head {
	u8	kind;
	u8	flags;
	__le16	zero;
	__le32	status;		/* RDM_FIN: errno */
	__le64	tag;
	__le64	data;
	__le64	len;		/* of the message */
	__le64	id;		/* RDM_RTS, RDM_FIN: the sender's operation */
	__le64	key;		/* RDM_RTS: where the message can be read, from offset 0 */
};

/* Goes along with fi_connect() and fi_accept(). */
struct rdm_hello {
	__le32	magic;
	__le32	version;
};

#define RDM_MAGIC	0x4d44524b	/* "KRDM" */

struct rdm_domain {
	struct fid_domain	domain;
	struct fid_domain	*lower;
	struct fi_info		*info;		/* below */
};

struct rdm_mr {
	struct fid_mr	mr;
	struct fid_mr	*lower;
};

enum rdm_state { RDM_NEW, RDM_CONNECTING, RDM_OPEN, RDM_OVER };

struct rdm_ep {
	struct fid_ep		ep;
	struct rdm_domain	*domain;
	struct fid_fabric	*fabric;	/* below, as the next two */
	struct fid_eq		*eq;
	struct fid_pep		*pep;
	struct delayed_work	work;
	struct mutex		cm;
	wait_queue_head_t	wait;		/* rdm_conn.busy */

	spinlock_t		lock;
	bool			closing;
	unsigned int		holding;	/* connections that hold some */
	unsigned int		count[2];	/* connections: accepted, opened */
	DECLARE_HASHTABLE(opened, 6);
	struct list_head	conns;
	struct list_head	todo;
	struct list_head	now;		/* of todo: this run of the work item */
	struct list_head	posted[2];	/* receives: of messages, of tagged ones */
	struct list_head	buffered[2];
	size_t			buffered_bytes;
	u32			buffered_count;
};

/* What the queue of a connection below names by its contexts. */
enum rdm_io_type { RDM_IO_BUFFER, RDM_IO_OP };

struct rdm_io {
	enum rdm_io_type	type;
};

struct rdm_buffer {
	struct rdm_io		io;
	struct list_head	node;		/* rdm_conn.held */
	size_t			len;
	void			*frame;		/* a page */
};

struct rdm_conn {
	struct list_head	node;		/* rdm_ep.conns */
	struct list_head	todo;		/* rdm_ep.todo */
	struct hlist_node	by_name;	/* rdm_ep.opened */
	struct rdm_ep		*ep;
	bool			out;
	enum rdm_state		state;
	int			err, reason;	/* why it is over; err is positive */
	unsigned int		busy;		/* calls down that run */
	bool			draining;
	unsigned int		answers;	/* RDM_FIN that have not left */
	struct list_head	pending;	/* operations that have not gone down */
	struct xarray		announced;	/* sends that the peer is to read */
	u32			next_id;

	struct mutex		rx;
	struct fid_ep		*lower;
	struct fid_cq		*cq;
	struct rdm_buffer	*buffers;
	unsigned int		buffer_count;
	struct list_head	held;		/* buffers that found no room; of rx */
	bool			holds;		/* there are some; of rdm_ep.lock */
	size_t			name_len;
	u8			name[RDM_NAME_MAX];
};

enum rdm_op_kind {
	RDM_OP_EAGER, RDM_OP_ANNOUNCE, RDM_OP_RECV, RDM_OP_WRITE, RDM_OP_READ, RDM_OP_ATOMIC,
	RDM_OP_FRAME,		/* no operation of the client: an RTS or a FIN */
};

struct rdm_op {
	struct kofi_op		op;		/* node: of posted or pending */
	struct rdm_io		io;
	enum rdm_op_kind	kind;
	u64			flags;
	u64			ignore;
	u64			remote;		/* RECV: the sender's operation */
	u64			key;		/* RECV: where it is read */
	u32			id;		/* ANNOUNCE, and the FRAME that tells of it */
	struct fid_mr		*mr;		/* ANNOUNCE */
	void			*bounce;	/* what is registered instead of vec */
	size_t			target_count;
	struct fi_rma_iov	target[RDM_TARGETS_MAX];
	struct fi_msg_atomic	atomic;
	u32			frame_len;
	u8			frame[];	/* frame, inject or compare values */
};

/* A message, or the announcement of one, that came before its receive. */
struct rdm_buffered {
	struct list_head	node;
	struct rdm_conn		*conn;		/* announcement */
	bool			tagged, has_data;
	u64			tag, data, len, id, key;
	u8			bytes[];
};

static inline struct rdm_ep *to_rdm(struct fid_ep *ep)
{
	return container_of(ep, struct rdm_ep, ep);
}

static inline struct rdm_domain *to_rdm_domain(struct fid_domain *domain)
{
	return container_of(domain, struct rdm_domain, domain);
}

extern struct workqueue_struct *rdm_wq;
extern const struct kofi_ep_ops rdm_data_ops;

/* connection.c. _locked: under rdm_ep.lock. */
int rdm_endpoint(struct fid_domain *domain, const struct fi_info *info, struct fid_ep **ep);
struct rdm_conn *rdm_conn_for_locked(struct rdm_ep *ep, fi_addr_t addr);
void rdm_todo_locked(struct rdm_conn *conn);
void rdm_over(struct rdm_conn *conn, int err, int reason);
/* Between these the endpoint below is not closed. False: it is over. */
bool rdm_enter(struct rdm_conn *conn);
void rdm_idle(struct rdm_conn *conn);

/* data.c */
void rdm_op_end(struct rdm_op *op, int err, int reason);
void rdm_give(struct rdm_conn *conn, struct rdm_op *op);	/* entered */
void rdm_finish(struct rdm_conn *conn, u64 id, int err);	/* tells the sender */
void rdm_drain(struct rdm_conn *conn);
ssize_t rdm_cancel(struct fid_ep *ep, void *context);

/* receive.c */
void rdm_poll(struct fid_cq *cq, void *conn);	/* a handler */
void rdm_unhold(struct rdm_conn *conn);
int rdm_post_buffers(struct rdm_conn *conn);
void rdm_post_recv(struct rdm_op *op);

#endif
