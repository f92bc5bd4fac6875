/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What handlers of queues do: read until nothing is left. For clients whose
 * handlers take each entry or event as it comes.
 */
#ifndef _KOFI_HANDLER_H
#define _KOFI_HANDLER_H

#include <kofi/data.h>
#include <linux/mutex.h>

/*
 * Reads a queue of format TAGGED until it is empty. @on_entry gets each entry;
 * of an operation that failed op_context, flags and a positive @err. Returns
 * what the last read answered: -EAGAIN, -FI_EOVERRUN. Inlined, so that the call
 * of @on_entry is a direct one.
 */
static __always_inline ssize_t
kofi_cq_drain(struct fid_cq *cq, void *of,
	      void (*on_entry)(void *of, const struct fi_cq_tagged_entry *entry, int err,
			       int reason))
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error;
	ssize_t got;

	for (;;) {
		got = fi_cq_read(cq, &entry, 1);
		if (got == 1) {
			on_entry(of, &entry, 0, 0);
		} else if (got == -FI_EAVAIL && fi_cq_readerr(cq, &error, 0) == 1) {
			entry = (struct fi_cq_tagged_entry){ .op_context = error.op_context,
							     .flags = error.flags };
			on_entry(of, &entry, error.err, error.prov_errno);
		} else {
			return got;
		}
	}
}

/* An event of connections. */
struct kofi_cm_event {
	u32		type;		/* FI_CONNREQ, FI_CONNECTED, FI_SHUTDOWN */
	int		err;		/* positive: fid is an endpoint that is not connected */
	int		reason;
	struct fid	*fid;
	struct fi_info	*info;		/* FI_CONNREQ: freed when @on_event returns */
	const void	*data;		/* of the peer, at most 64 bytes */
	size_t		len;
};

/*
 * Reads a queue until it is empty. Each event is taken and handled under @lock:
 * closing an endpoint drops its events, so a client that closes its endpoints
 * under the same lock gets no event of a closed one. Process context.
 */
void kofi_eq_drain(struct fid_eq *eq, struct mutex *lock, void *of,
		   void (*on_event)(void *of, const struct kofi_cm_event *event));

#endif
