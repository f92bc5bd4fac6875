// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Operations that are under way: the ids by which the peer names them, and
 * their end. Must not know what they do.
 */
#include "tcp.h"

#include <linux/slab.h>

int ktcp_op_name(struct ktcp_ep *ep, struct ktcp_op *op, gfp_t gfp)
{
	return xa_alloc_cyclic_bh(&ep->ops, &op->id, op, XA_LIMIT(1, U32_MAX), &ep->next_id,
				  gfp) < 0 ? -ENOMEM : 0;
}

void ktcp_op_unname(struct ktcp_ep *ep, struct ktcp_op *op)
{
	xa_erase_bh(&ep->ops, op->id);
	op->id = 0;
}

struct ktcp_op *ktcp_op_named(struct ktcp_ep *ep, u64 id)
{
	return id <= U32_MAX ? xa_load(&ep->ops, id) : NULL;
}

void ktcp_op_end(struct ktcp_ep *ep, struct ktcp_op *op, int err, int reason)
{
	if (op->id)
		ktcp_op_unname(ep, op);
	if (op->kind == KTCP_INBOUND)
		kfree(op);
	else
		kofi_op_end(&op->op, err, err == EKEYREJECTED ? KOFI_PE_REMOTE_KEY :
					  err == EACCES ? KOFI_PE_REMOTE_ACCESS : reason);
}
