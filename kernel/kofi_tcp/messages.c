// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Messages of the peer and the receives that they meet: matching, messages that
 * are kept until their receive comes, the answer to an announcement.
 */
#include "receive.h"

#include <linux/mm.h>
#include <linux/slab.h>

/* What a receive learns of its message. */
void ktcp_meet(struct ktcp_op *op, u64 total, u64 tag, bool has_data, u64 data)
{
	op->total = min_t(u64, total, op->op.vec.len);
	op->done = 0;
	op->op.done.olen = total - op->total;
	op->op.done.entry.len = op->total;
	op->op.done.entry.tag = tag;
	op->op.done.entry.data = has_data ? data : 0;
	if (has_data)
		op->op.done.entry.flags |= FI_REMOTE_CQ_DATA;
}

void ktcp_finish_receive(struct ktcp_ep *ep, struct ktcp_op *op)
{
	ktcp_op_end(ep, op, op->op.done.olen ? FI_ETRUNC : 0, 0);
}

static int start_rendezvous(struct ktcp_ep *ep, struct ktcp_op *op, u64 remote)
{
	struct ktcp_cts cts;
	int status;

	op->remote = remote;
	if (!op->total) {
		ktcp_finish_receive(ep, op);
		return ktcp_done(ep, remote, 0);
	}
	status = ktcp_op_name(ep, op, GFP_NOIO);
	if (status) {
		ktcp_op_end(ep, op, -status, 0);
		return ktcp_done(ep, remote, ENOMEM);
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

void ktcp_unkeep(struct ktcp_ep *ep, struct ktcp_unexpected *un)
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

	kofi_copy(&op->op.vec, 0, &from, 0, op->total);
	ktcp_finish_receive(ep, op);
	status = ep->state == KTCP_OPEN ? ktcp_done(ep, un->operation, 0) : 0;
	ktcp_unkeep(ep, un);
	return status;
}

/* A receive gets a message that was kept. */
static void give(struct ktcp_ep *ep, struct ktcp_op *op, struct ktcp_unexpected *un)
{
	int status;

	ktcp_meet(op, un->total, un->tag, un->has_data, un->data);
	if (un->rendezvous) {
		u64 remote = un->operation;

		ktcp_unkeep(ep, un);
		status = start_rendezvous(ep, op, remote);
	} else if (un->arrived < un->total) {
		status = ktcp_op_name(ep, op, GFP_NOIO);	/* so that it is found at the end */
		if (status)
			ktcp_op_end(ep, op, -status, 0);
		else
			un->claimed = op;
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
		if (!un->claimed && !((op->op.done.entry.tag ^ un->tag) & ~op->ignore))
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
		op = list_first_entry_or_null(&ep->fresh, struct ktcp_op, op.node);
		if (op) {
			list_del(&op->op.node);
			un = oldest_for(ep, op);
			if (!un)
				list_add_tail(&op->op.node, &ep->posted[op->tagged]);
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
	list_for_each_entry(op, &ep->posted[tagged], op.node)
		if (!((op->op.done.entry.tag ^ tag) & ~op->ignore)) {
			found = op;
			list_del(&op->op.node);
			break;
		}
	spin_unlock_bh(&ep->lock);
	return found;
}

/*
 * A long message came when its receive is not posted, as it does where the
 * client is slower than its peer. Keeping it means to copy it twice; so it stays
 * in the socket for a moment, unless another one is kept already.
 */
static bool await_receive(struct ktcp_ep *ep, u64 total)
{
	bool may;

	spin_lock_bh(&ep->lock);
	if (!ep->awaited)
		ep->awaited_until = jiffies + KTCP_AWAIT;
	may = total > KT_EAGER_MAX && !ep->has_unexpected && time_before(jiffies, ep->awaited_until);
	ep->awaited = may;	/* from here on a receive queues the work */
	spin_unlock_bh(&ep->lock);
	return may;
}

static void awaits_none(struct ktcp_ep *ep)
{
	spin_lock_bh(&ep->lock);
	ep->awaited = false;
	spin_unlock_bh(&ep->lock);
}

/* A message of @total bytes begins; they come as the payload of its frames. */
int ktcp_begin_message(struct ktcp_ep *ep, const struct ktcp_head *head, bool tagged, u64 total)
{
	struct ktcp_op *op;

	if (ep->fragment_left)
		return ktcp_malformed(ep);
	op = match(ep, tagged, tagged ? head->a : 0);
	if (!op && await_receive(ep, total)) {
		op = match(ep, tagged, tagged ? head->a : 0);
		if (!op)
			return LATER;
	}
	if (op) {
		awaits_none(ep);
		ktcp_meet(op, total, tagged ? head->a : 0, head->flags & KT_HAS_DATA, head->b);
		if (!total) {
			ktcp_finish_receive(ep, op);
			return 0;
		}
		if (ktcp_op_name(ep, op, GFP_NOIO)) {
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

int ktcp_end_message(struct ktcp_ep *ep)
{
	struct ktcp_unexpected *un = ep->fragment_unexpected;
	struct ktcp_op *op = ep->fragment_op;

	ep->fragment_unexpected = NULL;
	ep->fragment_op = NULL;
	if (op)
		ktcp_finish_receive(ep, op);
	else if (un && un->claimed)
		return deliver(ep, un->claimed, un);
	return 0;
}

int ktcp_on_acked(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *at, bool tagged)
{
	u64 tag = tagged ? head->a : 0, len;
	struct kofi_vec from;
	struct ktcp_op *op;

	if (head->length < 8)
		return ktcp_malformed(ep);
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
	ktcp_meet(op, len, tag, head->flags & KT_HAS_DATA, head->b);
	from = kofi_vec_buf(at + 8, len);
	kofi_copy(&op->op.vec, 0, &from, 0, op->total);
	ktcp_finish_receive(ep, op);
	return ktcp_done(ep, get_unaligned_le64(at), 0);
}

int ktcp_on_rts(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *at, bool tagged)
{
	u64 tag = tagged ? head->a : 0;
	struct ktcp_unexpected *un;
	struct ktcp_rts rts;
	struct ktcp_op *op;

	if (head->length < sizeof(rts))
		return ktcp_malformed(ep);
	memcpy(&rts, at, sizeof(rts));
	op = match(ep, tagged, tag);
	if (op) {
		ktcp_meet(op, le64_to_cpu(rts.total), tag, head->flags & KT_HAS_DATA, head->b);
		return start_rendezvous(ep, op, le64_to_cpu(rts.operation));
	}
	un = keep(ep, head, tagged, le64_to_cpu(rts.total), true);
	if (!un)
		return LATER;
	un->operation = le64_to_cpu(rts.operation);
	return 0;
}
