// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Memory: pieces of vectors, copies between them, the table of registered
 * regions, atomics on them.
 */
#include "internal.h"

#include <linux/overflow.h>
#include <linux/slab.h>

#include <kofi/compat.h>

static size_t entry_len(const struct kofi_iter *iter)
{
	switch (iter->vec->type) {
	case KOFI_BUF:
		return iter->vec->offset + iter->vec->len;
	case KOFI_KVEC:
		return iter->vec->kvec[iter->index].iov_len;
	case KOFI_BVEC:
		return iter->vec->bvec[iter->index].bv_len;
	default:
		return iter->sg->length;
	}
}

static void next_entry(struct kofi_iter *iter)
{
	iter->skip = 0;
	iter->index++;
	if (iter->vec->type == KOFI_SG && iter->sg)
		iter->sg = sg_next(iter->sg);
}

static bool at_end(const struct kofi_iter *iter)
{
	return iter->index >= iter->vec->count || (iter->vec->type == KOFI_SG && !iter->sg);
}

void kofi_iter_init(struct kofi_iter *iter, const struct kofi_vec *vec, size_t offset)
{
	size_t skip = vec->offset + offset;

	iter->vec = vec;
	iter->index = 0;
	iter->sg = vec->type == KOFI_SG ? vec->sg : NULL;
	iter->left = offset < vec->len ? vec->len - offset : 0;
	iter->skip = 0;
	while (!at_end(iter) && skip >= entry_len(iter)) {
		skip -= entry_len(iter);
		next_entry(iter);
	}
	iter->skip = skip;
}
EXPORT_SYMBOL_GPL(kofi_iter_init);

static void page_piece(struct kofi_piece *piece, struct page *page, size_t offset)
{
	piece->addr = NULL;
	piece->page = nth_page(page, offset >> PAGE_SHIFT);
	piece->offset = offset_in_page(offset);
	piece->len = min_t(size_t, piece->len, PAGE_SIZE - piece->offset);
}

bool kofi_iter_next(struct kofi_iter *iter, struct kofi_piece *piece, size_t max)
{
	const struct kofi_vec *vec = iter->vec;

	while (!at_end(iter) && iter->skip >= entry_len(iter))
		next_entry(iter);
	if (at_end(iter) || !iter->left || !max)
		return false;
	piece->len = min3(entry_len(iter) - iter->skip, iter->left, max);
	switch (vec->type) {
	case KOFI_BUF:
		piece->addr = vec->buf + iter->skip;
		break;
	case KOFI_KVEC:
		piece->addr = vec->kvec[iter->index].iov_base + iter->skip;
		break;
	case KOFI_BVEC:
		page_piece(piece, vec->bvec[iter->index].bv_page,
			   vec->bvec[iter->index].bv_offset + iter->skip);
		break;
	default:
		page_piece(piece, sg_page(iter->sg), iter->sg->offset + iter->skip);
	}
	iter->skip += piece->len;
	iter->left -= piece->len;
	return true;
}
EXPORT_SYMBOL_GPL(kofi_iter_next);

bool kofi_vec_valid(const struct kofi_vec *vec)
{
	struct kofi_iter iter = { .vec = vec, .sg = vec->type == KOFI_SG ? vec->sg : NULL };
	size_t need, have = 0;

	if (check_add_overflow(vec->offset, vec->len, &need))
		return false;
	if (vec->type == KOFI_BUF)
		return vec->buf || !vec->len;
	for (; have < need && !at_end(&iter); next_entry(&iter))
		have += entry_len(&iter);
	return have >= need;
}
EXPORT_SYMBOL_GPL(kofi_vec_valid);

size_t kofi_copy(const struct kofi_vec *to, size_t to_offset, const struct kofi_vec *from,
		 size_t from_offset, size_t len)
{
	struct kofi_iter in, out;
	struct kofi_piece source, target;
	size_t done = 0;

	kofi_iter_init(&out, to, to_offset);
	kofi_iter_init(&in, from, from_offset);
	while (done < len && kofi_iter_next(&out, &target, len - done)) {
		void *at = kofi_piece_map(&target);
		size_t filled = 0;

		while (filled < target.len &&
		       kofi_iter_next(&in, &source, target.len - filled)) {
			void *mapped = kofi_piece_map(&source);

			memcpy(at + filled, mapped, source.len);
			kofi_piece_unmap(&source, mapped);
			filled += source.len;
		}
		kofi_piece_unmap(&target, at);
		done += filled;
		if (filled < target.len)
			break;
	}
	return done;
}
EXPORT_SYMBOL_GPL(kofi_copy);

/* --- regions --- */

int kofi_mr_table_new(struct kofi_mr_table **table)
{
	*table = kzalloc(sizeof(**table), GFP_KERNEL);
	if (!*table)
		return -ENOMEM;
	xa_init_flags(&(*table)->regions, XA_FLAGS_LOCK_IRQ);
	return 0;
}

static void mr_close(struct fid *fid)
{
	struct kofi_mr *mr = container_of(fid, struct kofi_mr, mr.fid);
	struct fid_domain *domain = container_of(fid->parent, struct fid_domain, fid);

	xa_erase_irq(&domain->mrs->regions, mr->mr.key);
	kofi_mr_put(mr);	/* the table's own */
	wait_for_completion(&mr->unused);
	kfree(mr);
}

static const struct fi_ops mr_ops = { .close = mr_close };

int kofi_mr_new(struct fid_domain *domain, const struct fi_mr_attr *attr, struct fid_mr **out)
{
	struct kofi_mr *mr;
	int status;

	if (!kofi_vec_valid(&attr->vec))
		return -EINVAL;
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return -ENOMEM;
	mr->vec = attr->vec;
	mr->access = attr->access;
	mr->mr.key = attr->requested_key;
	mr->mr.fid.ops = &mr_ops;
	atomic_set(&mr->pins, 1);
	init_completion(&mr->unused);
	mr->mr.fid.parent = &domain->fid;
	status = xa_insert_irq(&domain->mrs->regions, mr->mr.key, mr, GFP_KERNEL);
	if (status) {
		kfree(mr);
		return status == -EBUSY ? -FI_ENOKEY : status;
	}
	*out = &mr->mr;
	return 0;
}

struct kofi_mr *kofi_mr_get(struct fid_domain *domain, u64 key, u64 addr, size_t len, u64 access)
{
	struct kofi_mr *mr;
	unsigned long flags;
	int status = 0;

	xa_lock_irqsave(&domain->mrs->regions, flags);
	mr = xa_load(&domain->mrs->regions, key);
	if (!mr)
		status = -EKEYREJECTED;
	else if ((mr->access & access) != access || addr > mr->vec.len ||
		 len > mr->vec.len - addr)
		status = -EACCES;
	else
		atomic_inc(&mr->pins);
	xa_unlock_irqrestore(&domain->mrs->regions, flags);
	return status ? ERR_PTR(status) : mr;
}
EXPORT_SYMBOL_GPL(kofi_mr_get);

void kofi_mr_put(struct kofi_mr *mr)
{
	if (atomic_dec_and_test(&mr->pins))
		complete(&mr->unused);
}
EXPORT_SYMBOL_GPL(kofi_mr_put);

/* --- atomics --- */

bool kofi_atomic_valid(enum fi_datatype datatype, enum fi_op op, bool fetch, bool compare)
{
	if ((unsigned int)datatype >= FI_DATATYPE_LAST || (unsigned int)op >= FI_ATOMIC_OP_LAST)
		return false;
	if (compare)
		return op >= FI_CSWAP;
	return op < FI_CSWAP && (fetch || op != FI_ATOMIC_READ);
}
EXPORT_SYMBOL_GPL(kofi_atomic_valid);

static u64 load(const void *at, unsigned int size)
{
	switch (size) {
	case 1: return *(const u8 *)at;
	case 2: return *(const u16 *)at;
	case 4: return *(const u32 *)at;
	default: return *(const u64 *)at;
	}
}

static void store(void *at, unsigned int size, u64 value)
{
	memcpy(at, &value, size);	/* little-endian: the low bytes */
}

/* Whether a < b as @datatype has it. */
static bool less(u64 a, u64 b, unsigned int size, bool sign)
{
	unsigned int shift = 64 - 8 * size;

	if (sign)
		return (s64)(a << shift) < (s64)(b << shift);
	return (a << shift) < (b << shift);
}

static u64 combine(enum fi_op op, u64 old, u64 operand, u64 compare, unsigned int size, bool sign)
{
	switch (op) {
	case FI_MIN:
		return less(operand, old, size, sign) ? operand : old;
	case FI_MAX:
		return less(old, operand, size, sign) ? operand : old;
	case FI_SUM:
		return old + operand;
	case FI_PROD:
		return old * operand;
	case FI_LOR:
		return old || operand;
	case FI_LAND:
		return old && operand;
	case FI_BOR:
		return old | operand;
	case FI_BAND:
		return old & operand;
	case FI_LXOR:
		return !old != !operand;
	case FI_BXOR:
		return old ^ operand;
	case FI_ATOMIC_WRITE:
		return operand;
	case FI_CSWAP:
		return compare == old ? operand : old;
	case FI_CSWAP_NE:
		return compare != old ? operand : old;
	case FI_CSWAP_LE:
		return !less(old, compare, size, sign) ? operand : old;
	case FI_CSWAP_LT:
		return less(compare, old, size, sign) ? operand : old;
	case FI_CSWAP_GE:
		return !less(compare, old, size, sign) ? operand : old;
	case FI_CSWAP_GT:
		return less(old, compare, size, sign) ? operand : old;
	case FI_MSWAP:
		return (operand & compare) | (old & ~compare);
	default:
		return old;
	}
}

static bool exchange(void *at, unsigned int size, u64 old, u64 new)
{
	switch (size) {
	case 1: return cmpxchg((u8 *)at, (u8)old, (u8)new) == (u8)old;
	case 2: return cmpxchg((u16 *)at, (u16)old, (u16)new) == (u16)old;
	case 4: return cmpxchg((u32 *)at, (u32)old, (u32)new) == (u32)old;
	default: return cmpxchg((u64 *)at, old, new) == old;
	}
}

int kofi_atomic(struct kofi_mr *mr, u64 addr, enum fi_datatype datatype, enum fi_op op,
		const void *operand, const void *compare, void *result, size_t count)
{
	unsigned int size = fi_datatype_size(datatype);
	bool sign = !(datatype & 1);
	struct kofi_iter iter;
	struct kofi_piece piece;
	size_t i, done = 0;

	kofi_iter_init(&iter, &mr->vec, addr);
	while (done < count && kofi_iter_next(&iter, &piece, (count - done) * size)) {
		void *at = kofi_piece_map(&piece);
		bool aligned = IS_ALIGNED((unsigned long)at, size) && !(piece.len % size);

		for (i = 0; aligned && i < piece.len / size; i++, done++) {
			u64 a = operand ? load(operand + done * size, size) : 0;
			u64 b = compare ? load(compare + done * size, size) : 0;
			u64 old;

			do {
				old = load(at + i * size, size);
			} while (!exchange(at + i * size, size, old,
					   combine(op, old, a, b, size, sign)));
			if (result)
				store(result + done * size, size, old);
		}
		kofi_piece_unmap(&piece, at);
		if (!aligned)
			return -EINVAL;
	}
	return 0;
}
EXPORT_SYMBOL_GPL(kofi_atomic);
