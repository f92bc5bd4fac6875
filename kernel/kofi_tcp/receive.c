// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Bytes of the socket become frames; frames become what they ask for.
 *
 * All of it comes from the peer and is not validated: every length, index, key
 * and offset is checked against this side's state. What does not fit ends the
 * connection (KOFI_PE_MISBEHAVED).
 *
 * Payloads of messages and segments go from the socket's queue straight into
 * the posted buffer or registered region, but for the first KTCP_READ_AHEAD
 * bytes at most, which may have been read together with their head.
 */
#include "receive.h"

#include <linux/mm.h>
#include <linux/slab.h>
#include <net/tcp.h>

/* --- frames that are taken whole --- */

static int on_frame(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *payload)
{
	switch (head->kind) {
	case KT_BYE:
		ep->reason = KOFI_PE_CLOSED;
		return -ESHUTDOWN;
	case KT_TAGGED_ACK:
	case KT_MSG_ACK:
		return ktcp_on_acked(ep, head, payload, head->kind == KT_TAGGED_ACK);
	case KT_TAGGED_RTS:
	case KT_MSG_RTS:
		return ktcp_on_rts(ep, head, payload, head->kind == KT_TAGGED_RTS);
	case KT_CTS:
		return ktcp_on_cts(ep, head, payload);
	case KT_DONE:
		return ktcp_on_done(ep, head);
	case KT_WRITE:
	case KT_WRITE_RTS:
		return ktcp_on_write(ep, head, payload, head->kind == KT_WRITE_RTS);
	case KT_READ:
		return ktcp_on_read(ep, head, payload);
	case KT_ATOMIC:
		return ktcp_on_atomic(ep, head, payload);
	case KT_REPLY:
		return ktcp_on_reply(ep, head, payload);
	case KT_PAUSE:
	case KT_RESUME:
		ep->paused = head->kind == KT_PAUSE;
		return 0;
	default:
		return ktcp_malformed(ep);
	}
}

/* --- payloads that go where they belong while they arrive --- */

/* Bytes in front of such a payload; negative: the frame is taken whole. */
static int streamed_prefix(u8 kind)
{
	switch (kind) {
	case KT_TAGGED:
	case KT_MSG:
	case KT_MORE:
	case KT_SEGMENT:
		return 0;
	case KT_TAGGED_FIRST:
	case KT_MSG_FIRST:
		return 8;
	default:
		return -1;
	}
}

static int begin_segment(struct ktcp_ep *ep, const struct ktcp_head *head)
{
	struct ktcp_op *op = ktcp_op_named(ep, head->a);

	if (!op || (op->kind != KTCP_READ && op->kind != KTCP_RECV && op->kind != KTCP_INBOUND))
		return ktcp_malformed(ep);
	if ((op->kind == KTCP_RECV && !op->remote) || !head->length || head->b != op->done ||
	    head->length > op->total - op->done)
		return ktcp_malformed(ep);
	ep->rx_op = op;
	ep->rx_segment = true;
	return 0;
}

/* The head of such a frame, and its prefix, are there. */
static int begin_payload(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *prefix)
{
	bool tagged = head->kind == KT_TAGGED || head->kind == KT_TAGGED_FIRST;
	u64 total = head->length;
	int status;

	if (head->kind == KT_SEGMENT) {
		status = begin_segment(ep, head);
	} else if (head->kind == KT_MORE) {
		status = !total || total > ep->fragment_left ? ktcp_malformed(ep) : 0;
	} else {
		if (streamed_prefix(head->kind)) {
			if (total < 8)
				return ktcp_malformed(ep);
			total = get_unaligned_le64(prefix);
			if (!total || total > KT_FRAGMENTED_MAX || head->length - 8 > total)
				return ktcp_malformed(ep);
		}
		status = ktcp_begin_message(ep, head, tagged, total);
	}
	if (status)
		return status;
	ep->rx_left = head->length - streamed_prefix(head->kind);
	if (!ep->rx_segment) {
		ep->rx_op = ep->fragment_op;
		ep->rx_unexpected = ep->fragment_unexpected;
	}
	return 0;
}

/* Where the next bytes of the payload go. The length; *nowhere: they are dropped. */
static ssize_t next_place(struct ktcp_ep *ep, struct kofi_vec *place, struct kofi_mr **mr,
			  bool *nowhere)
{
	struct ktcp_op *op = ep->rx_op;
	size_t max = ep->rx_left;

	*mr = NULL;
	*nowhere = false;
	if (ep->rx_unexpected) {
		*place = kofi_vec_buf(ep->rx_unexpected->bytes + ep->rx_unexpected->arrived, max);
		return max;
	}
	if (op && op->done < op->total && !op->failed) {
		ssize_t got = ktcp_part(ep, &op->op.vec,
					op->kind == KTCP_INBOUND ? &op->access : NULL,
					FI_REMOTE_WRITE, op->done,
					min_t(u64, max, op->total - op->done), place, mr);

		if (got > 0)
			return got;
		op->failed = got ? -got : EIO;	/* a region that was closed meanwhile */
	}
	*nowhere = true;
	return max;
}

static void arrived(struct ktcp_ep *ep, size_t bytes)
{
	ep->rx_left -= bytes;
	if (!ep->rx_segment)
		ep->fragment_left -= bytes;
	if (ep->rx_unexpected)
		ep->rx_unexpected->arrived += bytes;
	else if (ep->rx_op)
		ep->rx_op->done = min(ep->rx_op->done + bytes, ep->rx_op->total);
}

/* All of a frame's payload is there. */
static int end_payload(struct ktcp_ep *ep)
{
	struct ktcp_op *op = ep->rx_op;
	bool segment = ep->rx_segment;
	u64 remote;
	int err;

	ep->rx_op = NULL;
	ep->rx_unexpected = NULL;
	ep->rx_segment = false;
	if (!segment)
		return ep->fragment_left ? 0 : ktcp_end_message(ep);
	if (op->done < op->total)
		return 0;
	remote = op->remote;
	err = op->failed;
	switch (op->kind) {
	case KTCP_READ:
		ktcp_op_end(ep, op, 0, 0);
		return 0;
	case KTCP_INBOUND:
		if (!err)
			ktcp_note_remote(ep, FI_RMA, true, op->total, op->flags & FI_REMOTE_CQ_DATA,
					 op->op.done.entry.data);
		ktcp_op_end(ep, op, 0, 0);
		ep->inbound--;
		return ktcp_done(ep, remote, err);
	default:
		ktcp_finish_receive(ep, op);
		return ktcp_done(ep, remote, 0);
	}
}

/* Takes bytes of the payload from the stage, or from the socket. As sockets do. */
static ssize_t take_payload(struct ktcp_ep *ep)
{
	size_t staged = ep->stage_end - ep->stage_at;
	struct kofi_vec place, from;
	struct kofi_mr *mr;
	bool nowhere;
	ssize_t got = next_place(ep, &place, &mr, &nowhere);

	if (staged) {
		got = min_t(size_t, got, staged);
		if (!nowhere) {
			from = kofi_vec_buf(ep->stage + ep->stage_at, got);
			got = kofi_copy(&place, 0, &from, 0, got);
		}
		ep->stage_at += got;
	} else if (nowhere) {
		got = ktcp_sock_recv(ep->sock, ep->stage, min_t(size_t, got, KTCP_STAGE_BYTES));
	} else {
		got = ktcp_sock_recv_vec(ep->sock, &place);
	}
	if (mr)
		kofi_mr_put(mr);
	return got;
}

/* --- the loop --- */

/* Reads until @want bytes may be in the stage. */
static ssize_t fill_stage(struct ktcp_ep *ep, size_t want)
{
	size_t have = ep->stage_end - ep->stage_at;
	ssize_t got;

	memmove(ep->stage, ep->stage + ep->stage_at, have);
	ep->stage_at = 0;
	ep->stage_end = have;
	got = ktcp_sock_recv(ep->sock, ep->stage + have,
			     max_t(size_t, want, ep->ahead) - have);
	if (got > 0)
		ep->stage_end += got;
	return got;
}

/* Handles what is in the stage. 0: done with a frame, or its payload begins, or *want; LATER. */
static int next_frame(struct ktcp_ep *ep, size_t *want)
{
	const u8 *at = ep->stage + ep->stage_at;
	size_t have = ep->stage_end - ep->stage_at;
	struct ktcp_head head;
	int size = ktcp_unpack_head(at, have, &head), prefix, status;

	*want = 0;
	if (size < 0 || (size && head.context))
		return ktcp_malformed(ep);
	if (!size) {
		*want = KT_HEAD_MAX;
		return 0;
	}
	prefix = streamed_prefix(head.kind);
	if (prefix < 0 && size + head.length > KTCP_STAGE_BYTES)
		return ktcp_malformed(ep);
	/* Behind a long frame there is another one: what is read with its head is copied twice. */
	ep->ahead = head.length > KTCP_READ_AHEAD ? KT_HEAD_MAX + 8 : KTCP_READ_AHEAD;
	*want = size + (prefix < 0 ? head.length : min_t(u32, prefix, head.length));
	if (*want > have)
		return 0;
	status = prefix < 0 ? on_frame(ep, &head, at + size) : begin_payload(ep, &head, at + size);
	if (!status)
		ep->stage_at += *want;
	*want = 0;
	return status;
}

bool ktcp_receive(struct ktcp_ep *ep)
{
	bool moved = false;
	int rounds = 256;

	while (rounds--) {
		size_t want = 0;
		ssize_t got = 1;
		int status = 0;

		if (ep->rx_left) {
			got = take_payload(ep);
			if (got > 0)
				arrived(ep, got);
		} else {
			status = next_frame(ep, &want);
			if (want)
				got = fill_stage(ep, want);
		}
		ep->later = status == LATER;
		if (ep->later)	/* a receive queues the work, else the timer does */
			mod_delayed_work(ktcp_wq, &ep->timer,
					 ep->awaited ? KTCP_AWAIT : HZ / 50 + 1);
		if (status == LATER || got == -EAGAIN)
			break;
		if (got <= 0) {
			ep->error = got ?: -EPIPE;
			ep->reason = KOFI_PE_DIED;
			break;
		}
		/* A frame without a payload has ended with its head, too. */
		if (!status && !ep->rx_left && (ep->rx_op || ep->rx_unexpected))
			status = end_payload(ep);
		if (status) {
			ep->error = status;
			ep->reason = ep->reason ?: status == -ENOMEM ? KOFI_PE_DIED :
								       KOFI_PE_MISBEHAVED;
			break;
		}
		moved = true;
	}
	return moved;
}

void ktcp_receive_drop(struct ktcp_ep *ep)
{
	struct ktcp_unexpected *un, *next;
	bool all = ep->released;
	int i;

	ep->rx_op = NULL;
	ep->rx_unexpected = NULL;
	ep->fragment_op = NULL;
	ep->fragment_unexpected = NULL;
	ep->rx_left = 0;
	/* Whole messages may still be received. */
	for (i = 0; i < 2; i++)
		list_for_each_entry_safe(un, next, &ep->unexpected[i], node)
			if (all || un->rendezvous || un->arrived < un->total)
				ktcp_unkeep(ep, un);
}
