/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * kofi_tcp between its files.
 *
 * Each endpoint has one work item; ktcp_ep.io, a mutex, makes it and the
 * control calls take turns, and guards everything but what two
 * spin locks guard, the lists that data calls touch: tx_lock what is to be sent,
 * lock the receives. While an endpoint is idle, data calls and the callback of
 * the socket do by themselves what is short (direct.c); else they queue the work.
 */
#ifndef _KTCP_H
#define _KTCP_H

#include <kofi/provider.h>
#include <linux/mutex.h>
#include <linux/net.h>
#include <linux/workqueue.h>
#include <net/sock.h>

#include "wire.h"

#define KTCP_SIZE		1024		/* operations of each direction */
#define KTCP_INJECT_MAX		KT_EAGER_MAX
#define KTCP_MESSAGE_MAX	(1ull << 40)
#define KTCP_COPIED_MAX		65536		/* longer messages are a rendezvous */
#define KTCP_STAGE_BYTES	16384
#define KTCP_READ_AHEAD		4096
#define KTCP_AWAIT		2		/* jiffies: for a receive */
#define KTCP_UNEXPECTED_PAUSE	(1u << 20)	/* bytes: the peer is told to keep them */
#define KTCP_UNEXPECTED_MAX	(8u << 20)	/* the socket is not read any more */
#define KTCP_UNEXPECTED_COUNT	65536
#define KTCP_ANSWERS_MAX	8192
#define KTCP_CONNECT_MS		20000
#define KTCP_FRAME_S		300		/* without a byte in the middle of a frame */
#define KTCP_PENDING_MAX	256
#define KTCP_PREFIX_MAX	192	/* a head, the targets of an operation, an Rts */
#define KTCP_REST_BYTES		(KT_EAGER_MAX + KTCP_PREFIX_MAX)
#define KTCP_OWED_MAX		16
#define KTCP_DONE_MAX		(KT_HEAD_MIN + 8)

enum ktcp_state { KTCP_IDLE, KTCP_CONNECTING, KTCP_GREETING, KTCP_OPEN, KTCP_OVER };

enum ktcp_op_kind { KTCP_SEND, KTCP_RECV, KTCP_WRITE, KTCP_READ, KTCP_ATOMIC, KTCP_INBOUND };

struct ktcp_access {
	u32			count;
	struct fi_rma_iov	target[KT_TARGETS_MAX];
};

/* An operation of the client, or KTCP_INBOUND: the target of a large write. */
struct ktcp_op {
	struct kofi_op		op;		/* node: of pending, fresh or posted */
	enum ktcp_op_kind	kind;
	bool			tagged;
	bool			announced;	/* an Rts has gone: one Cts may come */
	bool			streaming;	/* a Cts has come */
	bool			referenced;	/* by a frame that is not written */
	u32			id;		/* in ktcp_ep.ops; 0: none */
	u32			end_seq;	/* TCP's, behind the last segment */
	u64			remote;		/* the peer's operation */
	u64			ignore;
	u64			flags;
	u64			total, done;	/* bytes that are to come in, have come */
	int			failed;		/* positive errno: the rest goes nowhere */
	u32			copy_len;
	u8			*copy;		/* operand, compare values */
	/* Messages have none of these. */
	struct ktcp_access	access;
	struct fi_msg_atomic	atomic;
};

/* A frame, or bytes, on the way out. */
struct ktcp_frame {
	struct list_head	node;
	struct ktcp_op		*op;		/* whose buffer vec is */
	bool			ends_op;	/* it is complete when this is written */
	bool			answer;		/* counted in ktcp_ep.answers */
	bool			splice;
	struct kofi_vec		vec;		/* the payload behind bytes... */
	struct ktcp_access	access;		/* ...or registered memory: count > 0 */
	u64			at;
	u64			left;		/* of the payload of this frame */
	u64			stream_left;	/* further segments */
	u64			remote;
	u32			len, sent;
	u8			bytes[];
};

/* A message that came before its receive: whole, arriving, or announced. */
struct ktcp_unexpected {
	struct list_head	node;
	bool			tagged, has_data, rendezvous;
	u64			tag, data, operation;	/* operation: waits for Done, or Rts */
	u64			total, arrived;
	struct ktcp_op		*claimed;	/* a receive waits for the rest */
	u8			bytes[];
};

struct ktcp_ep {
	struct fid_ep		ep;
	struct fid_domain	*domain;
	struct mutex		io;
	struct work_struct	work;
	struct delayed_work	timer;		/* of connecting; queues work */
	unsigned long		deadline;	/* of connecting; of the rest of a frame */
	enum ktcp_state		state;
	struct socket		*sock;
	struct fid		*handle;	/* of the request to accept */
	struct ktcp_shake	shake;
	u32			hello_len;	/* of the Hello, in stage */
	struct sockaddr_storage	source, target;

	spinlock_t		tx_lock;
	bool			tx_idle;	/* a data call may write */
	bool			connected;	/* has been */
	bool			closed;		/* no operation is accepted */
	struct list_head	pending;	/* operations that are not begun */
	u32			rest_at, rest_len;
	u8			*rest;		/* of a data call: not yet written */

	spinlock_t		lock;
	bool			rx_idle;	/* the callback may take what has come */
	bool			has_unexpected;
	bool			awaited;	/* a receive, by a message in the socket */
	struct list_head	fresh;		/* receives that have not seen unexpected */
	struct list_head	posted[2];	/* those that have; of tagged messages */
	u32			owed_count;	/* writes of the peer that it is to hear of */
	u64			owed_done[KTCP_OWED_MAX];

	struct list_head	unexpected[2];

	struct xarray		ops;		/* that the peer may name */
	u32			next_id;
	struct list_head	frames;
	struct list_head	control;	/* goes first */
	struct ktcp_frame	*sending;	/* written in part */
	u32			answers;
	u32			inbound;	/* large writes of the peer that arrive */
	u64			unexpected_bytes;
	u32			unexpected_count;
	bool			paused;		/* by the peer */
	bool			pausing;	/* the peer */
	int			error;		/* negative: the connection is to end */
	int			reason;
	bool			released;	/* nothing is received any more */

	u32			stage_at, stage_end;
	u32			ahead;		/* bytes to read together with a head */
	u8			*stage;
	bool			later;		/* the frame in stage waits for this side */
	unsigned long		awaited_until;	/* awaited: until then */
	bool			owed;		/* the rest of a frame: deadline */
	struct ktcp_op		*rx_op;		/* where the payload goes */
	struct ktcp_unexpected	*rx_unexpected;
	u64			rx_left;	/* of its frame */
	bool			rx_segment;
	struct ktcp_op		*fragment_op;
	struct ktcp_unexpected	*fragment_unexpected;
	u64			fragment_left;
};

static inline struct ktcp_ep *to_ktcp(struct fid_ep *ep)
{
	return container_of(ep, struct ktcp_ep, ep);
}

/* The files in their order: each uses those above it only, as Kbuild lists them (layers.py). */

extern struct workqueue_struct *ktcp_wq;

/* socket.c: bytes, -EAGAIN, 0 at the end of the stream, or another errno. Never waits. */
int ktcp_sock_new(int family, struct socket **sock);
/* Queues work; of an endpoint, @ready looks first. NULL: no more. */
void ktcp_sock_watch(struct socket *sock, struct work_struct *work,
		     void (*ready)(struct sock *sk));
void ktcp_sock_close(struct socket *sock);
ssize_t ktcp_sock_recv(struct socket *sock, void *to, size_t len);
ssize_t ktcp_sock_recv_vec(struct socket *sock, const struct kofi_vec *vec);
ssize_t ktcp_sock_send(struct socket *sock, const void *from, size_t len, bool more);
ssize_t ktcp_sock_send_piece(struct socket *sock, const struct kofi_piece *piece, bool splice,
			     bool more);

/*
 * What follows @at of an operation's or frame's memory, at most @max bytes; of
 * registered memory when @access is not NULL, then *mr is to be put. The length:
 * 0 at the end; -EACCES and -EKEYREJECTED.
 */
ssize_t ktcp_part(struct ktcp_ep *ep, const struct kofi_vec *vec,
		  const struct ktcp_access *access, u64 rights, u64 at, size_t max,
		  struct kofi_vec *part, struct kofi_mr **mr);
/* The same as one piece. */
ssize_t ktcp_piece(struct ktcp_ep *ep, const struct kofi_vec *vec,
		   const struct ktcp_access *access, u64 rights, u64 at, size_t max,
		   struct kofi_piece *piece, struct kofi_mr **mr);

/* op.c */
int ktcp_op_name(struct ktcp_ep *ep, struct ktcp_op *op, gfp_t gfp);
void ktcp_op_unname(struct ktcp_ep *ep, struct ktcp_op *op);
struct ktcp_op *ktcp_op_named(struct ktcp_ep *ep, u64 id);
void ktcp_op_end(struct ktcp_ep *ep, struct ktcp_op *op, int err, int reason);

/* transmit.c */
bool ktcp_transmit(struct ktcp_ep *ep);		/* whether something moved */
int ktcp_begin(struct ktcp_ep *ep, struct ktcp_op *op);
struct ktcp_frame *ktcp_frame_send(struct ktcp_ep *ep, struct ktcp_op *op, gfp_t gfp);
u32 ktcp_pack_rma(struct ktcp_op *op, u8 *out, u8 kind, u32 payload, bool rts);
int ktcp_say(struct ktcp_ep *ep, u8 kind, u8 flags, u64 a, u64 b, const void *payload, u32 len);
int ktcp_done(struct ktcp_ep *ep, u64 operation, int err);
int ktcp_malformed(struct ktcp_ep *ep);		/* -EPROTO, with its reason */
int ktcp_stream(struct ktcp_ep *ep, struct ktcp_op *op, const struct ktcp_access *access,
		u64 remote, u64 length);
void ktcp_frames_drop(struct ktcp_ep *ep);

/* messages.c (more in receive.h) */
void ktcp_match_fresh(struct ktcp_ep *ep);

/* receive.c */
bool ktcp_receive(struct ktcp_ep *ep);		/* whether something moved */
void ktcp_receive_drop(struct ktcp_ep *ep);

/* direct.c: false: not now, nothing has happened. ktcp_begin_now() wants tx_lock. */
bool ktcp_send_now(struct ktcp_ep *ep, const struct fi_msg *msg, bool tagged, u64 tag, u64 flags);
bool ktcp_begin_now(struct ktcp_ep *ep, struct ktcp_op *op);
void ktcp_data_ready(struct sock *sk);
/*
 * The caller holds io. Takes the idle flags from the fast paths; gives them back when nothing is
 * under way.
 */
void ktcp_take_over(struct ktcp_ep *ep);
void ktcp_update_idle(struct ktcp_ep *ep);
int ktcp_pay_owed(struct ktcp_ep *ep);

/* end.c */
void ktcp_end(struct ktcp_ep *ep, int err, int reason);

/* listen.c */
int ktcp_passive_ep(struct fid_fabric *fabric, const struct fi_info *info, struct fid_pep **pep);
struct socket *ktcp_request_take(struct ktcp_ep *ep);	/* NULL: no such request */
void ktcp_request_drop(struct ktcp_ep *ep);

/* connect.c */
extern const struct fi_ops_cm ktcp_cm_ops;
void ktcp_advance(struct ktcp_ep *ep);

/* endpoint.c */
int ktcp_endpoint(struct fid_domain *domain, const struct fi_info *info, struct fid_ep **ep);

#endif
