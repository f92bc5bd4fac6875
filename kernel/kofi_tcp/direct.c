// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The fast path of short operations: a data call writes to the socket itself,
 * and the socket's callback takes what has come, without a work item between.
 *
 * Both run where nothing may sleep, under the spin lock of the socket, and only
 * while the endpoint is idle (ktcp_ep.tx_idle, rx_idle): nothing is under way
 * that the work item would go on with. Whatever is not a plain short frame that
 * is there as a whole, and everything that does not fit, is left to the work
 * item, which looks at it again from its begin.
 *
 * Order of locks: tx_lock, the socket's, lock.
 */
#include "receive.h"

#include <linux/skbuff.h>
#include <net/tcp.h>

/* --- sending --- */

/* What the socket takes of a vector at once; negative: none, or an errno. */
static ssize_t write_vec(struct sock *sk, const struct kofi_vec *vec, const void *head, size_t len)
{
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	struct kvec both[2] = { { (void *)head, len }, { vec->buf + vec->offset, vec->len } };
	ssize_t wrote = 0, more;

	if (vec->type == KOFI_BUF || !vec->len) {
		iov_iter_kvec(&msg.msg_iter, ITER_SOURCE, both, vec->len ? 2 : 1, len + vec->len);
		return tcp_sendmsg_locked(sk, &msg, len + vec->len);
	}
	msg.msg_flags |= MSG_MORE;
	iov_iter_kvec(&msg.msg_iter, ITER_SOURCE, both, 1, len);
	wrote = tcp_sendmsg_locked(sk, &msg, len);
	if (wrote != len)
		return wrote;
	msg = (struct msghdr){ .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	if (vec->type == KOFI_KVEC)
		iov_iter_kvec(&msg.msg_iter, ITER_SOURCE, vec->kvec, vec->count,
			      vec->offset + vec->len);
	else
		iov_iter_bvec(&msg.msg_iter, ITER_SOURCE, vec->bvec, vec->count,
			      vec->offset + vec->len);
	iov_iter_advance(&msg.msg_iter, vec->offset);
	more = tcp_sendmsg_locked(sk, &msg, vec->len);
	return more < 0 ? wrote : wrote + more;
}

/* What the socket did not take: the work item writes it before all else. */
static void keep_rest(struct ktcp_ep *ep, const struct kofi_vec *vec, const u8 *head, size_t len,
		      size_t wrote)
{
	struct kofi_vec rest = kofi_vec_buf(ep->rest, KTCP_REST_BYTES);
	size_t at = 0;

	if (wrote < len) {
		at = len - wrote;
		memcpy(ep->rest, head + wrote, at);
		wrote = len;
	}
	at += kofi_copy(&rest, at, vec, wrote - len, vec->len - (wrote - len));
	ep->rest_at = 0;
	ep->rest_len = at;
	ep->tx_idle = false;
	queue_work(ktcp_wq, &ep->work);
}

/* write_vec() where nothing may sleep. */
static ssize_t write_atomic(struct sock *sk, const struct kofi_vec *vec, const u8 *head, size_t len)
{
	gfp_t allocation = sk->sk_allocation;
	ssize_t wrote;

	sk->sk_allocation = GFP_ATOMIC | __GFP_NOWARN;
	wrote = write_vec(sk, vec, head, len);
	sk->sk_allocation = allocation;
	return wrote;
}

/* A head and what follows. False: not now, nothing has happened. */
static bool write_locked(struct ktcp_ep *ep, struct sock *sk, const u8 *head, size_t len,
			 const struct kofi_vec *vec)
{
	ssize_t wrote = write_atomic(sk, vec, head, len);

	if (wrote <= 0)
		return false;
	if (wrote < len + vec->len)
		keep_rest(ep, vec, head, len, wrote);
	return true;
}

static bool may_write(const struct ktcp_ep *ep, const struct kofi_vec *vec, size_t max)
{
	lockdep_assert_held(&ep->tx_lock);
	return ep->tx_idle && vec->type != KOFI_SG && vec->len <= max;
}

/* No process has the socket, and there is room. */
static bool is_free(struct sock *sk, size_t len)
{
	return !sock_owned_by_user(sk) && sk->sk_state == TCP_ESTABLISHED &&
	       sk_stream_wspace(sk) > (int)(len + KTCP_PREFIX_MAX);
}

bool ktcp_send_now(struct ktcp_ep *ep, const struct fi_msg *msg, bool tagged, u64 tag, u64 flags)
{
	u8 head[KT_HEAD_MAX];
	bool data = flags & FI_REMOTE_CQ_DATA, sent = false;
	size_t len = ktcp_pack_head(head, tagged ? KT_TAGGED : KT_MSG,
				    data ? KT_HAS_B | KT_HAS_DATA : 0, msg->vec.len, tag,
				    msg->data);

	spin_lock_bh(&ep->tx_lock);
	if (may_write(ep, &msg->vec, KT_EAGER_MAX)) {
		struct sock *sk = ep->sock->sk;

		bh_lock_sock(sk);
		sent = is_free(sk, msg->vec.len) && write_locked(ep, sk, head, len, &msg->vec);
		bh_unlock_sock(sk);
	}
	spin_unlock_bh(&ep->tx_lock);
	return sent;
}

/* It has its name before the peer can answer, and loses it when it is not written. */
static bool begin_locked(struct ktcp_ep *ep, struct sock *sk, struct ktcp_op *op,
			 const struct kofi_vec *vec)
{
	u8 head[KTCP_PREFIX_MAX];
	size_t len;
	bool sent;

	BUILD_BUG_ON(KTCP_PREFIX_MAX < KT_HEAD_MAX + sizeof(struct ktcp_rma) +
		     sizeof(struct ktcp_rts) + KT_TARGETS_MAX * sizeof(struct ktcp_target));
	if (!is_free(sk, vec->len) || ktcp_op_name(ep, op, GFP_ATOMIC | __GFP_NOWARN))
		return false;
	len = ktcp_pack_rma(op, head, op->kind == KTCP_WRITE ? KT_WRITE : KT_READ, vec->len,
			    false);
	sent = write_locked(ep, sk, head, len, vec);
	if (!sent)
		ktcp_op_unname(ep, op);
	return sent;
}

/* A message that is copied, but not short: what the socket does not take stays where it is. */
static bool send_locked(struct ktcp_ep *ep, struct sock *sk, struct ktcp_op *op)
{
	struct ktcp_frame *frame;
	ssize_t wrote;

	if (!is_free(sk, op->op.vec.len))
		return false;
	frame = ktcp_frame_send(ep, op, GFP_ATOMIC | __GFP_NOWARN);
	if (!frame)
		return false;
	wrote = write_atomic(sk, &op->op.vec, frame->bytes, frame->len);
	if (wrote > 0 && wrote < frame->len + op->op.vec.len) {
		frame->sent = min_t(size_t, wrote, frame->len);
		frame->at = wrote - frame->sent;
		frame->left -= frame->at;
		ep->sending = frame;
		ep->tx_idle = false;
		queue_work(ktcp_wq, &ep->work);
		return true;
	}
	op->referenced = false;
	kfree(frame);
	if (wrote > 0)
		ktcp_op_end(ep, op, 0, 0);
	return wrote > 0;
}

/*
 * Answers of the peer to an RMA operation are looked at under the socket's
 * lock, or by the work item behind tx_lock: not before it is written.
 */
bool ktcp_begin_now(struct ktcp_ep *ep, struct ktcp_op *op)
{
	static const struct kofi_vec none = { .type = KOFI_BUF };
	const struct kofi_vec *vec = op->kind == KTCP_READ ? &none : &op->op.vec;
	bool send = op->kind == KTCP_SEND, sent;
	struct sock *sk;

	if (op->kind == KTCP_ATOMIC ||
	    (send && (op->flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE))) ||
	    !may_write(ep, vec, send ? KTCP_COPIED_MAX : KT_EAGER_MAX))
		return false;
	sk = ep->sock->sk;
	bh_lock_sock(sk);
	sent = send ? send_locked(ep, sk, op) : begin_locked(ep, sk, op, vec);
	bh_unlock_sock(sk);
	return sent;
}

/* --- receiving --- */

/* Copies bytes of a packet; false: it has not so many. */
static bool copy_out(struct sk_buff *skb, unsigned int offset, const struct kofi_vec *vec, u64 at,
		     size_t len)
{
	struct kofi_piece piece;
	struct kofi_iter iter;
	int status = 0;

	if (vec->type == KOFI_BUF)
		return !len || !skb_copy_bits(skb, offset, vec->buf + vec->offset + at, len);
	kofi_iter_init(&iter, vec, at);
	while (len && !status && kofi_iter_next(&iter, &piece, len)) {
		void *to = kofi_piece_map(&piece);

		status = skb_copy_bits(skb, offset, to, piece.len);
		kofi_piece_unmap(&piece, to);
		offset += piece.len;
		len -= piece.len;
	}
	return !len && !status;
}

static bool take_message(struct ktcp_ep *ep, const struct ktcp_head *head, struct sk_buff *skb,
			 unsigned int offset)
{
	bool tagged = head->kind == KT_TAGGED;
	u64 tag = tagged ? head->a : 0;
	struct ktcp_op *op, *found = NULL;

	list_for_each_entry(op, &ep->posted[tagged], op.node)
		if (!((op->op.done.entry.tag ^ tag) & ~op->ignore)) {
			found = op;
			break;
		}
	if (!found || !copy_out(skb, offset, &found->op.vec, 0,
				min_t(u64, head->length, found->op.vec.len)))
		return false;
	list_del(&found->op.node);
	ktcp_meet(found, head->length, tag, head->flags & KT_HAS_DATA, head->b);
	ktcp_finish_receive(ep, found);
	return true;
}

/* The peer's short write: all of its targets are there before a byte is written. */
static bool take_write(struct ktcp_ep *ep, const struct ktcp_head *head, struct sk_buff *skb,
		       unsigned int offset)
{
	u8 prefix[KTCP_PREFIX_MAX];
	const u8 *at = prefix;
	struct ktcp_access access;
	struct ktcp_rma rma;
	u32 left = min_t(u32, head->length, sizeof(prefix)), fits = left, i;
	struct kofi_mr *mr;
	s64 bytes;
	bool well = true;

	if (ep->owed_count == KTCP_OWED_MAX || left < sizeof(rma) ||
	    skb_copy_bits(skb, offset, prefix, left))
		return false;
	memcpy(&rma, at, sizeof(rma));
	at += sizeof(rma);
	left -= sizeof(rma);
	bytes = ktcp_take_targets(&at, &left, le32_to_cpu(rma.targets), &access);
	if (bytes < 0 || le64_to_cpu(rma.total) != bytes ||
	    head->length - (fits - left) != bytes ||
	    ktcp_check_access(ep, &access, FI_REMOTE_WRITE))
		return false;
	offset += fits - left;
	for (i = 0; i < access.count && well; offset += access.target[i++].len) {
		mr = kofi_mr_get(ep->domain, access.target[i].key, access.target[i].addr,
				 access.target[i].len, FI_REMOTE_WRITE);
		if (IS_ERR(mr))		/* closed meanwhile: the work item says so */
			return false;
		well = copy_out(skb, offset, &mr->vec, access.target[i].addr,
				access.target[i].len);
		kofi_mr_put(mr);
	}
	if (!well)
		return false;
	ktcp_note_remote(ep, FI_RMA, true, bytes, head->flags & KT_HAS_DATA, head->b);
	if (head->a)
		ep->owed_done[ep->owed_count++] = head->a;
	return true;
}

/* The end of a short write. */
static bool take_done(struct ktcp_ep *ep, const struct ktcp_head *head)
{
	struct ktcp_op *op = ktcp_op_named(ep, head->a);

	if (!op || op->kind != KTCP_WRITE || op->announced || op->referenced ||
	    (head->flags & KT_HAS_B))
		return false;
	ktcp_op_end(ep, op, 0, 0);
	return true;
}

/* All that a short read has asked for. */
static bool take_segment(struct ktcp_ep *ep, const struct ktcp_head *head, struct sk_buff *skb,
			 unsigned int offset)
{
	struct ktcp_op *op = ktcp_op_named(ep, head->a);

	if (!op || op->kind != KTCP_READ || op->done || op->failed || head->b ||
	    !head->length || head->length != op->total ||
	    !copy_out(skb, offset, &op->op.vec, 0, op->total))
		return false;
	ktcp_op_end(ep, op, 0, 0);
	return true;
}

/* The bytes of a frame that was taken, or 0. */
static unsigned int take_frame(struct ktcp_ep *ep, struct sk_buff *skb, unsigned int offset,
			       size_t len)
{
	u8 bytes[KT_HEAD_MAX];
	struct ktcp_head head;
	size_t have = min(len, sizeof(bytes));
	bool taken = false;
	int size;

	if (skb_copy_bits(skb, offset, bytes, have))
		return 0;
	size = ktcp_unpack_head(bytes, have, &head);
	if (size <= 0 || head.context || head.length > len - size ||
	    head.length > KT_EAGER_MAX + KTCP_PREFIX_MAX)
		return 0;
	offset += size;
	switch (head.kind) {
	case KT_MSG:
	case KT_TAGGED:
		taken = take_message(ep, &head, skb, offset);
		break;
	case KT_WRITE:
		taken = take_write(ep, &head, skb, offset);
		break;
	case KT_DONE:
		taken = take_done(ep, &head);
		break;
	case KT_SEGMENT:
		taken = take_segment(ep, &head, skb, offset);
		break;
	default:
		break;
	}
	return taken ? size + head.length : 0;
}

static int take_frames(read_descriptor_t *desc, struct sk_buff *skb, unsigned int offset,
		       size_t len)
{
	unsigned int used = 0, took;

	while (used < len) {
		took = take_frame(desc->arg.data, skb, offset + used, len - used);
		if (!took)
			break;
		used += took;
	}
	return used;
}

/* Says that writes are done. The lock is taken in the other order: only if it is free. */
static void answer_now(struct ktcp_ep *ep, struct sock *sk)
{
	static const struct kofi_vec none = { .type = KOFI_BUF };
	u8 bytes[KTCP_OWED_MAX * KTCP_DONE_MAX];
	size_t len = 0;
	u32 i;

	if (!spin_trylock(&ep->tx_lock))
		return;
	for (i = 0; i < ep->owed_count; i++)
		len += ktcp_pack_head(bytes + len, KT_DONE, 0, 0, ep->owed_done[i], 0);
	if (ep->tx_idle && sk_stream_wspace(sk) > (int)len &&
	    write_locked(ep, sk, bytes, len, &none))
		ep->owed_count = 0;
	spin_unlock(&ep->tx_lock);
}

/* Whether nothing is left for the work item. */
static bool take_now(struct ktcp_ep *ep, struct sock *sk)
{
	read_descriptor_t desc = { .arg.data = ep, .count = 1 };
	bool all = false;

	if (sock_owned_by_user_nocheck(sk) || sk->sk_state != TCP_ESTABLISHED)
		return false;
	spin_lock_bh(&ep->lock);
	if (ep->rx_idle) {
		tcp_read_sock(sk, &desc, take_frames);
		if (ep->owed_count)
			answer_now(ep, sk);
		all = skb_queue_empty(&sk->sk_receive_queue) && !ep->owed_count;
	}
	spin_unlock_bh(&ep->lock);
	return all;
}

void ktcp_data_ready(struct sock *sk)
{
	struct work_struct *work;

	rcu_read_lock();
	work = rcu_dereference_sk_user_data(sk);
	if (work && !take_now(container_of(work, struct ktcp_ep, work), sk))
		queue_work(ktcp_wq, work);
	rcu_read_unlock();
}

/* --- taking turns with the work item --- */

void ktcp_take_over(struct ktcp_ep *ep)
{
	lockdep_assert_held(&ep->io);
	spin_lock_bh(&ep->tx_lock);
	ep->tx_idle = false;
	spin_unlock_bh(&ep->tx_lock);
	spin_lock_bh(&ep->lock);
	ep->rx_idle = false;
	spin_unlock_bh(&ep->lock);
}

/* Answers to writes that the callback took. They are of a peer that waits: few. */
int ktcp_pay_owed(struct ktcp_ep *ep)
{
	int status = 0;
	u32 i;

	/* Nobody adds to it: rx_idle is not set. */
	for (i = 0; i < ep->owed_count && !status; i++)
		status = ktcp_done(ep, ep->owed_done[i], 0);
	ep->owed_count = 0;
	return status;
}

void ktcp_update_idle(struct ktcp_ep *ep)
{
	bool open = ep->state == KTCP_OPEN && !ep->error;
	struct ktcp_op *op, *next;

	lockdep_assert_held(&ep->io);
	spin_lock_bh(&ep->tx_lock);
	ep->tx_idle = open && !ep->closed && !ep->paused && !ep->sending && !ep->rest_len &&
		      list_empty(&ep->frames) && list_empty(&ep->control) &&
		      list_empty(&ep->pending);
	spin_unlock_bh(&ep->tx_lock);
	spin_lock_bh(&ep->lock);
	if (!ep->has_unexpected)
		list_for_each_entry_safe(op, next, &ep->fresh, op.node)
			list_move_tail(&op->op.node, &ep->posted[op->tagged]);
	ep->rx_idle = open && !ep->has_unexpected && list_empty(&ep->fresh) && !ep->rx_left &&
		      !ep->fragment_left && !ep->later && ep->stage_at == ep->stage_end;
	spin_unlock_bh(&ep->lock);
}
