// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What the peer answers to this side's operations, and its own operations on
 * registered memory. Keys and bounds are looked up for each piece.
 */
#include "receive.h"

#include <linux/slab.h>
#include <net/tcp.h>

/* --- answers to what this side has begun --- */

int ktcp_on_cts(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *at)
{
	struct ktcp_op *op = ktcp_op_named(ep, head->a);
	struct ktcp_cts cts;

	if (head->length != sizeof(cts) || !op || !op->announced || op->streaming)
		return ktcp_malformed(ep);
	memcpy(&cts, at, sizeof(cts));
	if (!cts.length || le64_to_cpu(cts.length) > op->op.vec.len)
		return ktcp_malformed(ep);
	op->streaming = true;
	return ktcp_stream(ep, op, NULL, le64_to_cpu(cts.operation), le64_to_cpu(cts.length));
}

int ktcp_on_done(struct ktcp_ep *ep, const struct ktcp_head *head)
{
	struct ktcp_op *op = ktcp_op_named(ep, head->a);
	int err = head->flags & KT_HAS_B ? head->b & 0xffff : 0;

	if (!op || op->kind == KTCP_RECV || op->kind == KTCP_INBOUND || op->referenced)
		return ktcp_malformed(ep);
	/* The socket refers to pages that the peer cannot have. */
	if (op->streaming && before(tcp_sk(ep->sock->sk)->snd_una, op->end_seq))
		return ktcp_malformed(ep);
	if (!err && ((op->kind == KTCP_READ && op->total) ||
		     (op->kind == KTCP_ATOMIC && op->atomic.result)))
		return ktcp_malformed(ep);
	if (!err && op->announced && !op->streaming && op->op.vec.len && op->kind == KTCP_WRITE)
		return ktcp_malformed(ep);
	ktcp_op_end(ep, op, err, 0);
	return 0;
}

int ktcp_on_reply(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *at)
{
	struct ktcp_op *op = ktcp_op_named(ep, head->a);

	if (!op || op->kind != KTCP_ATOMIC || !op->atomic.result || head->length != op->op.vec.len)
		return ktcp_malformed(ep);
	memcpy(op->atomic.result, at, head->length);
	ktcp_op_end(ep, op, 0, 0);
	return 0;
}

/* --- one-sided operations of the peer --- */

/* Reads @count targets. Their bytes, or negative. */
s64 ktcp_take_targets(const u8 **at, u32 *left, u32 count, struct ktcp_access *access)
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
int ktcp_check_access(struct ktcp_ep *ep, const struct ktcp_access *access, u64 rights)
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

void ktcp_note_remote(struct ktcp_ep *ep, u64 kind, bool write, u64 len, bool has_data, u64 data)
{
	kofi_complete_remote(&ep->ep, kind, write, len, has_data ? FI_REMOTE_CQ_DATA : 0, data);
}

int ktcp_on_write(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *at, bool rendezvous)
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
		return ktcp_malformed(ep);
	memcpy(&rma, at, sizeof(rma));
	at += sizeof(rma);
	left -= sizeof(rma);
	bytes = ktcp_take_targets(&at, &left, le32_to_cpu(rma.targets), &access);
	if (bytes < 0 || le64_to_cpu(rma.total) != bytes)
		return ktcp_malformed(ep);
	err = ktcp_check_access(ep, &access, FI_REMOTE_WRITE);
	if (!rendezvous) {
		if (left != bytes)
			return ktcp_malformed(ep);
		if (!err)
			err = copy_access(ep, &access, (void *)at, true);
		if (!err)
			ktcp_note_remote(ep, FI_RMA, true, bytes, head->flags & KT_HAS_DATA,
					 head->b);
		return ktcp_done(ep, head->a, err);
	}
	if (left < sizeof(rts))
		return ktcp_malformed(ep);
	memcpy(&rts, at, sizeof(rts));
	if (rts.total != rma.total)
		return ktcp_malformed(ep);
	if (err)
		return ktcp_done(ep, head->a, err);
	if (ep->inbound >= KTCP_ANSWERS_MAX)
		return ktcp_malformed(ep);
	op = kzalloc(sizeof(*op), GFP_KERNEL);
	if (!op)
		return ktcp_done(ep, head->a, ENOMEM);
	op->kind = KTCP_INBOUND;
	op->access = access;
	op->remote = head->a;
	op->total = bytes;
	op->op.done.entry.data = head->b;
	op->flags = head->flags & KT_HAS_DATA ? FI_REMOTE_CQ_DATA : 0;
	if (!bytes || ktcp_op_name(ep, op, GFP_NOIO)) {
		kfree(op);
		return ktcp_done(ep, head->a, bytes ? ENOMEM : 0);
	}
	ep->inbound++;
	cts = (struct ktcp_cts){ cpu_to_le64(op->id), cpu_to_le64(bytes) };
	return ktcp_say(ep, KT_CTS, 0, le64_to_cpu(rts.operation), 0, &cts, sizeof(cts));
}

int ktcp_on_read(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *at)
{
	struct ktcp_access access;
	struct ktcp_rma rma;
	u32 left = head->length;
	s64 bytes;
	void *copy;
	int err;

	if (left < sizeof(rma))
		return ktcp_malformed(ep);
	memcpy(&rma, at, sizeof(rma));
	at += sizeof(rma);
	left -= sizeof(rma);
	bytes = ktcp_take_targets(&at, &left, le32_to_cpu(rma.targets), &access);
	if (bytes < 0 || left || le64_to_cpu(rma.total) != bytes)
		return ktcp_malformed(ep);
	err = ktcp_check_access(ep, &access, FI_REMOTE_READ);
	if (err || !bytes)
		return ktcp_done(ep, head->a, err);
	if (bytes > KT_EAGER_MAX) {
		ktcp_note_remote(ep, FI_RMA, false, bytes, false, 0);
		return ktcp_stream(ep, NULL, &access, head->a, bytes);
	}
	/* Short: the bytes of now, whatever is written later (FI_ORDER_WAR). */
	copy = kmalloc(bytes, GFP_KERNEL);
	if (!copy)
		return ktcp_done(ep, head->a, ENOMEM);
	err = copy_access(ep, &access, copy, false);
	if (err)
		err = ktcp_done(ep, head->a, err);
	else
		err = ktcp_say(ep, KT_SEGMENT, KT_HAS_B, head->a, 0, copy, bytes);
	kfree(copy);
	ktcp_note_remote(ep, FI_RMA, false, bytes, false, 0);
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

int ktcp_on_atomic(struct ktcp_ep *ep, const struct ktcp_head *head, const u8 *at)
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
		return ktcp_malformed(ep);
	memcpy(&atomic, at, sizeof(atomic));
	at += sizeof(atomic);
	left -= sizeof(atomic);
	datatype = le32_to_cpu(atomic.datatype);
	op = le32_to_cpu(atomic.op);
	kind = le32_to_cpu(atomic.kind);
	bytes = ktcp_take_targets(&at, &left, le32_to_cpu(atomic.targets), &access);
	if (bytes < 0 || kind > KT_ATOMIC_COMPARE)
		return ktcp_malformed(ep);
	reads_only = op == FI_ATOMIC_READ;
	rights = (reads_only ? 0 : FI_REMOTE_WRITE) |
		 (kind != KT_ATOMIC_WRITE ? FI_REMOTE_READ : 0);
	err = ktcp_check_access(ep, &access, rights);
	if (err)
		return ktcp_done(ep, head->a, err);
	operand = reads_only ? 0 : bytes;
	compare = kind == KT_ATOMIC_COMPARE ? bytes : 0;
	if (bytes > KOFI_ATOMIC_BYTES_MAX || bytes != le64_to_cpu(atomic.bytes) ||
	    left != operand + compare)
		return ktcp_done(ep, head->a, EINVAL);
	if (!kofi_atomic_valid(datatype, op, kind != KT_ATOMIC_WRITE, kind == KT_ATOMIC_COMPARE))
		return ktcp_done(ep, head->a, EOPNOTSUPP);
	result = kmalloc(KOFI_ATOMIC_BYTES_MAX, GFP_KERNEL);
	if (!result)
		return ktcp_done(ep, head->a, ENOMEM);
	err = apply_atomic(ep, &access, datatype, op, rights, reads_only ? NULL : at,
			   compare ? at + operand : NULL, result);
	if (!err)
		ktcp_note_remote(ep, FI_ATOMIC, !reads_only, bytes, false, 0);
	if (err || kind == KT_ATOMIC_WRITE)
		err = ktcp_done(ep, head->a, err);
	else
		err = ktcp_say(ep, KT_REPLY, 0, head->a, 0, result, bytes);
	kfree(result);
	return err;
}
