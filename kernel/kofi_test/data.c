// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Cases of the data calls. */
#include "test.h"

#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

static const u32 sizes[] = { 0, 1, 7, 8, 63, 64, 1000, 4096, 8191, 8192, 8193, 16384, 65535,
			     65536, 65537, 262143, 262144, 262145, 1 << 20, (1 << 20) + 13 };

static int one_message(struct side *from, struct side *to, u32 len, bool with_data)
{
	u64 data = (0xfeedfacecafe0000ull + len) & from->data_mask;
	struct fi_cq_tagged_entry entry;

	fill(from->buf, len, len);
	memset(to->buf, 0xee, len + 8);
	TRY(fi_recv(to->ep, to->buf, len + 4, NULL, 0, to));
	if (with_data)
		TRY(fi_senddata(from->ep, from->buf, len, NULL, data, 0, from));
	else
		TRY(fi_send(from->ep, from->buf, len, NULL, 0, from));
	CHECK(next_completion(to->cq, &entry));
	CHECK(entry.op_context == to && entry.len == len && (entry.flags & FI_RECV));
	CHECK((entry.flags & FI_MSG) && !!(entry.flags & FI_REMOTE_CQ_DATA) == with_data);
	CHECK(!with_data || entry.data == data);
	CHECK(filled(to->buf, len, len) && to->buf[len] == 0xee);
	CHECK(next_completion(from->cq, &entry));
	CHECK(entry.op_context == from && (entry.flags & (FI_SEND | FI_MSG)) == (FI_SEND | FI_MSG));
	return 0;
}

static int short_receive(struct side *from, struct side *to, u32 len)
{
	struct fi_cq_err_entry error;

	if (from->brittle)
		return 0;
	fill(from->buf, len, 3);
	memset(to->buf, 0xee, 16);
	TRY(fi_recv(to->ep, to->buf, 10, NULL, 0, to));
	TRY(fi_send(from->ep, from->buf, len, NULL, 0, from));
	CHECK(next_error(to->cq, &error));
	CHECK(error.err == FI_ETRUNC && error.olen == len - 10 && error.op_context == to);
	CHECK(filled(to->buf, 10, 3) && to->buf[10] == 0xee);
	CHECK(next_completion(from->cq, NULL));
	return 0;
}

static int injects(struct pair *pair)
{
	struct fi_cq_tagged_entry entry;
	size_t max = pair->info->tx_attr->inject_size;

	TRY(fi_recv(pair->b.ep, pair->b.buf, 64, NULL, 0, NULL));
	TRY(fi_recv(pair->b.ep, pair->b.buf + 64, 64, NULL, 0, NULL));
	strcpy(pair->a.buf, "one");
	TRY(fi_inject(pair->a.ep, pair->a.buf, 4, 0));
	strcpy(pair->a.buf, "two");	/* the buffer was free at once */
	TRY(fi_injectdata(pair->a.ep, pair->a.buf, 4, 99, 0));
	CHECK(next_completion(pair->b.cq, &entry) && entry.len == 4);
	CHECK(next_completion(pair->b.cq, &entry) && entry.data == 99);
	CHECK(!strcmp(pair->b.buf, "one") && !strcmp(pair->b.buf + 64, "two"));
	CHECK(fi_cq_read(pair->a.cq, &entry, 1) == -EAGAIN);
	CHECK(fi_inject(pair->a.ep, pair->a.buf, max + 1, 0) == -EMSGSIZE);
	return 0;
}

static int messages(struct pair *pair)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		TRY(one_message(&pair->a, &pair->b, sizes[i], false));
		TRY(one_message(&pair->b, &pair->a, sizes[i], i & 1));
	}
	TRY(one_message(&pair->a, &pair->b, 100, true));
	TRY(one_message(&pair->a, &pair->b, 1 << 20, true));
	TRY(short_receive(&pair->a, &pair->b, 20));
	TRY(short_receive(&pair->b, &pair->a, 100000));
	TRY(short_receive(&pair->a, &pair->b, 1 << 20));
	TRY(one_message(&pair->a, &pair->b, 100, true));
	return injects(pair);
}

static int with_pair(struct target *target, const struct pair_options *options,
		     int (*body)(struct pair *pair))
{
	struct pair pair;
	int status = pair_open(target, &pair, options);

	if (!status)
		status = body(&pair);
	pair_close(&pair);
	return status;
}

int case_messages(struct target *target)
{
	return with_pair(target, NULL, messages);
}

/* --- buffers of every kind --- */

#define VECTOR_PIECES 24

struct vectors {
	struct page		*pages;		/* order 3 */
	struct bio_vec		bvec[VECTOR_PIECES];
	struct scatterlist	sg[VECTOR_PIECES];
	struct kvec		kvec[VECTOR_PIECES];
};

/* The same bytes in four ways: pieces of growing length, some over a page's end. */
static size_t cut(struct vectors *v)
{
	u8 *base = page_address(v->pages);
	size_t at = 5, i, total = 0;

	sg_init_table(v->sg, VECTOR_PIECES);
	for (i = 0; i < VECTOR_PIECES; i++) {
		size_t len = 1 + i * 97;

		v->kvec[i] = (struct kvec){ base + at, len };
		v->bvec[i] = (struct bio_vec){ v->pages + (at >> PAGE_SHIFT), len,
					       offset_in_page(at) };
		sg_set_page(&v->sg[i], v->pages + (at >> PAGE_SHIFT), len, offset_in_page(at));
		at += len + 3;
		total += len;
	}
	return total;
}

static struct kofi_vec vector(struct vectors *v, int type, size_t total)
{
	switch (type) {
	case KOFI_KVEC: return kofi_vec_kvec(v->kvec, VECTOR_PIECES);
	case KOFI_BVEC: return kofi_vec_bvec(v->bvec, VECTOR_PIECES, 0, total);
	default: return kofi_vec_sg(v->sg, VECTOR_PIECES, 0, total);
	}
}

static int each_vector(struct pair *pair, struct vectors *in, struct vectors *out)
{
	size_t total = cut(in), i;
	int from, to;

	cut(out);
	for (from = KOFI_KVEC; from <= KOFI_SG; from++)
		for (to = KOFI_KVEC; to <= KOFI_SG; to++) {
			struct fi_msg send = { .vec = vector(in, from, total), .context = in };
			struct fi_msg recv = { .vec = vector(out, to, total), .context = out };

			fill(page_address(in->pages), PAGE_SIZE << 3, from * 16 + to);
			memset(page_address(out->pages), 0, PAGE_SIZE << 3);
			/* The middle of the arrays, too. */
			send.vec.offset = 5;
			send.vec.len -= 10;
			recv.vec.offset = 5;
			recv.vec.len -= 10;
			TRY(fi_recvmsg(pair->b.ep, &recv, 0));
			TRY(fi_sendmsg(pair->a.ep, &send, 0));
			CHECK(next_completion(pair->b.cq, NULL));
			CHECK(next_completion(pair->a.cq, NULL));
			for (i = 2; i < VECTOR_PIECES - 1; i++)
				CHECK(!memcmp(in->kvec[i].iov_base, out->kvec[i].iov_base,
					      in->kvec[i].iov_len));
			CHECK(!*(u8 *)out->kvec[0].iov_base);
		}
	return 0;
}

static int vectors(struct pair *pair)
{
	struct vectors *v = kcalloc(2, sizeof(*v), GFP_KERNEL);
	struct fi_mr_attr attr = { .access = FI_REMOTE_WRITE | FI_REMOTE_READ, .requested_key = 9 };
	size_t total;
	struct fid_mr *mr;
	struct fi_msg bad = { .vec = { .type = KOFI_BUF, .offset = SIZE_MAX, .len = 2,
				       .buf = pair->a.buf } };

	CHECK(v);
	v[0].pages = alloc_pages(GFP_KERNEL, 3);
	v[1].pages = alloc_pages(GFP_KERNEL, 3);
	CHECK(v[0].pages && v[1].pages);
	TRY(each_vector(pair, &v[0], &v[1]));
	CHECK(fi_sendmsg(pair->a.ep, &bad, 0) == -EINVAL);
	CHECK(fi_recvmsg(pair->a.ep, &bad, 0) == -EINVAL);
	/* A region of pages; one side's buffer a kvec. */
	total = cut(&v[1]);
	attr.vec = vector(&v[1], KOFI_BVEC, total);
	if (pair->a.brittle) {	/* RDMA devices have no regions with gaps between pages */
		CHECK(fi_mr_regattr(pair->other_domain, &attr, 0, &mr) == -EINVAL);
		attr.vec = kofi_vec_bvec(&v[1].bvec[VECTOR_PIECES - 1], 1, 7, 1000);
		TRY(fi_mr_regattr(pair->other_domain, &attr, 0, &mr));
		fill(pair->a.buf, 1000, 77);
		TRY(fi_write(pair->a.ep, pair->a.buf, 1000, NULL, 0, 0, fi_mr_key(mr), NULL));
		CHECK(next_completion(pair->a.cq, NULL));
		CHECK(filled(v[1].kvec[VECTOR_PIECES - 1].iov_base + 7, 1000, 77));
		TRY(fi_close(&mr->fid));
		goto out;
	}
	TRY(fi_mr_regattr(pair->other_domain, &attr, 0, &mr));
	fill(pair->a.buf, total, 77);
	TRY(fi_write(pair->a.ep, pair->a.buf, total, NULL, 0, 0, 9, NULL));
	CHECK(next_completion(pair->a.cq, NULL));
	memset(pair->a.buf, 0, total);
	TRY(fi_read(pair->a.ep, pair->a.buf, total, NULL, 0, 0, 9, NULL));
	CHECK(next_completion(pair->a.cq, NULL));
	CHECK(filled(pair->a.buf, total, 77));
	CHECK(*(u8 *)v[1].kvec[0].iov_base == 77);
	TRY(fi_close(&mr->fid));
out:
	__free_pages(v[0].pages, 3);
	__free_pages(v[1].pages, 3);
	kfree(v);
	return 0;
}

int case_vectors(struct target *target)
{
	return with_pair(target, NULL, vectors);
}

/* --- sends before receives, many at once --- */

static int unexpected(struct pair *pair)
{
	struct fi_cq_tagged_entry entry;
	static const u32 lens[] = { 8, 3000, 8192, 20000, 300000, 16 };
	size_t at;
	int i, round;

	for (round = 0; round < 3; round++) {
		for (i = 0, at = 0; i < ARRAY_SIZE(lens); at += lens[i++]) {
			fill(pair->a.buf + at, lens[i], i);
			TRY(fi_send(pair->a.ep, pair->a.buf + at, lens[i], NULL, 0, NULL));
		}
		memset(pair->b.buf, 0, at);
		for (i = 0, at = 0; i < ARRAY_SIZE(lens); at += lens[i++])
			TRY(fi_recv(pair->b.ep, pair->b.buf + at, lens[i], NULL, 0, NULL));
		for (i = 0; i < ARRAY_SIZE(lens); i++)
			CHECK(next_completion(pair->b.cq, &entry) &&
			      next_completion(pair->a.cq, &entry));
		for (i = 0, at = 0; i < ARRAY_SIZE(lens); at += lens[i++])
			CHECK(filled(pair->b.buf + at, lens[i], i));
	}
	/* A thousand, of which at most some wait. */
	for (i = 0, round = 0; i < 1000; i++) {
		u32 word = i;

		while (fi_inject(pair->a.ep, &word, sizeof(word), 0) == -EAGAIN) {
			TRY(fi_recv(pair->b.ep, pair->b.buf + round * 4, 4, NULL, 0, NULL));
			CHECK(next_completion(pair->b.cq, NULL));
			round++;
		}
	}
	for (; round < 1000; round++) {
		TRY(fi_recv(pair->b.ep, pair->b.buf + round * 4, 4, NULL, 0, NULL));
		CHECK(next_completion(pair->b.cq, NULL));
	}
	for (i = 0; i < 1000; i++)
		if (((u32 *)pair->b.buf)[i] != i) {
			pr_err("kofi_test: message %d is %u\n", i, ((u32 *)pair->b.buf)[i]);
			return -__LINE__;
		}
	return 0;
}

int case_unexpected(struct target *target)
{
	return with_pair(target, NULL, unexpected);
}

static int tagged(struct pair *pair)
{
	struct fi_cq_tagged_entry entry;
	u8 *to = pair->b.buf;
	int i;

	if (!(pair->info->caps & FI_TAGGED))
		return SKIPPED;
	/* Out of order, with a mask, and what came before. */
	TRY(fi_trecv(pair->b.ep, to, 4, NULL, 0, 0x1000000000000001ull, 0, &to[0]));
	TRY(fi_trecv(pair->b.ep, to + 4, 4, NULL, 0, 0x200, 0xff, &to[4]));
	TRY(fi_tinject(pair->a.ep, "mask", 4, 0, 0x2ab));
	TRY(fi_tsend(pair->a.ep, pair->a.buf, 4, NULL, 0, 5, pair));
	TRY(fi_tinject(pair->a.ep, "long", 4, 0, 0x1000000000000001ull));
	CHECK(next_completion(pair->b.cq, &entry) && entry.op_context == &to[4]);
	CHECK(entry.tag == 0x2ab && (entry.flags & FI_TAGGED));
	CHECK(next_completion(pair->b.cq, &entry) && entry.op_context == &to[0]);
	CHECK(entry.tag == 0x1000000000000001ull && !memcmp(to, "longmask", 8));
	/* A message without a tag is no tagged one. */
	TRY(fi_inject(pair->a.ep, "none", 4, 0));
	TRY(fi_trecv(pair->b.ep, to, 4, NULL, 0, 0, ~0ull, NULL));
	CHECK(next_completion(pair->b.cq, &entry) && entry.tag == 5);
	TRY(fi_recv(pair->b.ep, to, 4, NULL, 0, NULL));
	CHECK(next_completion(pair->b.cq, &entry) && !memcmp(to, "none", 4));
	CHECK(next_completion(pair->a.cq, &entry) && entry.op_context == pair);
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		fill(pair->a.buf, sizes[i], i);
		TRY(fi_tsend(pair->a.ep, pair->a.buf, sizes[i], NULL, 0, i, NULL));
		TRY(fi_trecv(pair->b.ep, to, sizes[i], NULL, 0, i, 0, NULL));
		CHECK(next_completion(pair->b.cq, &entry) && entry.len == sizes[i]);
		CHECK(next_completion(pair->a.cq, NULL) && filled(to, sizes[i], i));
	}
	return 0;
}

int case_tagged(struct target *target)
{
	return with_pair(target, NULL, tagged);
}

/* --- one-sided --- */

static int rma_error(struct side *from, bool write, u64 addr, u64 len, u64 key, int err)
{
	struct fi_cq_err_entry error;

	if (write)
		TRY(fi_write(from->ep, from->buf, len, NULL, 0, addr, key, from));
	else
		TRY(fi_read(from->ep, from->buf, len, NULL, 0, addr, key, from));
	CHECK(next_error(from->cq, &error));
	CHECK(error.err == err && error.op_context == from && error.prov_errno);
	return 0;
}

/* What is not granted. */
static int refused(struct pair *pair)
{
	struct side *a = &pair->a, *b = &pair->b;
	struct fid_mr *mr;

	TRY(fi_mr_reg(pair->other_domain, b->buf, 4096, FI_REMOTE_READ, 0, 11, 0, &mr, NULL));
	TRY(rma_error(a, true, 0, 8, 12, EKEYREJECTED));
	TRY(rma_error(a, false, 0, 100000, 12, EKEYREJECTED));
	TRY(rma_error(a, true, 0, 100000, 12, EKEYREJECTED));
	TRY(rma_error(a, true, 0, 8, 11, EACCES));
	TRY(rma_error(a, true, 0, 100000, 11, EACCES));
	TRY(rma_error(a, false, 4090, 8, 11, EACCES));
	TRY(rma_error(a, false, ~0ull, 8, 11, EACCES));
	TRY(fi_read(a->ep, a->buf, 4096, NULL, 0, 0, 11, NULL));
	CHECK(next_completion(a->cq, NULL));
	TRY(fi_close(&mr->fid));
	TRY(rma_error(a, false, 0, 8, 11, EKEYREJECTED));
	return 0;
}

static int rma(struct pair *pair)
{
	struct side *a = &pair->a, *b = &pair->b;
	struct fi_rma_iov targets[2] = { { 100, 3000, key_of(b) }, { 9000, 17000, key_of(b) } };
	struct fi_msg_rma msg = { .msg = { .vec = kofi_vec_buf(a->buf, 20000) },
				  .rma_iov = targets, .rma_iov_count = 2 };
	struct kvec kvec[2] = { { a->buf + 10, 500 }, { a->buf + 1000, 70000 } };
	struct fi_cq_tagged_entry entry;
	int i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		fill(a->buf, sizes[i], i);
		memset(b->buf, 0, sizes[i] + 16);
		TRY(fi_write(a->ep, a->buf, sizes[i], NULL, 0, 8, key_of(b), a));
		CHECK(next_completion(a->cq, &entry) && entry.op_context == a);
		CHECK((entry.flags & (FI_RMA | FI_WRITE)) == (FI_RMA | FI_WRITE));
		CHECK(filled(b->buf + 8, sizes[i], i) && !b->buf[7] && !b->buf[8 + sizes[i]]);
		memset(a->buf, 0, sizes[i]);
		TRY(fi_read(a->ep, a->buf, sizes[i], NULL, 0, 8, key_of(b), a));
		CHECK(next_completion(a->cq, &entry) && (entry.flags & FI_READ));
		CHECK(filled(a->buf, sizes[i], i));
	}
	/* Two targets, pieces here, data there, an inject. */
	fill(a->buf, 20000, 5);
	if (pair->info->tx_attr->rma_iov_limit == 1) {
		CHECK(fi_writemsg(a->ep, &msg, FI_COMPLETION) == -EINVAL);
		TRY(fi_write(a->ep, a->buf + 3000, 17000, NULL, 0, 9000, key_of(b), NULL));
		CHECK(next_completion(a->cq, NULL));
		targets[0].len = 3000;
		msg.msg.vec.len = 3000;
		msg.rma_iov_count = 1;
	}
	TRY(fi_writemsg(a->ep, &msg, FI_COMPLETION));
	CHECK(next_completion(a->cq, NULL));
	CHECK(filled(b->buf + 100, 3000, 5) && !memcmp(b->buf + 9000, a->buf + 3000, 17000));
	CHECK(fi_writemsg(a->ep, &msg, FI_FENCE) == -FI_EBADFLAGS);	/* nobody offers FI_FENCE */
	targets[0].len--;
	CHECK(fi_writemsg(a->ep, &msg, 0) == -EINVAL);
	TRY(fi_readv(a->ep, kvec, NULL, 2, 0, 100, key_of(b), NULL));
	CHECK(next_completion(a->cq, NULL) && !memcmp(a->buf + 10, b->buf + 100, 500));
	CHECK(!memcmp(a->buf + 1000, b->buf + 600, 70000));
	/* RC wants a receive for it, which stays. */
	TRY(fi_recv(b->ep, b->buf + PAIR_BYTES - 8, 8, NULL, 0, NULL));
	TRY(fi_writedata(a->ep, a->buf, 16, NULL, 4711, 0, 0, key_of(b), NULL));
	CHECK(next_completion(a->cq, NULL) && next_completion(b->cq, &entry));
	CHECK(entry.data == 4711 && (entry.flags & (FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA)) ==
	      (FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA));
	TRY(fi_inject_write(a->ep, "inject", 6, 0, 50, key_of(b)));
	TRY(fi_read(a->ep, a->buf, 6, NULL, 0, 50, key_of(b), NULL));
	CHECK(next_completion(a->cq, &entry) && !memcmp(a->buf, "inject", 6));
	return pair->a.brittle ? 0 : refused(pair);
}

/* Where an operation that is refused ends the connection, each has one of its own. */
static int brittle_rma(struct target *target, int which)
{
	struct fi_cq_err_entry error;
	struct fid_mr *mr;
	struct pair pair;

	TRY(pair_open(target, &pair, NULL));
	TRY(fi_mr_reg(pair.other_domain, pair.b.buf, 4096, FI_REMOTE_READ, 0, 0, 0, &mr, NULL));
	switch (which) {
	case 0:
		TRY(fi_write(pair.a.ep, pair.a.buf, 8, NULL, 0, 0, fi_mr_key(mr), &pair));
		break;
	case 1:
		TRY(fi_read(pair.a.ep, pair.a.buf, 8, NULL, 0, 4090, fi_mr_key(mr), &pair));
		break;
	default:
		TRY(fi_write(pair.a.ep, pair.a.buf, 8, NULL, 0, 0, 0x4711, &pair));
	}
	CHECK(next_error(pair.a.cq, &error) && error.op_context == &pair);
	CHECK(error.err == EACCES && error.prov_errno == KOFI_PE_REMOTE_ACCESS);
	TRY(fi_close(&mr->fid));
	pair_close(&pair);
	return 0;
}

int case_rma(struct target *target)
{
	struct fi_info *info = test_info(target, FI_EP_MSG, false);
	bool brittle = info && (info->domain_attr->mr_mode & FI_MR_PROV_KEY);
	int status = with_pair(target, NULL, rma), i;

	fi_freeinfo(info);
	for (i = 0; brittle && i < 3 && !status; i++)
		status = brittle_rma(target, i);
	return status;
}

static int atomics(struct pair *pair)
{
	struct side *a = &pair->a;
	u64 *word = (u64 *)pair->b.buf, one = 1, compare = 42, old = 0;
	enum fi_datatype type;
	struct fi_cq_err_entry error;
	size_t count;
	u8 operands[16], results[16];

	TRY(fi_atomicvalid(a->ep, FI_UINT64, FI_SUM, &count));
	CHECK(count && fi_atomicvalid(a->ep, FI_UINT64, FI_CSWAP, &count) == -EOPNOTSUPP);
	CHECK(fi_atomicvalid(a->ep, FI_DATATYPE_LAST, FI_SUM, &count) == -EOPNOTSUPP);
	if (!a->brittle) {
		TRY(fi_compare_atomicvalid(a->ep, FI_INT8, FI_MSWAP, &count));
		TRY(fi_fetch_atomicvalid(a->ep, FI_INT8, FI_ATOMIC_READ, &count));
	}
	*word = 41;
	TRY(fi_atomic(a->ep, &one, 1, NULL, 0, 0, key_of(&pair->b), FI_UINT64, FI_SUM, NULL));
	CHECK(next_completion(a->cq, NULL) && *word == 42);
	TRY(fi_fetch_atomic(a->ep, &one, 1, NULL, &old, NULL, 0, 0, key_of(&pair->b),
			    FI_UINT64, FI_SUM, NULL));
	CHECK(next_completion(a->cq, NULL) && *word == 43 && old == 42);
	TRY(fi_compare_atomic(a->ep, &one, 1, NULL, &compare, NULL, &old, NULL, 0, 0,
			      key_of(&pair->b), FI_UINT64, FI_CSWAP, NULL));
	CHECK(next_completion(a->cq, NULL) && *word == 43 && old == 43);
	compare = 43;
	TRY(fi_compare_atomic(a->ep, &one, 1, NULL, &compare, NULL, &old, NULL, 0, 0,
			      key_of(&pair->b), FI_UINT64, FI_CSWAP, NULL));
	CHECK(next_completion(a->cq, NULL) && *word == 1 && old == 43);
	if (a->brittle)		/* RDMA has no more than these */
		return 0;
	TRY(fi_fetch_atomic(a->ep, NULL, 1, NULL, &old, NULL, 0, 0, key_of(&pair->b), FI_UINT64,
			    FI_ATOMIC_READ, NULL));
	CHECK(next_completion(a->cq, NULL) && *word == 1 && old == 1);
	for (type = FI_INT8; type < FI_DATATYPE_LAST; type++) {
		memset(pair->b.buf, 0x11, 64);
		memset(operands, 0x22, sizeof(operands));
		TRY(fi_fetch_atomic(a->ep, operands, 16 / fi_datatype_size(type), NULL, results,
				    NULL, 0, 32, key_of(&pair->b), type, FI_BXOR, NULL));
		CHECK(next_completion(a->cq, NULL));
		CHECK(pair->b.buf[31] == 0x11 && pair->b.buf[32] == 0x33);
		CHECK(pair->b.buf[47] == 0x33 && pair->b.buf[48] == 0x11 && results[15] == 0x11);
		/* Minus one is the least of the signed, the greatest of the others. */
		memset(operands, 0xff, sizeof(operands));
		TRY(fi_atomic(a->ep, operands, 1, NULL, 0, 32, key_of(&pair->b), type,
			      FI_MIN, NULL));
		CHECK(next_completion(a->cq, NULL));
		CHECK(pair->b.buf[32] == (type & 1 ? 0x33 : 0xff));
	}
	CHECK(fi_atomic(a->ep, &one, 1, NULL, 0, 0, key_of(&pair->b), FI_UINT64, FI_CSWAP, NULL) ==
	      -EOPNOTSUPP);
	TRY(fi_atomic(a->ep, &one, 1, NULL, 0, 3, key_of(&pair->b), FI_UINT64, FI_SUM, NULL));
	CHECK(next_error(a->cq, &error) && error.err == EINVAL);
	TRY(fi_atomic(a->ep, &one, 1, NULL, 0, 0, 99, FI_UINT64, FI_SUM, NULL));
	CHECK(next_error(a->cq, &error) && error.err == EKEYREJECTED);
	return 0;
}

int case_atomics(struct target *target)
{
	return with_pair(target, NULL, atomics);
}

/* --- queues --- */

static int small_queues(struct pair *pair)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error;
	int i;

	/* Four entries: a fifth operation would have no room for its completion. */
	for (i = 0; i < 4; i++)
		TRY(fi_recv(pair->b.ep, pair->b.buf, 8, NULL, 0, &pair->b.buf[i]));
	CHECK(fi_recv(pair->b.ep, pair->b.buf, 8, NULL, 0, NULL) == -EAGAIN);
	for (i = 0; i < 4; i++)
		TRY(fi_inject(pair->a.ep, "8 bytes", 8, 0));
	CHECK(next_completion(pair->b.cq, &entry) && entry.op_context == &pair->b.buf[0]);
	TRY(fi_recv(pair->b.ep, pair->b.buf, 8, NULL, 0, NULL));
	for (i = 1; i < 4; i++)
		CHECK(next_completion(pair->b.cq, &entry) && entry.op_context == &pair->b.buf[i]);
	/* Nothing there. The receive that was posted last still waits. */
	CHECK(fi_cq_read(pair->b.cq, &entry, 1) == -EAGAIN);
	CHECK(fi_cq_readerr(pair->b.cq, &error, 0) == -EAGAIN);
	CHECK(fi_cq_sread(pair->b.cq, &entry, 1, NULL, 20) == -EAGAIN);
	fi_cq_signal(pair->b.cq);
	CHECK(fi_cq_sread(pair->b.cq, &entry, 1, NULL, -1) == -EAGAIN);
	TRY(fi_send(pair->a.ep, pair->a.buf, 8, NULL, 0, NULL));
	CHECK(next_completion(pair->b.cq, &entry));
	CHECK(fi_cq_sread(pair->a.cq, &entry, 1, NULL, WAIT_MS) == 1);
	return 0;
}

static int selective(struct pair *pair)
{
	struct fi_msg msg = { .vec = kofi_vec_buf(pair->a.buf, 8), .context = pair };
	struct fi_cq_tagged_entry entry;
	struct fi_msg in = { .vec = kofi_vec_buf(pair->b.buf, 8), .context = &in };
	int i;

	for (i = 0; i < 3; i++)
		TRY(fi_recvmsg(pair->b.ep, &in, i == 2 ? FI_COMPLETION : 0));
	TRY(fi_send(pair->a.ep, pair->a.buf, 8, NULL, 0, NULL));
	TRY(fi_sendmsg(pair->a.ep, &msg, FI_COMPLETION));
	TRY(fi_sendmsg(pair->a.ep, &msg, 0));
	CHECK(next_completion(pair->a.cq, &entry) && entry.op_context == pair);
	CHECK(next_completion(pair->b.cq, &entry) && entry.op_context == &in);
	CHECK(fi_cq_sread(pair->a.cq, &entry, 1, NULL, 20) == -EAGAIN);
	CHECK(fi_cq_sread(pair->b.cq, &entry, 1, NULL, 20) == -EAGAIN);
	return 0;
}

static int counters(struct target *target)
{
	struct pair_options options = { .no_pair = true };
	struct fi_cntr_attr attr = {};
	struct fid_cntr *cntr;
	struct pair pair;

	TRY(pair_open(target, &pair, &options));
	TRY(fi_cntr_open(pair.domain, &attr, &cntr, NULL));
	CHECK(fi_cntr_read(cntr) == 0 && fi_cntr_readerr(cntr) == 0);
	fi_cntr_add(cntr, 5);
	fi_cntr_adderr(cntr, 2);
	CHECK(fi_cntr_read(cntr) == 5 && fi_cntr_readerr(cntr) == 2);
	fi_cntr_set(cntr, 1);
	fi_cntr_seterr(cntr, 0);
	TRY(fi_cntr_wait(cntr, 1, 0));
	CHECK(fi_cntr_wait(cntr, 2, 20) == -ETIMEDOUT && !fi_cntr_readerr(cntr));
	TRY(fi_close(&cntr->fid));
	pair_close(&pair);
	return 0;
}

static int formats(struct target *target)
{
	struct pair_options options = { .cq = { .format = FI_CQ_FORMAT_CONTEXT } };
	struct fi_cq_entry entries[3] = { [2] = { (void *)1 } };
	struct fid_cq *cq;
	struct pair pair;

	TRY(pair_open(target, &pair, &options));
	options.cq.format = 99;
	CHECK(fi_cq_open(pair.domain, &options.cq, &cq, NULL) == -EINVAL);
	TRY(fi_recv(pair.b.ep, pair.b.buf, 8, NULL, 0, &pair));
	TRY(fi_inject(pair.a.ep, pair.a.buf, 8, 0));
	CHECK(fi_cq_sread(pair.b.cq, entries, 2, NULL, WAIT_MS) == 1);
	CHECK(entries[0].op_context == &pair && !entries[1].op_context);
	pair_close(&pair);
	return 0;
}

int case_queues(struct target *target)
{
	struct pair_options small = { .cq = { .size = 4 } };
	struct pair_options select = { .bind_flags = FI_SELECTIVE_COMPLETION };

	return with_pair(target, &small, small_queues) ?:
	       with_pair(target, &select, selective) ?: counters(target) ?: formats(target);
}

/* Ping-pong that only handlers drive. */
struct bounce {
	struct completion	over;
	atomic_t		turns;
	int			status;
};

static void bounce_handler(struct fid_cq *cq, void *context)
{
	struct side *side = context;
	struct fi_cq_tagged_entry entry;

	while (fi_cq_read(cq, &entry, 1) == 1) {
		struct bounce *bounce = entry.op_context;

		if (!(entry.flags & FI_RECV))
			continue;
		if (atomic_dec_if_positive(&bounce->turns) <= 0) {
			complete(&bounce->over);
			return;
		}
		if (fi_recv(side->ep, side->buf, 64, NULL, 0, bounce) ||
		    fi_send(side->ep, side->buf, 64, NULL, 0, bounce)) {
			bounce->status = -1;
			complete(&bounce->over);
		}
	}
}

int case_callbacks(struct target *target)
{
	struct pair_options options = { .cq = { .handler = bounce_handler } };
	struct bounce bounce = { .turns = ATOMIC_INIT(500) };
	struct pair pair;

	init_completion(&bounce.over);
	TRY(pair_open(target, &pair, &options));
	TRY(fi_recv(pair.a.ep, pair.a.buf, 64, NULL, 0, &bounce));
	TRY(fi_recv(pair.b.ep, pair.b.buf, 64, NULL, 0, &bounce));
	TRY(fi_send(pair.a.ep, pair.a.buf, 64, NULL, 0, &bounce));
	CHECK(wait_for_completion_timeout(&bounce.over, msecs_to_jiffies(WAIT_MS)));
	CHECK(!bounce.status);
	pair_close(&pair);
	return 0;
}

static int cancel(struct pair *pair)
{
	struct fi_cq_err_entry error;

	if (pair->b.brittle && pair->eq) {	/* the device does not give receives back */
		TRY(fi_recv(pair->b.ep, pair->b.buf, 8, NULL, 0, &pair->a));
		CHECK(fi_cancel(pair->b.ep, &pair->a) == -EOPNOTSUPP);
		return 0;
	}
	TRY(fi_recv(pair->b.ep, pair->b.buf, 8, NULL, 0, &pair->a));
	TRY(fi_recv(pair->b.ep, pair->b.buf + 8, 8, NULL, 0, &pair->b));
	TRY(fi_cancel(pair->b.ep, &pair->a));
	CHECK(next_error(pair->b.cq, &error) && error.err == ECANCELED);
	CHECK(error.op_context == &pair->a);
	TRY(fi_cancel(pair->b.ep, &pair->a));	/* none: no error (fi_endpoint(3)) */
	TRY(fi_inject(pair->a.ep, "12345678", 8, 0));
	CHECK(next_completion(pair->b.cq, NULL) && !memcmp(pair->b.buf + 8, "12345678", 8));
	return 0;
}

int case_cancel(struct target *target)
{
	return with_pair(target, NULL, cancel);
}
