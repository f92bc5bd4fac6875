// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Operations become frames, frames become bytes of the socket.
 *
 * Payloads are copied into the socket, but for those of a rendezvous: their
 * operation ends with the peer's Done, so that until then the socket may refer
 * to their pages.
 */
#include "tcp.h"

#include <linux/slab.h>
#include <net/tcp.h>

static struct ktcp_frame *frame_new(u32 extra, gfp_t gfp)
{
	struct ktcp_frame *frame = kzalloc(struct_size(frame, bytes, KT_HEAD_MAX + extra), gfp);

	return frame;
}

static void put_head(struct ktcp_frame *frame, u8 kind, u8 flags, u32 length, u64 a, u64 b)
{
	frame->len = ktcp_pack_head(frame->bytes, kind, flags, length, a, b);
	frame->sent = 0;
}

static void put(struct ktcp_frame *frame, const void *bytes, size_t len)
{
	memcpy(frame->bytes + frame->len, bytes, len);
	frame->len += len;
}

/* The frame has its payload from the operation's buffer: it cannot end before. */
static void refer(struct ktcp_frame *frame, struct ktcp_op *op)
{
	frame->op = op;
	frame->vec = op->op.vec;
	op->referenced = true;
}

int ktcp_say(struct ktcp_ep *ep, u8 kind, u8 flags, u64 a, u64 b, const void *payload, u32 len)
{
	struct ktcp_frame *frame;

	if (ep->answers >= KTCP_ANSWERS_MAX)
		return -EPROTO;
	frame = frame_new(len, GFP_NOIO);
	if (!frame)
		return -ENOMEM;
	put_head(frame, kind, flags, len, a, b);
	if (len)
		put(frame, payload, len);
	frame->answer = true;
	ep->answers++;
	list_add_tail(&frame->node, &ep->control);
	return 0;
}

int ktcp_malformed(struct ktcp_ep *ep)
{
	ep->reason = KOFI_PE_MISBEHAVED;
	return -EPROTO;
}

int ktcp_done(struct ktcp_ep *ep, u64 operation, int err)
{
	return operation ? ktcp_say(ep, KT_DONE, err ? KT_HAS_B : 0, operation, err, NULL, 0) : 0;
}

/* @length bytes as segments: of an operation's buffer, or of registered memory (a read). */
int ktcp_stream(struct ktcp_ep *ep, struct ktcp_op *op, const struct ktcp_access *access,
		u64 remote, u64 length)
{
	struct ktcp_frame *frame;

	if (ep->answers >= KTCP_ANSWERS_MAX)
		return -EPROTO;
	frame = frame_new(0, GFP_NOIO);
	if (!frame)
		return -ENOMEM;
	if (op)
		refer(frame, op);
	else
		frame->access = *access;
	frame->splice = op;
	frame->answer = true;
	frame->remote = remote;
	frame->left = min_t(u64, length, KT_SEGMENT_MAX);
	frame->stream_left = length - frame->left;
	put_head(frame, KT_SEGMENT, KT_HAS_B, frame->left, remote, 0);
	ep->answers++;
	list_add_tail(&frame->node, &ep->frames);
	return 0;
}

/* --- operations --- */

/* The head and what stands in front of the payload: bytes of @out, at most KTCP_PREFIX_MAX. */
u32 ktcp_pack_rma(struct ktcp_op *op, u8 *out, u8 kind, u32 payload, bool rts)
{
	u32 prefix = sizeof(struct ktcp_rma) + op->access.count * sizeof(struct ktcp_target) +
		     (rts ? sizeof(struct ktcp_rts) : 0), i;
	struct ktcp_rma rma = { cpu_to_le64(op->op.vec.len), cpu_to_le32(op->access.count) };
	bool data = op->flags & FI_REMOTE_CQ_DATA;
	u8 *at = out;

	at += ktcp_pack_head(out, kind, data ? KT_HAS_B | KT_HAS_DATA : 0, prefix + payload,
			     op->id, op->op.done.entry.data);
	memcpy(at, &rma, sizeof(rma));
	at += sizeof(rma);
	for (i = 0; i < op->access.count; i++) {
		struct ktcp_target target = { cpu_to_le64(op->access.target[i].addr),
					      cpu_to_le64(op->access.target[i].len),
					      cpu_to_le64(op->access.target[i].key) };

		memcpy(at, &target, sizeof(target));
		at += sizeof(target);
	}
	if (rts) {
		struct ktcp_rts announce = { cpu_to_le64(op->id), cpu_to_le64(op->op.vec.len) };

		memcpy(at, &announce, sizeof(announce));
		at += sizeof(announce);
		op->announced = true;
	}
	return at - out;
}

static struct ktcp_frame *frame_rma(struct ktcp_op *op, u8 kind, u32 payload, bool rts)
{
	struct ktcp_frame *frame = frame_new(KTCP_PREFIX_MAX, GFP_NOIO);

	if (frame)
		frame->len = ktcp_pack_rma(op, frame->bytes, kind, payload, rts);
	return frame;
}

static struct ktcp_frame *frame_atomic(struct ktcp_op *op)
{
	const struct fi_msg_atomic *msg = &op->atomic;
	u32 len = op->op.vec.len, prefix = sizeof(struct ktcp_atomic) + sizeof(struct ktcp_target);
	struct ktcp_frame *frame = frame_new(prefix + op->copy_len, GFP_NOIO);
	struct ktcp_atomic atomic = { cpu_to_le32(msg->datatype), cpu_to_le32(msg->op),
				      cpu_to_le32(msg->compare ? KT_ATOMIC_COMPARE :
						  msg->result ? KT_ATOMIC_FETCH :
								KT_ATOMIC_WRITE),
				      cpu_to_le32(1), cpu_to_le64(len) };
	struct ktcp_target target = { cpu_to_le64(msg->addr), cpu_to_le64(len),
				      cpu_to_le64(msg->key) };

	if (!frame)
		return NULL;
	put_head(frame, KT_ATOMIC, 0, prefix + op->copy_len, op->id, 0);
	put(frame, &atomic, sizeof(atomic));
	put(frame, &target, sizeof(target));
	put(frame, op->copy, op->copy_len);
	return frame;
}

struct ktcp_frame *ktcp_frame_send(struct ktcp_ep *ep, struct ktcp_op *op, gfp_t gfp)
{
	bool acked = op->flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE);
	u8 flags = op->flags & FI_REMOTE_CQ_DATA ? KT_HAS_B | KT_HAS_DATA : 0;
	u64 len = op->op.vec.len, data = op->op.done.entry.data, tag = op->op.done.entry.tag;
	struct ktcp_frame *frame = frame_new(sizeof(struct ktcp_rts), gfp);
	__le64 number;

	if (!frame)
		return NULL;
	if (ep->paused || len > KTCP_COPIED_MAX || (acked && len > KT_EAGER_MAX)) {
		struct ktcp_rts rts = { cpu_to_le64(op->id), cpu_to_le64(len) };

		put_head(frame, op->tagged ? KT_TAGGED_RTS : KT_MSG_RTS, flags, sizeof(rts), tag,
			 data);
		put(frame, &rts, sizeof(rts));
		op->announced = true;
		return frame;
	}
	if (acked) {
		number = cpu_to_le64(op->id);
		put_head(frame, op->tagged ? KT_TAGGED_ACK : KT_MSG_ACK, flags, len + 8, tag, data);
		put(frame, &number, 8);
	} else if (len > KT_EAGER_MAX) {
		number = cpu_to_le64(len);
		put_head(frame, op->tagged ? KT_TAGGED_FIRST : KT_MSG_FIRST, flags, len + 8, tag,
			 data);
		put(frame, &number, 8);
	} else {
		put_head(frame, op->tagged ? KT_TAGGED : KT_MSG, flags, len, tag, data);
	}
	refer(frame, op);
	frame->left = len;
	frame->ends_op = !acked;
	return frame;
}

/* The first frame of an operation. */
int ktcp_begin(struct ktcp_ep *ep, struct ktcp_op *op)
{
	struct ktcp_frame *frame = NULL;
	bool rts;
	int status = 0;

	/* Whatever the peer may answer to has a name. */
	status = ktcp_op_name(ep, op, GFP_NOIO);
	if (status)
		return status;
	switch (op->kind) {
	case KTCP_SEND:
		frame = ktcp_frame_send(ep, op, GFP_NOIO);
		break;
	case KTCP_WRITE:
		rts = op->op.vec.len > KT_EAGER_MAX;
		frame = frame_rma(op, rts ? KT_WRITE_RTS : KT_WRITE, rts ? 0 : op->op.vec.len, rts);
		if (frame && !rts) {
			refer(frame, op);
			frame->left = op->op.vec.len;
		}
		break;
	case KTCP_READ:
		frame = frame_rma(op, KT_READ, 0, false);
		break;
	default:
		frame = frame_atomic(op);
	}
	if (!frame)
		return -ENOMEM;
	list_add_tail(&frame->node, &ep->frames);
	return 0;
}

/* --- bytes --- */

/* Writes what the socket takes of a frame. 1: all of it; 0: no room; or an errno. */
static int write_frame(struct ktcp_ep *ep, struct ktcp_frame *frame, bool more)
{
	struct kofi_piece piece;
	struct kofi_mr *mr;
	ssize_t wrote;

	while (frame->sent < frame->len) {
		wrote = ktcp_sock_send(ep->sock, frame->bytes + frame->sent,
				       frame->len - frame->sent, frame->left || more);
		if (wrote <= 0)
			return wrote == -EAGAIN ? 0 : wrote ?: -EPIPE;
		frame->sent += wrote;
	}
	while (frame->left) {
		wrote = ktcp_piece(ep, &frame->vec, frame->access.count ? &frame->access : NULL,
				   FI_REMOTE_READ, frame->at, frame->left, &piece, &mr);
		if (wrote <= 0)		/* a region that has gone while it was read */
			return wrote ?: -EFAULT;
		wrote = ktcp_sock_send_piece(ep->sock, &piece, frame->splice,
					     more || piece.len < frame->left);
		if (mr)
			kofi_mr_put(mr);
		if (wrote <= 0)
			return wrote == -EAGAIN ? 0 : wrote ?: -EPIPE;
		frame->at += wrote;
		frame->left -= wrote;
	}
	return 1;
}

/* What a data call began to write. As write_frame(). */
static int write_rest(struct ktcp_ep *ep)
{
	while (ep->rest_len) {
		ssize_t wrote = ktcp_sock_send(ep->sock, ep->rest + ep->rest_at, ep->rest_len,
					       false);

		if (wrote <= 0)
			return wrote == -EAGAIN ? 0 : wrote ?: -EPIPE;
		ep->rest_at += wrote;
		ep->rest_len -= wrote;
	}
	return 1;
}

/* A frame is out: its operation ends, or its next segment queues behind the others. */
static void frame_written(struct ktcp_ep *ep, struct ktcp_frame *frame)
{
	if (frame->stream_left) {
		frame->left = min_t(u64, frame->stream_left, KT_SEGMENT_MAX);
		frame->stream_left -= frame->left;
		put_head(frame, KT_SEGMENT, KT_HAS_B, frame->left, frame->remote, frame->at);
		list_add_tail(&frame->node, &ep->frames);
		return;
	}
	if (frame->answer)
		ep->answers--;
	if (frame->op) {
		frame->op->referenced = false;
		frame->op->end_seq = tcp_sk(ep->sock->sk)->write_seq;
		if (frame->ends_op)
			ktcp_op_end(ep, frame->op, 0, 0);
	}
	kfree(frame);
}

static struct ktcp_frame *next_frame(struct ktcp_ep *ep)
{
	struct ktcp_frame *frame = ep->sending;

	if (frame)
		return frame;
	frame = list_first_entry_or_null(&ep->control, struct ktcp_frame, node) ?:
		list_first_entry_or_null(&ep->frames, struct ktcp_frame, node);
	if (frame)
		list_del(&frame->node);
	ep->sending = frame;
	return frame;
}

static struct ktcp_op *next_pending(struct ktcp_ep *ep)
{
	struct ktcp_op *op;

	spin_lock_bh(&ep->tx_lock);
	op = list_first_entry_or_null(&ep->pending, struct ktcp_op, op.node);
	if (op)
		list_del_init(&op->op.node);
	spin_unlock_bh(&ep->tx_lock);
	return op;
}

bool ktcp_transmit(struct ktcp_ep *ep)
{
	struct ktcp_frame *frame;
	struct ktcp_op *op;
	bool moved = false;
	int begun;
	int status = write_rest(ep);

	while (!ep->error && status > 0) {
		/* A few frames are made ahead, so that they leave in one packet. */
		if (list_empty(&ep->frames)) {
			op = next_pending(ep);
			if (op) {
				begun = ktcp_begin(ep, op);
				if (begun)
					ktcp_op_end(ep, op, -begun, 0);
				continue;
			}
		}
		frame = next_frame(ep);
		if (!frame)
			break;
		status = write_frame(ep, frame, !list_empty(&ep->frames) ||
				     !list_empty(&ep->control) ||
				     !list_empty_careful(&ep->pending));
		if (status <= 0)
			break;
		ep->sending = NULL;
		moved = true;
		frame_written(ep, frame);
	}
	if (status < 0 && !ep->error) {
		ep->error = status;
		ep->reason = KOFI_PE_DIED;
	}
	return moved;
}

void ktcp_frames_drop(struct ktcp_ep *ep)
{
	struct ktcp_frame *frame, *next;

	list_splice_init(&ep->control, &ep->frames);
	if (ep->sending)
		list_add(&ep->sending->node, &ep->frames);
	ep->sending = NULL;
	list_for_each_entry_safe(frame, next, &ep->frames, node) {
		list_del(&frame->node);
		kfree(frame);
	}
	ep->answers = 0;
	ep->rest_len = 0;
}
