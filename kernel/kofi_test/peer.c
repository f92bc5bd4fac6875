// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Exchanges with a program of another process or machine:
 * examples/kernel_peer/kernel_peer.c says what is said. Its two roles, here.
 */
#include "test.h"

#include <kofi/compat.h>

struct named {
	__le64	key, addr, len;
};

static struct fi_info *peer_info(const struct target *target, bool source)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;

	if (!hints)
		return NULL;
	strscpy(hints->fabric_attr->prov_name, target->provider, FI_NAME_MAX);
	hints->ep_attr->type = FI_EP_MSG;
	if (fi_getinfo(FI_VERSION(1, 17), target->node, target->service, source ? FI_SOURCE : 0,
		       hints, &info))
		info = NULL;
	fi_freeinfo(hints);
	return info;
}

static int open_peer(struct target *target, struct pair *pair, bool source)
{
	pair->info = peer_info(target, source);
	CHECK(pair->info);
	TRY(fi_fabric(pair->info->fabric_attr, &pair->fabric, NULL));
	TRY(fi_eq_open(pair->fabric, NULL, &pair->eq, NULL));
	TRY(fi_domain(pair->fabric, pair->info, &pair->domain, NULL));
	return 0;
}

static int echo(struct pair *pair, struct target *target)
{
	struct side *a = &pair->a;
	struct fi_cq_tagged_entry entry;
	u8 *out = a->buf;
	unsigned int echoed = 0;

	for (;;) {
		ssize_t got = fi_cq_sread(a->cq, &entry, 1, NULL, WAIT_MS);

		if (got == -FI_EAVAIL)	/* the driver has shut down */
			break;
		CHECK(got == 1);
		if (!(entry.flags & FI_RECV))
			continue;
		/* The buffer goes back as it is, and is a receive's again when it has gone. */
		TRY(fi_send(a->ep, out, entry.len, NULL, 0, NULL));
		CHECK(next_completion(a->cq, &entry) && (entry.flags & FI_SEND));
		TRY(fi_recv(a->ep, out, PAIR_BYTES, NULL, 0, NULL));
		echoed++;
	}
	CHECK(next_event(pair, FI_SHUTDOWN, &a->ep->fid));
	snprintf(target->note, sizeof(target->note), "%u messages echoed", echoed);
	return 0;
}

static int serve(struct target *target, struct pair *pair)
{
	struct side *a = &pair->a, *memory = &pair->b;
	struct named named = { cpu_to_le64(PAIR_KEY), 0, cpu_to_le64(PAIR_BYTES) };
	struct fi_eq_cm_entry entry;
	int status;
	u32 event;

	TRY(open_peer(target, pair, true));
	TRY(fi_passive_ep(pair->fabric, pair->info, &pair->pep, NULL));
	TRY(fi_pep_bind(pair->pep, &pair->eq->fid, 0));
	TRY(fi_listen(pair->pep));
	CHECK(fi_eq_sread(pair->eq, &event, &entry, sizeof(entry), WAIT_MS, 0) > 0);
	CHECK(event == FI_CONNREQ);
	status = side_open(pair, pair->domain, a, entry.info, NULL);
	if (!status)	/* for its buffer */
		status = side_open(pair, pair->domain, memory, pair->info, NULL);
	fi_freeinfo(entry.info);
	if (status)
		return status;
	TRY(fi_mr_reg(pair->domain, memory->buf, PAIR_BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
		      PAIR_KEY, 0, &memory->mr, NULL));
	TRY(fi_enable(a->ep));
	TRY(fi_recv(a->ep, a->buf, PAIR_BYTES, NULL, 0, NULL));
	TRY(fi_accept(a->ep, NULL, 0));
	CHECK(next_event(pair, FI_CONNECTED, &a->ep->fid));
	TRY(fi_inject(a->ep, &named, sizeof(named), 0));
	return echo(pair, target);
}

static bool sent_and_echoed(struct fid_cq *cq, size_t len)
{
	struct fi_cq_tagged_entry entry;
	int i;

	for (i = 0; i < 2; i++)
		if (!next_completion(cq, &entry) || entry.len != len)
			return false;
	return true;
}

static int drive(struct target *target, struct pair *pair)
{
	static const u32 sizes[] = { 1, 8, 100, 4096, 8192, 8193, 16384, 65536, 65537, 99999,
				     262144, 262145, 524289, 1 << 20, PAIR_BYTES - 3 };
	struct side *a = &pair->a, *in = &pair->b;
	u64 key, addr, old = 0, expected, one = 1;
	struct fi_cq_tagged_entry entry;
	int i;

	TRY(open_peer(target, pair, false));
	TRY(side_open(pair, pair->domain, a, pair->info, NULL));
	TRY(side_open(pair, pair->domain, in, pair->info, NULL));
	TRY(fi_enable(a->ep));
	TRY(fi_recv(a->ep, in->buf, PAIR_BYTES, NULL, 0, NULL));
	TRY(fi_connect(a->ep, pair->info->dest_addr, NULL, 0));
	CHECK(next_event(pair, FI_CONNECTED, &a->ep->fid));
	CHECK(next_completion(a->cq, &entry) && entry.len == sizeof(struct named));
	key = get_unaligned_le64(in->buf);
	addr = get_unaligned_le64(in->buf + 8);
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		u32 len = sizes[i];

		fill(a->buf, len, i);
		memset(in->buf, 0, len);
		TRY(fi_recv(a->ep, in->buf, PAIR_BYTES, NULL, 0, NULL));
		TRY(fi_send(a->ep, a->buf, len, NULL, 0, NULL));
		CHECK(sent_and_echoed(a->cq, len) && filled(in->buf, len, i));
		fill(a->buf, len, i + 77);
		TRY(fi_write(a->ep, a->buf, len, NULL, 0, addr, key, NULL));
		CHECK(next_completion(a->cq, NULL));
		memset(a->buf, 0, len);
		TRY(fi_read(a->ep, a->buf, len, NULL, 0, addr, key, NULL));
		CHECK(next_completion(a->cq, NULL) && filled(a->buf, len, i + 77));
	}
	memcpy(&expected, a->buf, sizeof(expected));
	TRY(fi_fetch_atomic(a->ep, &one, 1, NULL, &old, NULL, 0, addr, key, FI_UINT64, FI_SUM,
			    NULL));
	CHECK(next_completion(a->cq, NULL) && old == expected);
	TRY(fi_shutdown(a->ep, 0));
	snprintf(target->note, sizeof(target->note), "%d operations checked", 3 * i + 1);
	return 0;
}

int case_serve(struct target *target)
{
	struct pair pair = {};
	int status = serve(target, &pair);

	pair_close(&pair);
	return status;
}

int case_drive(struct target *target)
{
	struct pair pair = {};
	int status = drive(target, &pair);

	pair_close(&pair);
	return status;
}
