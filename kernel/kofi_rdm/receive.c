// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What the provider below reports: operations that have ended, frames that
 * have come, and the receives that they meet.
 *
 * Frames come from the peer and are not validated: what does not fit ends the
 * connection (KOFI_PE_MISBEHAVED).
 */
#include "rdm.h"

#include <linux/slab.h>

/* What a receive learns of its message. */
static void meet(struct rdm_op *op, u64 total, u64 tag, bool has_data, u64 data)
{
	size_t fits = min_t(u64, total, op->op.vec.len);

	op->op.done.olen = total - fits;
	op->op.done.entry.len = fits;
	op->op.done.entry.tag = tag;
	op->op.done.entry.data = has_data ? data : 0;
	if (has_data)
		op->op.done.entry.flags |= FI_REMOTE_CQ_DATA;
}

static void finish_receive(struct rdm_op *op)
{
	rdm_op_end(op, op->op.done.olen ? FI_ETRUNC : 0, 0);
}

/* Reads an announced message into its receive. The connection is entered. */
static void pull(struct rdm_conn *conn, struct rdm_op *op, u64 id, u64 key)
{
	if (!op->op.done.entry.len) {
		finish_receive(op);
		rdm_finish(conn, id, 0);
		return;
	}
	op->remote = id;
	op->op.vec.len = op->op.done.entry.len;
	op->flags = 0;
	op->target_count = 1;
	op->target[0] = (struct fi_rma_iov){ .len = op->op.vec.len, .key = key };
	rdm_give(conn, op);
}

/* --- receives that are posted --- */

static struct rdm_buffered *find_buffered(struct rdm_ep *ep, const struct rdm_op *op, bool tagged)
{
	struct rdm_buffered *buffered;

	list_for_each_entry(buffered, &ep->buffered[tagged], node)
		if (!((buffered->tag ^ op->op.done.entry.tag) & ~op->ignore) &&
		    (!buffered->conn || buffered->conn->state != RDM_OVER))
			return buffered;
	return NULL;
}

/* Room has come, or a receive: what was held may go on. */
static void unhold_locked(struct rdm_ep *ep)
{
	struct rdm_conn *conn;

	if (!ep->holding)
		return;
	list_for_each_entry(conn, &ep->conns, node)
		if (conn->holds)
			rdm_todo_locked(conn);
}

void rdm_post_recv(struct rdm_op *op)
{
	bool tagged = op->op.done.entry.flags & FI_TAGGED;
	struct rdm_ep *ep = to_rdm(op->op.ep);
	struct rdm_buffered *buffered;
	struct kofi_vec from;

	spin_lock_bh(&ep->lock);
	buffered = find_buffered(ep, op, tagged);
	if (buffered) {
		list_del(&buffered->node);
		ep->buffered_count--;
		if (buffered->conn)
			buffered->conn->busy++;
		else
			ep->buffered_bytes -= buffered->len;
	} else {
		list_add_tail(&op->op.node, &ep->posted[tagged]);
	}
	unhold_locked(ep);
	spin_unlock_bh(&ep->lock);
	if (!buffered)
		return;
	meet(op, buffered->len, buffered->tag, buffered->has_data, buffered->data);
	if (buffered->conn) {
		pull(buffered->conn, op, buffered->id, buffered->key);
		rdm_idle(buffered->conn);
	} else {
		from = kofi_vec_buf(buffered->bytes, buffered->len);
		kofi_copy(&op->op.vec, 0, &from, 0, op->op.done.entry.len);
		finish_receive(op);
	}
	kfree(buffered);
}

/* --- frames --- */

static bool malformed(struct rdm_conn *conn)
{
	rdm_over(conn, EIO, KOFI_PE_MISBEHAVED);
	return true;
}

/* False: no room. @conn: of an announcement. */
static bool keep_locked(struct rdm_ep *ep, struct rdm_conn *conn, const struct rdm_head *head,
			const void *bytes)
{
	bool tagged = head->flags & RDM_TAGGED;
	size_t len = conn ? 0 : le64_to_cpu(head->len);
	struct rdm_buffered *buffered;

	if (ep->buffered_bytes + len > RDM_BUFFERED_BYTES || ep->buffered_count >= RDM_BUFFERED_COUNT)
		return false;
	buffered = kmalloc(struct_size(buffered, bytes, len), GFP_ATOMIC);
	if (!buffered)
		return false;
	buffered->conn = conn;
	buffered->tagged = tagged;
	buffered->has_data = head->flags & RDM_DATA;
	buffered->tag = le64_to_cpu(head->tag);
	buffered->data = le64_to_cpu(head->data);
	buffered->len = le64_to_cpu(head->len);
	buffered->id = le64_to_cpu(head->id);
	buffered->key = le64_to_cpu(head->key);
	memcpy(buffered->bytes, bytes, len);
	ep->buffered_bytes += len;
	ep->buffered_count++;
	list_add_tail(&buffered->node, &ep->buffered[tagged]);
	return true;
}

/* A message or an announcement; the latter's connection is entered. False: no room. */
static bool on_message(struct rdm_conn *conn, const struct rdm_head *head, const void *bytes)
{
	bool tagged = head->flags & RDM_TAGGED, announced = head->kind == RDM_RTS, buffered = true;
	struct rdm_op *op, *found = NULL;
	u64 tag = le64_to_cpu(head->tag);
	struct rdm_ep *ep = conn->ep;
	struct kofi_vec from;

	spin_lock_bh(&ep->lock);
	list_for_each_entry(op, &ep->posted[tagged], op.node)
		if (!((op->op.done.entry.tag ^ tag) & ~op->ignore)) {
			found = op;
			list_del(&op->op.node);
			break;
		}
	if (!found)
		buffered = keep_locked(ep, announced ? conn : NULL, head, bytes);
	spin_unlock_bh(&ep->lock);
	if (!found)
		return buffered;
	meet(found, le64_to_cpu(head->len), tag, head->flags & RDM_DATA, le64_to_cpu(head->data));
	if (announced) {
		pull(conn, found, le64_to_cpu(head->id), le64_to_cpu(head->key));
	} else {
		from = kofi_vec_buf(bytes, found->op.done.entry.len);
		kofi_copy(&found->op.vec, 0, &from, 0, found->op.done.entry.len);
		finish_receive(found);
	}
	return true;
}

/* The peer has read what was announced. */
static bool on_finish(struct rdm_conn *conn, const struct rdm_head *head)
{
	u64 id = le64_to_cpu(head->id);
	struct rdm_op *op = id <= U32_MAX ? xa_erase(&conn->announced, id) : NULL;

	if (!op)
		return malformed(conn);
	rdm_op_end(op, head->status ? EIO : 0, 0);
	return true;
}

/* False: no room for it. */
static bool take_frame(struct rdm_conn *conn, const void *frame, size_t len)
{
	struct rdm_head head;
	bool taken;

	if (len < sizeof(head))
		return malformed(conn);
	memcpy(&head, frame, sizeof(head));
	if (conn->out)
		return head.kind == RDM_FIN ? on_finish(conn, &head) : malformed(conn);
	if (!(head.flags & RDM_TAGGED))
		head.tag = 0;
	switch (head.kind) {
	case RDM_MESSAGE:
		if (le64_to_cpu(head.len) != len - sizeof(head))
			return malformed(conn);
		return on_message(conn, &head, frame + sizeof(head));
	case RDM_RTS:
		if (len != sizeof(head))
			return malformed(conn);
		if (!rdm_enter(conn))	/* it cannot be read any more */
			return true;
		taken = on_message(conn, &head, NULL);
		rdm_idle(conn);
		return taken;
	default:
		return malformed(conn);
	}
}

/* --- buffers --- */

static int post_buffer(struct rdm_conn *conn, struct rdm_buffer *buffer)
{
	ssize_t status = -ENOTCONN;

	if (rdm_enter(conn)) {
		status = fi_recv(conn->lower, buffer->frame, RDM_FRAME_BYTES, NULL, FI_ADDR_UNSPEC,
				 &buffer->io);
		rdm_idle(conn);
	}
	if (status && status != -ENOTCONN)
		rdm_over(conn, ENOMEM, KOFI_PE_DIED);
	return status == -ENOTCONN ? 0 : status;
}

int rdm_post_buffers(struct rdm_conn *conn)
{
	unsigned int i;
	int status = 0;

	for (i = 0; i < conn->buffer_count && !status; i++) {
		conn->buffers[i].io.type = RDM_IO_BUFFER;
		status = post_buffer(conn, &conn->buffers[i]);
	}
	return status;
}

static void set_holds(struct rdm_conn *conn, bool holds)
{
	spin_lock_bh(&conn->ep->lock);
	if (conn->holds != holds)
		conn->ep->holding += holds ? 1 : -1;
	conn->holds = holds;
	spin_unlock_bh(&conn->ep->lock);
}

static void on_buffer(struct rdm_conn *conn, struct rdm_buffer *buffer, size_t len)
{
	buffer->len = len;
	if (list_empty(&conn->held) && take_frame(conn, buffer->frame, len)) {
		post_buffer(conn, buffer);
		return;
	}
	list_add_tail(&buffer->node, &conn->held);
	set_holds(conn, true);
}

/* Frames that found no room, in their order. The peer waits for their buffers. */
void rdm_unhold(struct rdm_conn *conn)
{
	struct rdm_buffer *buffer;

	mutex_lock(&conn->rx);
	while ((buffer = list_first_entry_or_null(&conn->held, struct rdm_buffer, node))) {
		if (!take_frame(conn, buffer->frame, buffer->len))
			break;
		list_del(&buffer->node);
		post_buffer(conn, buffer);
	}
	if (list_empty(&conn->held))
		set_holds(conn, false);
	mutex_unlock(&conn->rx);
}

/* --- the end of operations below --- */

static void on_op(struct rdm_conn *conn, struct rdm_op *op, int err, int reason)
{
	struct rdm_op *announced;
	u64 remote = op->remote;

	switch (op->kind) {
	case RDM_OP_FRAME:
		if (!op->id) {
			spin_lock_bh(&conn->ep->lock);
			conn->answers--;
			spin_unlock_bh(&conn->ep->lock);
		}
		announced = err && op->id ? xa_erase(&conn->announced, op->id) : NULL;
		if (announced)
			rdm_op_end(announced, err, reason);
		rdm_op_end(op, err, reason);
		break;
	case RDM_OP_RECV:
		rdm_op_end(op, err ?: op->op.done.olen ? FI_ETRUNC : 0, reason);
		rdm_finish(conn, remote, err);
		break;
	default:
		rdm_op_end(op, err, reason);
	}
}

static void on_entry(void *of, const struct fi_cq_tagged_entry *entry, int err, int reason)
{
	struct rdm_io *io = entry->op_context;
	struct rdm_conn *conn = of;

	if (!io) {
		if (!err && (entry->flags & FI_REMOTE_CQ_DATA))
			kofi_complete_remote(&conn->ep->ep, FI_RMA, true, entry->len,
					     FI_REMOTE_CQ_DATA, entry->data);
	} else if (io->type == RDM_IO_OP) {
		on_op(conn, container_of(io, struct rdm_op, io), err, reason);
	} else if (!err) {
		on_buffer(conn, container_of(io, struct rdm_buffer, io), entry->len);
	} else if (err == FI_ETRUNC) {
		malformed(conn);
	}
}

void rdm_poll(struct fid_cq *cq, void *context)
{
	struct rdm_conn *conn = context;

	mutex_lock(&conn->rx);
	kofi_cq_drain(cq, conn, on_entry);
	mutex_unlock(&conn->rx);
	spin_lock_bh(&conn->ep->lock);
	if (conn->state == RDM_OPEN && !list_empty(&conn->pending))
		rdm_todo_locked(conn);
	spin_unlock_bh(&conn->ep->lock);
}
