// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The end of a connection: whatever is posted, under way or kept ends with it.
 * Must not know who ends it.
 */
#include "tcp.h"

/* Ends the connection, and all operations. */
void ktcp_end(struct ktcp_ep *ep, int err, int reason)
{
	bool was_open = ep->state == KTCP_OPEN;
	struct ktcp_op *op, *next;
	unsigned long id;
	LIST_HEAD(gone);
	int i;

	ktcp_take_over(ep);
	ep->state = KTCP_OVER;
	ep->reason = reason;
	ep->owed_count = 0;
	if (ep->sock)
		kernel_sock_shutdown(ep->sock, SHUT_RDWR);
	ktcp_match_fresh(ep);
	spin_lock_bh(&ep->tx_lock);
	WRITE_ONCE(ep->closed, true);
	list_splice_init(&ep->pending, &gone);
	spin_unlock_bh(&ep->tx_lock);
	spin_lock_bh(&ep->lock);
	list_splice_tail_init(&ep->fresh, &gone);
	for (i = 0; i < 2; i++)
		list_splice_tail_init(&ep->posted[i], &gone);
	spin_unlock_bh(&ep->lock);
	ktcp_frames_drop(ep);
	ktcp_receive_drop(ep);
	xa_for_each(&ep->ops, id, op)
		ktcp_op_end(ep, op, op->kind == KTCP_RECV ? ECANCELED : err, reason);
	list_for_each_entry_safe(op, next, &gone, op.node)
		ktcp_op_end(ep, op, op->kind == KTCP_RECV ? ECANCELED : err, reason);
	if (was_open)
		kofi_eq_write_cm(ep->ep.eq, FI_SHUTDOWN, &ep->ep.fid, NULL, NULL, 0);
}
