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
#include "tcp.h"

#include <linux/mm.h>
#include <linux/slab.h>
#include <net/tcp.h>

#define LATER 1		/* the frame stays in the stage: no memory, or too much is waiting */

static int malformed(struct ktcp_ep *ep)
{
	ep->reason = KOFI_PE_MISBEHAVED;
	return -EPROTO;
}

static int done(struct ktcp_ep *ep, u64 operation, int err)
{
	return operation ? ktcp_say(ep, KT_DONE, err ? KT_HAS_B : 0, operation, err, NULL, 0) : 0;
}

/* --- messages --- */

/* What a receive learns of its message. */
static void meet(struct ktcp_op *op, u64 total, u64 tag, bool has_data, u64 data)
{
	op->total = min_t(u64, total, op->vec.len);
	op->done = 0;
	op->completion.olen = total - op->total;
	op->completion.entry.len = op->total;
	op->completion.entry.tag = tag;
	op->completion.entry.data = has_data ? data : 0;
	if (has_data)
		op->completion.entry.flags |= FI_REMOTE_CQ_DATA;
}

static void finish_receive(struct ktcp_ep *ep, struct ktcp_op *op)
{
	ktcp_op_end(ep, op, op->completion.olen ? FI_ETRUNC : 0, 0);
}

static int start_rendezvous(struct ktcp_ep *ep, struct ktcp_op *op, u64 remote)
{
	struct ktcp_cts cts;
	int status;

	op->remote = remote;
	if (!op->total) {
		finish_receive(ep, op);
		return done(ep, remote, 0);
	}
	status = ktcp_op_name(ep, op);
	if (status) {
		ktcp_op_end(ep, op, -status, 0);
		return done(ep, remote, ENOMEM);
	}
	cts = (struct ktcp_cts){ cpu_to_le64(op->id), cpu_to_le64(op->total) };
	return ktcp_say(ep, KT_CTS, 0, remote, 0, &cts, sizeof(cts));
}

static int set_pause(struct ktcp_ep *ep, bool pause)
{
	if (ep->pausing == pause)
		return 0;
	ep->pausing = pause;
	return ktcp_say(ep, pause ? KT_PAUSE : KT_RESUME, 0, 0, 0, NULL, 0);
}

/* Null: later. */
static struct ktcp_unexpected *keep(struct ktcp_ep *ep, const struct ktcp_head *head, bool tagged,
				    u64 total, bool rendezvous)
{
	size_t bytes = rendezvous ? 0 : total;
	struct ktcp_unexpected *un;

	if (ep->unexpected_bytes + bytes > KTCP_UNEXPECTED_MAX ||
	    ep->unexpected_count >= KTCP_UNEXPECTED_COUNT)
		return NULL;
	un = kvmalloc(struct_size(un, bytes, bytes), GFP_KERNEL);
	if (!un)
		return NULL;
	memset(un, 0, sizeof(*un));
	un->tagged = tagged;
	un->has_data = head->flags & KT_HAS_DATA;
	un->data = head->b;
	un->tag = tagged ? head->a : 0;
	un->total = total;
	un->rendezvous = rendezvous;
	ep->unexpected_bytes += bytes;
	ep->unexpected_count++;
	list_add_tail(&un->node, &ep->unexpected[tagged]);
	spin_lock_bh(&ep->lock);
	ep->has_unexpected = true;
	spin_unlock_bh(&ep->lock);
	if (ep->unexpected_bytes > KTCP_UNEXPECTED_PAUSE && set_pause(ep, true))
		ep->error = -ENOMEM;
	return un;
}

static void unkeep(struct ktcp_ep *ep, struct ktcp_unexpected *un)
{
	list_del(&un->node);
	if (!un->rendezvous)
		ep->unexpected_bytes -= un->total;
	ep->unexpected_count--;
	spin_lock_bh(&ep->lock);
	ep->has_unexpected = ep->unexpected_count;
	spin_unlock_bh(&ep->lock);
	kvfree(un);
	if (ep->unexpected_bytes < KTCP_UNEXPECTED_PAUSE / 2 && ep->state == KTCP_OPEN &&
	    set_pause(ep, false))
		ep->error = -ENOMEM;
}

/* A kept message and its receive are both there. */
static int deliver(struct ktcp_ep *ep, struct ktcp_op *op, struct ktcp_unexpected *un)
{
	struct kofi_vec from = kofi_vec_buf(un->bytes, un->total);
	int status;

	kofi_copy(&op->vec, 0, &from, 0, op->total);
	finish_receive(ep, op);
	status = ep->state == KTCP_OPEN ? done(ep, un->operation, 0) : 0;
	unkeep(ep, un);
	return status;
}

/* A receive gets a message that was kept. */
static void give(struct ktcp_ep *ep, struct ktcp_op *op, struct ktcp_unexpected *un)
{
	int status;

	meet(op, un->total, un->tag, un->has_data, un->data);
	if (un->rendezvous) {
		u64 remote = un->operation;

		unkeep(ep, un);
		status = start_rendezvous(ep, op, remote);
	} else if (un->arrived < un->total) {
		un->claimed = op;
		status = ktcp_op_name(ep, op);	/* so that it is found at the end */
	} else {
		status = deliver(ep, op, un);
	}
	if (status)
		ep->error = status;
}

static struct ktcp_unexpected *oldest_for(struct ktcp_ep *ep, const struct ktcp_op *op)
{
	struct ktcp_unexpected *un;

	list_for_each_entry(un, &ep->unexpected[op->tagged], node)
		if (!un->claimed && !((op->completion.entry.tag ^ un->tag) & ~op->ignore))
			return un;
	return NULL;
}

/*
 * Receives that are new get the oldest message that was kept, or join those
 * that wait for one to come. So a receive that waits has seen all kept
 * messages, and a message that comes needs to look at those only.
 */
void ktcp_match_fresh(struct ktcp_ep *ep)
{
	struct ktcp_unexpected *un;
	struct ktcp_op *op;

	do {
		un = NULL;
		spin_lock_bh(&ep->lock);
		op = list_first_entry_or_null(&ep->fresh, struct ktcp_op, node);
		if (op) {
			list_del(&op->node);
			un = oldest_for(ep, op);
			if (!un)
				list_add_tail(&op->node, &ep->posted[op->tagged]);
		}
		spin_unlock_bh(&ep->lock);
		if (un)
			give(ep, op, un);
	} while (op);
}

/* The receive of a message that comes now. */
static struct ktcp_op *match(struct ktcp_ep *ep, bool tagged, u64 tag)
{
	struct ktcp_op *op, *found = NULL;

	ktcp_match_fresh(ep);
	spin_lock_bh(&ep->lock);
	list_for_each_entry(op, &ep->posted[tagged], node)
		if (!((op->completion.entry.tag ^ tag) & ~op->ignore)) {
			found = op;
			list_del(&op->node);
			break;
		}
	spin_unlock_bh(&ep->lock);
	return found;
}

/* A message of @total bytes begins; they come as the payload of its frames. */
static int begin_message(struct ktcp_ep *ep, const struct ktcp_head *head, bool tagged, u64 total)
{
	struct ktcp_op *op;

	if (ep->fragment_left)
		return malformed(ep);
	op = match(ep, tagged, tagged ? head->a : 0);
	if (op) {
		meet(op, total, tagged ? head->a : 0, head->flags & KT_HAS_DATA, head->b);
		if (!total) {
			finish_receive(ep, op);
			return 0;
		}
		if (ktcp_op_name(ep, op)) {
			ktcp_op_end(ep, op, ENOMEM, 0);
			return -ENOMEM;
		}
	} else {
		ep->fragment_unexpected = keep(ep, head, tagged, total, false);
		if (!ep->fragment_unexpected)
			return LATER;
	}
	ep->fragment_op = op;
	ep->fragment_left = total;
	return 0;
}

static int end_message(struct ktcp_ep *ep)
{
	struct ktcp_unexpected *un = ep->fragment_unexpected;
	struct ktcp_op *op = ep->fragment_op;

	ep->fragment_unexpected = NULL;
	ep->fragment_op = NULL;
	if (op)
		finish_receive(ep, op);
	else if (un && un->claimed)
		return deliver(ep, un->claimed, un);
	return 0;
}

static int on_acked(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *at, bool tagged)
{
	u64 tag = tagged ? head->a : 0, len;
	struct kofi_vec from;
	struct ktcp_op *op;

	if (head->length < 8)
		return malformed(ep);
	len = head->length - 8;
	op = match(ep, tagged, tag);
	if (!op) {
		struct ktcp_unexpected *un = keep(ep, head, tagged, len, false);

		if (!un)
			return LATER;
		un->operation = get_unaligned_le64(at);
		un->arrived = len;
		memcpy(un->bytes, at + 8, len);
		return 0;
	}
	meet(op, len, tag, head->flags & KT_HAS_DATA, head->b);
	from = kofi_vec_buf(at + 8, len);
	kofi_copy(&op->vec, 0, &from, 0, op->total);
	finish_receive(ep, op);
	return done(ep, get_unaligned_le64(at), 0);
}

static int on_rts(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *at, bool tagged)
{
	u64 tag = tagged ? head->a : 0;
	struct ktcp_unexpected *un;
	struct ktcp_rts rts;
	struct ktcp_op *op;

	if (head->length < sizeof(rts))
		return malformed(ep);
	memcpy(&rts, at, sizeof(rts));
	op = match(ep, tagged, tag);
	if (op) {
		meet(op, le64_to_cpu(rts.total), tag, head->flags & KT_HAS_DATA, head->b);
		return start_rendezvous(ep, op, le64_to_cpu(rts.operation));
	}
	un = keep(ep, head, tagged, le64_to_cpu(rts.total), true);
	if (!un)
		return LATER;
	un->operation = le64_to_cpu(rts.operation);
	return 0;
}

/* --- answers to what this side has begun --- */

static int on_cts(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *at)
{
	struct ktcp_op *op = ktcp_op_named(ep, head->a);
	struct ktcp_cts cts;

	if (head->length != sizeof(cts) || !op || !op->announced || op->streaming)
		return malformed(ep);
	memcpy(&cts, at, sizeof(cts));
	if (!cts.length || le64_to_cpu(cts.length) > op->vec.len)
		return malformed(ep);
	op->streaming = true;
	return ktcp_stream(ep, op, NULL, le64_to_cpu(cts.operation), le64_to_cpu(cts.length));
}

static int on_done(struct ktcp_ep *ep, const struct ktcp_head *head)
{
	struct ktcp_op *op = ktcp_op_named(ep, head->a);
	int err = head->flags & KT_HAS_B ? head->b & 0xffff : 0;

	if (!op || op->kind == KTCP_RECV || op->kind == KTCP_INBOUND || op->referenced)
		return malformed(ep);
	/* The socket refers to pages that the peer cannot have. */
	if (op->streaming && before(tcp_sk(ep->sock->sk)->snd_una, op->end_seq))
		return malformed(ep);
	if (!err && ((op->kind == KTCP_READ && op->total) ||
		     (op->kind == KTCP_ATOMIC && op->atomic.result)))
		return malformed(ep);
	if (!err && op->announced && !op->streaming && op->vec.len && op->kind == KTCP_WRITE)
		return malformed(ep);
	ktcp_op_end(ep, op, err, 0);
	return 0;
}

static int on_reply(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *at)
{
	struct ktcp_op *op = ktcp_op_named(ep, head->a);

	if (!op || op->kind != KTCP_ATOMIC || !op->atomic.result || head->length != op->vec.len)
		return malformed(ep);
	memcpy(op->atomic.result, at, head->length);
	ktcp_op_end(ep, op, 0, 0);
	return 0;
}

/* --- one-sided operations of the peer --- */

/* Reads @count targets. Their bytes, or negative. */
static s64 take_targets(const u8 **at, u32 *left, u32 count, struct ktcp_access *access)
{
	struct ktcp_target target;
	u64 bytes = 0;
	u32 i;

	if (!count || count > KT_TARGETS_MAX || *left < count * sizeof(target))
		return -EPROTO;
	access->count = count;
	for (i = 0; i < count; i++) {
		memcpy(&target, *at, sizeof(target));
		*at += sizeof(target);
		*left -= sizeof(target);
		if (le64_to_cpu(target.length) > KTCP_MESSAGE_MAX)
			return -EPROTO;
		access->target[i] = (struct fi_rma_iov){ .addr = le64_to_cpu(target.address),
							 .len = le64_to_cpu(target.length),
							 .key = le64_to_cpu(target.key) };
		bytes += access->target[i].len;
	}
	return bytes;
}

/* Whether all targets grant it: 0 or a positive errno. */
static int check_access(struct ktcp_ep *ep, const struct ktcp_access *access, u64 rights)
{
	struct kofi_mr *mr;
	u32 i;

	for (i = 0; i < access->count; i++) {
		mr = kofi_mr_get(ep->domain, access->target[i].key, access->target[i].addr,
				 access->target[i].len, rights);
		if (IS_ERR(mr))
			return -PTR_ERR(mr);
		kofi_mr_put(mr);
	}
	return 0;
}

/* Copies between registered memory and @buf. 0 or a positive errno. */
static int copy_access(struct ktcp_ep *ep, const struct ktcp_access *access, void *buf, bool write)
{
	u64 at = 0;
	u32 i;

	for (i = 0; i < access->count; at += access->target[i++].len) {
		const struct fi_rma_iov *target = &access->target[i];
		struct kofi_vec vec = kofi_vec_buf(buf + at, target->len);
		struct kofi_mr *mr = kofi_mr_get(ep->domain, target->key, target->addr, target->len,
						 write ? FI_REMOTE_WRITE : FI_REMOTE_READ);

		if (IS_ERR(mr))
			return -PTR_ERR(mr);
		if (write)
			kofi_copy(&mr->vec, target->addr, &vec, 0, target->len);
		else
			kofi_copy(&vec, 0, &mr->vec, target->addr, target->len);
		kofi_mr_put(mr);
	}
	return 0;
}

static void note_remote(struct ktcp_ep *ep, u64 kind, bool write, u64 len, bool has_data, u64 data)
{
	kofi_complete_remote(&ep->ep, kind, write, len, has_data ? FI_REMOTE_CQ_DATA : 0, data);
}

static int on_write(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *at, bool rendezvous)
{
	struct ktcp_access access;
	struct ktcp_rma rma;
	struct ktcp_rts rts;
	struct ktcp_cts cts;
	struct ktcp_op *op;
	u32 left = head->length;
	s64 bytes;
	int err;

	if (left < sizeof(rma))
		return malformed(ep);
	memcpy(&rma, at, sizeof(rma));
	at += sizeof(rma);
	left -= sizeof(rma);
	bytes = take_targets(&at, &left, le32_to_cpu(rma.targets), &access);
	if (bytes < 0 || le64_to_cpu(rma.total) != bytes)
		return malformed(ep);
	err = check_access(ep, &access, FI_REMOTE_WRITE);
	if (!rendezvous) {
		if (left != bytes)
			return malformed(ep);
		if (!err)
			err = copy_access(ep, &access, (void *)at, true);
		if (!err)
			note_remote(ep, FI_RMA, true, bytes, head->flags & KT_HAS_DATA, head->b);
		return done(ep, head->a, err);
	}
	if (left < sizeof(rts))
		return malformed(ep);
	memcpy(&rts, at, sizeof(rts));
	if (rts.total != rma.total)
		return malformed(ep);
	if (err)
		return done(ep, head->a, err);
	if (ep->inbound >= KTCP_ANSWERS_MAX)
		return malformed(ep);
	op = kzalloc(struct_size(op, copy, 0), GFP_KERNEL);
	if (!op)
		return done(ep, head->a, ENOMEM);
	op->kind = KTCP_INBOUND;
	op->access = access;
	op->remote = head->a;
	op->total = bytes;
	op->completion.entry.data = head->b;
	op->flags = head->flags & KT_HAS_DATA ? FI_REMOTE_CQ_DATA : 0;
	if (!bytes || ktcp_op_name(ep, op)) {
		kfree(op);
		return done(ep, head->a, bytes ? ENOMEM : 0);
	}
	ep->inbound++;
	cts = (struct ktcp_cts){ cpu_to_le64(op->id), cpu_to_le64(bytes) };
	return ktcp_say(ep, KT_CTS, 0, le64_to_cpu(rts.operation), 0, &cts, sizeof(cts));
}

static int on_read(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *at)
{
	struct ktcp_access access;
	struct ktcp_rma rma;
	u32 left = head->length;
	s64 bytes;
	void *copy;
	int err;

	if (left < sizeof(rma))
		return malformed(ep);
	memcpy(&rma, at, sizeof(rma));
	at += sizeof(rma);
	left -= sizeof(rma);
	bytes = take_targets(&at, &left, le32_to_cpu(rma.targets), &access);
	if (bytes < 0 || left || le64_to_cpu(rma.total) != bytes)
		return malformed(ep);
	err = check_access(ep, &access, FI_REMOTE_READ);
	if (err || !bytes)
		return done(ep, head->a, err);
	if (bytes > KT_EAGER_MAX) {
		note_remote(ep, FI_RMA, false, bytes, false, 0);
		return ktcp_stream(ep, NULL, &access, head->a, bytes);
	}
	/* Short: the bytes of now, whatever is written later (FI_ORDER_WAR). */
	copy = kmalloc(bytes, GFP_KERNEL);
	if (!copy)
		return done(ep, head->a, ENOMEM);
	err = copy_access(ep, &access, copy, false);
	if (err)
		err = done(ep, head->a, err);
	else
		err = ktcp_say(ep, KT_SEGMENT, KT_HAS_B, head->a, 0, copy, bytes);
	kfree(copy);
	note_remote(ep, FI_RMA, false, bytes, false, 0);
	return err;
}

/* 0 or a positive errno. */
static int apply_atomic(struct ktcp_ep *ep, const struct ktcp_access *access, u32 datatype, u32 op,
			u64 rights, const u8 *operand, const u8 *compare, u8 *result)
{
	u32 i, size = fi_datatype_size(datatype);
	u64 at = 0;

	for (i = 0; i < access->count; at += access->target[i++].len) {
		const struct fi_rma_iov *target = &access->target[i];
		struct kofi_mr *mr = kofi_mr_get(ep->domain, target->key, target->addr, target->len,
						 rights);
		int err;

		if (IS_ERR(mr))
			return -PTR_ERR(mr);
		err = target->len % size ? -EINVAL :
		      kofi_atomic(mr, target->addr, datatype, op, operand ? operand + at : NULL,
				  compare ? compare + at : NULL, result + at, target->len / size);
		kofi_mr_put(mr);
		if (err)
			return -err;
	}
	return 0;
}

static int on_atomic(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *at)
{
	struct ktcp_atomic atomic;
	struct ktcp_access access;
	u32 left = head->length, datatype, op, kind, operand, compare;
	bool reads_only;
	u64 rights;
	s64 bytes;
	u8 *result;
	int err;

	if (left < sizeof(atomic))
		return malformed(ep);
	memcpy(&atomic, at, sizeof(atomic));
	at += sizeof(atomic);
	left -= sizeof(atomic);
	datatype = le32_to_cpu(atomic.datatype);
	op = le32_to_cpu(atomic.op);
	kind = le32_to_cpu(atomic.kind);
	bytes = take_targets(&at, &left, le32_to_cpu(atomic.targets), &access);
	if (bytes < 0 || kind > 2)
		return malformed(ep);
	reads_only = op == FI_ATOMIC_READ;
	rights = (reads_only ? 0 : FI_REMOTE_WRITE) | (kind ? FI_REMOTE_READ : 0);
	err = check_access(ep, &access, rights);
	if (err)
		return done(ep, head->a, err);
	operand = reads_only ? 0 : bytes;
	compare = kind == 2 ? bytes : 0;
	if (bytes > KOFI_ATOMIC_BYTES_MAX || bytes != le64_to_cpu(atomic.bytes) ||
	    left != operand + compare)
		return done(ep, head->a, EINVAL);
	if (!kofi_atomic_valid(datatype, op, kind, kind == 2))
		return done(ep, head->a, EOPNOTSUPP);
	result = kmalloc(KOFI_ATOMIC_BYTES_MAX, GFP_KERNEL);
	if (!result)
		return done(ep, head->a, ENOMEM);
	err = apply_atomic(ep, &access, datatype, op, rights, reads_only ? NULL : at,
			   compare ? at + operand : NULL, result);
	if (!err)
		note_remote(ep, FI_ATOMIC, !reads_only, bytes, false, 0);
	if (err || !kind)
		err = done(ep, head->a, err);
	else
		err = ktcp_say(ep, KT_REPLY, 0, head->a, 0, result, bytes);
	kfree(result);
	return err;
}

/* --- frames that are taken whole --- */

static int on_frame(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *payload)
{
	switch (head->kind) {
	case KT_BYE:
		ep->reason = KOFI_PE_CLOSED;
		return -ESHUTDOWN;
	case KT_TAGGED_ACK:
	case KT_MSG_ACK:
		return on_acked(ep, head, payload, head->kind == KT_TAGGED_ACK);
	case KT_TAGGED_RTS:
	case KT_MSG_RTS:
		return on_rts(ep, head, payload, head->kind == KT_TAGGED_RTS);
	case KT_CTS:
		return on_cts(ep, head, payload);
	case KT_DONE:
		return on_done(ep, head);
	case KT_WRITE:
	case KT_WRITE_RTS:
		return on_write(ep, head, payload, head->kind == KT_WRITE_RTS);
	case KT_READ:
		return on_read(ep, head, payload);
	case KT_ATOMIC:
		return on_atomic(ep, head, payload);
	case KT_REPLY:
		return on_reply(ep, head, payload);
	case KT_PAUSE:
	case KT_RESUME:
		ep->paused = head->kind == KT_PAUSE;
		return 0;
	default:
		return malformed(ep);
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
		return malformed(ep);
	if ((op->kind == KTCP_RECV && !op->remote) || !head->length || head->b != op->done ||
	    head->length > op->total - op->done)
		return malformed(ep);
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
		status = !total || total > ep->fragment_left ? malformed(ep) : 0;
	} else {
		if (streamed_prefix(head->kind)) {
			if (total < 8)
				return malformed(ep);
			total = get_unaligned_le64(prefix);
			if (!total || total > KT_FRAGMENTED_MAX || head->length - 8 > total)
				return malformed(ep);
		}
		status = begin_message(ep, head, tagged, total);
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
static ssize_t next_place(struct ktcp_ep *ep, struct kofi_piece *piece, struct kofi_mr **mr,
			  bool *nowhere)
{
	struct ktcp_op *op = ep->rx_op;
	size_t max = ep->rx_left;

	*mr = NULL;
	*nowhere = false;
	if (ep->rx_unexpected) {
		piece->addr = ep->rx_unexpected->bytes + ep->rx_unexpected->arrived;
		piece->len = max;
		return max;
	}
	if (op && op->done < op->total && !op->failed) {
		ssize_t got = ktcp_piece(ep, &op->vec,
					 op->kind == KTCP_INBOUND ? &op->access : NULL,
					 FI_REMOTE_WRITE, op->done,
					 min_t(u64, max, op->total - op->done), piece, mr);

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
		return ep->fragment_left ? 0 : end_message(ep);
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
			note_remote(ep, FI_RMA, true, op->total, op->flags & FI_REMOTE_CQ_DATA,
				    op->completion.entry.data);
		ktcp_op_end(ep, op, 0, 0);
		ep->inbound--;
		return done(ep, remote, err);
	default:
		finish_receive(ep, op);
		return done(ep, remote, 0);
	}
}

/* Takes bytes of the payload from the stage, or from the socket. As sockets do. */
static ssize_t take_payload(struct ktcp_ep *ep)
{
	size_t staged = ep->stage_end - ep->stage_at;
	struct kofi_piece piece;
	struct kofi_mr *mr;
	bool nowhere;
	ssize_t got = next_place(ep, &piece, &mr, &nowhere);

	if (staged) {
		got = min_t(size_t, got, staged);
		if (!nowhere) {
			void *to = kofi_piece_map(&piece);

			memcpy(to, ep->stage + ep->stage_at, got);
			kofi_piece_unmap(&piece, to);
		}
		ep->stage_at += got;
	} else if (nowhere) {
		got = ktcp_sock_recv(ep->sock, ep->stage, min_t(size_t, got, KTCP_STAGE_BYTES));
	} else {
		got = ktcp_sock_recv_piece(ep->sock, &piece);
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
			     max_t(size_t, want, KTCP_READ_AHEAD) - have);
	if (got > 0)
		ep->stage_end += got;
	return got;
}

/* Handles what is in the stage. 0: done with a frame, or its payload begins; LATER; or bytes wanted. */
static int next_frame(struct ktcp_ep *ep, size_t *want)
{
	const u8 *at = ep->stage + ep->stage_at;
	size_t have = ep->stage_end - ep->stage_at;
	struct ktcp_head head;
	int size = ktcp_unpack_head(at, have, &head), prefix, status;

	*want = 0;
	if (size < 0 || (size && head.context))
		return malformed(ep);
	if (!size) {
		*want = KT_HEAD_MAX;
		return 0;
	}
	prefix = streamed_prefix(head.kind);
	if (prefix < 0 && size + head.length > KTCP_STAGE_BYTES)
		return malformed(ep);
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
		if (status == LATER)	/* a receive queues the work, else the timer does */
			queue_delayed_work(ktcp_wq, &ep->timer, HZ / 50 + 1);
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
			ep->reason = ep->reason ?: KOFI_PE_MISBEHAVED;
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
				unkeep(ep, un);
}
