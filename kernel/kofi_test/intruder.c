// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A connected endpoint of the provider below that speaks to an endpoint of
 * kofi_rdm, and says what is wrong (docs/wire/kofi_rdm.md): its connection ends,
 * the endpoint and its other connections do not notice.
 */
#include "test.h"

#include <linux/random.h>

struct frame {
	u8	kind, flags;
	__le16	zero;
	__le32	status;
	__le64	tag, data, len, id, key;
} __packed;

static const struct {
	__le32	magic, version;
} hello = { cpu_to_le32(0x4d44524b), cpu_to_le32(1) };

enum { MESSAGE = 1, ANNOUNCE, FINISH };

/* What is sent: a frame and how much of it, or noise. */
static const struct {
	struct frame	frame;
	size_t		len;
} wrong[] = {
	{ { .kind = MESSAGE }, 10 },
	{ { .kind = 9 }, sizeof(struct frame) },
	{ { .kind = 0 }, sizeof(struct frame) },
	{ { .kind = MESSAGE, .len = cpu_to_le64(1) }, sizeof(struct frame) },
	{ { .kind = MESSAGE, .len = cpu_to_le64(~0ull) }, sizeof(struct frame) + 100 },
	{ { .kind = MESSAGE }, 4096 },
	{ { .kind = ANNOUNCE, .len = cpu_to_le64(4096) }, sizeof(struct frame) + 1 },
	{ { .kind = FINISH, .id = cpu_to_le64(1) }, sizeof(struct frame) },
	{ { .kind = 255, .flags = 255 }, 5000 },
};

static int open_raw(const struct target *target, struct pair *raw)
{
	struct target below = *target;

	*strchr(below.provider, ';') = 0;
	memset(raw, 0, sizeof(*raw));
	raw->info = test_info(&below, FI_EP_MSG, false);
	CHECK(raw->info);
	TRY(fi_fabric(raw->info->fabric_attr, &raw->fabric, NULL));
	TRY(fi_domain(raw->fabric, raw->info, &raw->domain, NULL));
	TRY(fi_eq_open(raw->fabric, NULL, &raw->eq, NULL));
	TRY(side_open(raw, raw->domain, &raw->a, raw->info, NULL));
	return fi_enable(raw->a.ep);
}

static int connect_raw(struct pair *raw, struct side *to, const void *param, size_t len)
{
	u8 name[64];
	size_t name_len = sizeof(name);

	TRY(fi_getname(&to->ep->fid, name, &name_len));
	return fi_connect(raw->a.ep, name, param, len);
}

static int still_works(struct pair *pair, u32 len)
{
	struct fi_cq_tagged_entry entry;

	fill(pair->b.buf, len, len);
	TRY(fi_recv(pair->a.ep, pair->a.buf, len, NULL, 0, NULL));
	TRY(fi_send(pair->b.ep, pair->b.buf, len, NULL, 0, NULL));
	CHECK(next_completion(pair->a.cq, &entry) && entry.len == len);
	CHECK(next_completion(pair->b.cq, NULL) && filled(pair->a.buf, len, len));
	return 0;
}

static int intrude(const struct target *target, struct pair *pair, size_t turn)
{
	struct pair raw;

	TRY(open_raw(target, &raw));
	get_random_bytes(raw.a.buf, 8192);
	memcpy(raw.a.buf, &wrong[turn].frame, min(sizeof(struct frame), wrong[turn].len));
	TRY(fi_recv(raw.a.ep, raw.a.buf + 8192, 4096, NULL, 0, NULL));
	TRY(connect_raw(&raw, &pair->a, &hello, sizeof(hello)));
	CHECK(next_event(&raw, FI_CONNECTED, &raw.a.ep->fid));
	TRY(fi_send(raw.a.ep, raw.a.buf, wrong[turn].len, NULL, 0, NULL));
	CHECK(next_event(&raw, FI_SHUTDOWN, &raw.a.ep->fid));
	pair_close(&raw);
	return still_works(pair, turn & 1 ? 100 : 100000);
}

/* An announcement of memory that nobody has: the receive that meets it ends with an error. */
static int announce_nothing(const struct target *target, struct pair *pair)
{
	struct frame frame = { .kind = ANNOUNCE, .len = cpu_to_le64(1 << 20),
			       .id = cpu_to_le64(1), .key = cpu_to_le64(0x7777) };
	struct fi_cq_err_entry error;
	struct pair raw;

	TRY(open_raw(target, &raw));
	memcpy(raw.a.buf, &frame, sizeof(frame));
	TRY(fi_recv(raw.a.ep, raw.a.buf + 8192, 4096, NULL, 0, NULL));
	TRY(fi_recv(pair->a.ep, pair->a.buf, 4096, NULL, 0, pair));
	TRY(connect_raw(&raw, &pair->a, &hello, sizeof(hello)));
	CHECK(next_event(&raw, FI_CONNECTED, &raw.a.ep->fid));
	TRY(fi_send(raw.a.ep, raw.a.buf, sizeof(frame), NULL, 0, NULL));
	CHECK(next_error(pair->a.cq, &error) && error.op_context == pair && error.err);
	pair_close(&raw);
	return still_works(pair, 5000);
}

static int intruders(const struct target *target, struct pair *pair)
{
	struct pair raw;
	size_t turn;

	TRY(still_works(pair, 10));
	TRY(open_raw(target, &raw));
	TRY(connect_raw(&raw, &pair->a, "please", 6));
	CHECK(next_event_error(&raw, &raw.a.ep->fid, ECONNREFUSED, NULL, NULL));
	pair_close(&raw);
	for (turn = 0; turn < ARRAY_SIZE(wrong); turn++)
		TRY(intrude(target, pair, turn));
	return announce_nothing(target, pair);
}

int case_intruder(struct target *target)
{
	struct pair pair;
	int status;

	if (has_messages(target))
		return SKIPPED;
	TRY(pair_open(target, &pair, NULL));
	status = intruders(target, &pair);
	pair_close(&pair);
	snprintf(target->note, sizeof(target->note), "%zu wrong frames", ARRAY_SIZE(wrong) + 2);
	return status;
}
