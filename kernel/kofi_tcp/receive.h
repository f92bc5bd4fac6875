/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What receive.c and direct.c use of the files that take what the peer sends. */
#ifndef _KTCP_RECEIVE_H
#define _KTCP_RECEIVE_H

#include "tcp.h"

#define LATER 1		/* the frame stays in the stage: no memory, or too much is waiting */

/* messages.c, and onesided.c: 0, LATER, or an errno that ends the connection; as all of these. */
int ktcp_begin_message(struct ktcp_ep *ep, const struct ktcp_head *head, bool tagged, u64 total);
int ktcp_end_message(struct ktcp_ep *ep);
int ktcp_on_acked(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *at, bool tagged);
int ktcp_on_rts(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *at, bool tagged);
/* What a receive learns of its message. */
void ktcp_meet(struct ktcp_op *op, u64 total, u64 tag, bool has_data, u64 data);
void ktcp_finish_receive(struct ktcp_ep *ep, struct ktcp_op *op);
void ktcp_unkeep(struct ktcp_ep *ep, struct ktcp_unexpected *un);

/* onesided.c */
int ktcp_on_cts(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *at);
int ktcp_on_done(struct ktcp_ep *ep, const struct ktcp_head *head);
int ktcp_on_reply(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *at);
int ktcp_on_write(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *at, bool rendezvous);
int ktcp_on_read(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *at);
int ktcp_on_atomic(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *at);
/* Reads @count targets. Their bytes, or negative. */
s64 ktcp_take_targets(const u8 **at, u32 *left, u32 count, struct ktcp_access *access);
/* Whether all targets grant it: 0 or a positive errno. */
int ktcp_check_access(struct ktcp_ep *ep, const struct ktcp_access *access, u64 rights);
void ktcp_note_remote(struct ktcp_ep *ep, u64 kind, bool write, u64 len, bool has_data, u64 data);

#endif
