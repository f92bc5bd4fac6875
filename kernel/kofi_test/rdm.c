// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Cases of RDM endpoints: addresses, peers that come and go, many messages without a receive. */
#include "test.h"

#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/slab.h>

static int rdm_sides(struct pair *pair, struct side *sides, struct fid_av **av, fi_addr_t *addr)
{
	u8 names[2][64];
	size_t len[2] = { 64, 64 };
	int i;

	for (i = 0; i < 2; i++) {
		TRY(side_open(pair, pair->domain, &sides[i], pair->info, NULL));
		CHECK(fi_enable(sides[i].ep) == -FI_ENOAV);
		TRY(fi_ep_bind(sides[i].ep, &(*av)->fid, 0));
		TRY(fi_enable(sides[i].ep));
		TRY(fi_getname(&sides[i].ep->fid, names[i], &len[i]));
		CHECK(fi_av_insert(*av, names[i], 1, &addr[i], 0, NULL) == 1);
	}
	len[0] = 64;
	TRY(fi_av_lookup(*av, addr[1], names[0], &len[0]));
	CHECK(len[0] == len[1] && !memcmp(names[0], names[1], len[1]));
	return 0;
}

/* A send that cannot arrive: refused at once, or ended with an error. */
static int send_fails(struct side *from, fi_addr_t to)
{
	struct fi_cq_err_entry error;
	ssize_t status = fi_sendto(from->ep, from->buf, 1, NULL, to, from);

	if (status == -EHOSTUNREACH)
		return 0;
	CHECK(!status);
	CHECK(next_error(from->cq, &error) && error.op_context == from && error.err);
	return 0;
}

static int one(struct side *from, struct side *to, fi_addr_t addr, u32 len)
{
	struct fi_cq_tagged_entry entry;

	fill(from->buf, len, len + 1);
	memset(to->buf, 0, len);
	TRY(fi_recvfrom(to->ep, to->buf, len, NULL, FI_ADDR_UNSPEC, NULL));
	TRY(fi_sendto(from->ep, from->buf, len, NULL, addr, NULL));
	CHECK(next_completion(to->cq, &entry) && entry.len == len);
	CHECK(next_completion(from->cq, NULL) && filled(to->buf, len, len + 1));
	return 0;
}

static int to_itself(struct side *side, fi_addr_t addr)
{
	fill(side->buf, 64, 9);
	TRY(fi_recvfrom(side->ep, side->buf + 64, 64, NULL, FI_ADDR_UNSPEC, NULL));
	TRY(fi_sendto(side->ep, side->buf, 64, NULL, addr, NULL));
	CHECK(next_completion(side->cq, NULL) && next_completion(side->cq, NULL));
	CHECK(filled(side->buf + 64, 64, 9));
	return 0;
}

/* The peer goes, another endpoint takes its address: it is reached. */
static int reuse(struct pair *pair, struct side *sides, struct fid_av *av, fi_addr_t *addr)
{
	struct fi_info *info;
	size_t len = 64;
	u8 name[64];
	int turn;

	for (turn = 0; turn < 4; turn++) {
		TRY(fi_getname(&sides[1].ep->fid, name, &len));
		side_close(&sides[1]);
		TRY(send_fails(&sides[0], addr[1]));
		info = kofi_info_new(pair->info, name, len, NULL, 0);
		CHECK(info);
		TRY(side_open(pair, pair->domain, &sides[1], info, NULL));
		fi_freeinfo(info);
		TRY(fi_ep_bind(sides[1].ep, &av->fid, 0));
		TRY(fi_enable(sides[1].ep));
		TRY(one(&sides[0], &sides[1], addr[1], 64));
		TRY(one(&sides[1], &sides[0], addr[0], 100000));
	}
	return 0;
}

int case_rdm(struct target *target)
{
	struct side sides[2] = {};
	struct fid_av *av;
	struct pair pair = {};
	fi_addr_t addr[2];
	size_t len = 64;
	u8 name[64];
	int i;

	pair.info = test_info(target, FI_EP_RDM, true);
	if (!pair.info)
		return SKIPPED;
	TRY(fi_fabric(pair.info->fabric_attr, &pair.fabric, NULL));
	TRY(fi_domain(pair.fabric, pair.info, &pair.domain, NULL));
	TRY(fi_av_open(pair.domain, NULL, &av, NULL));
	TRY(rdm_sides(&pair, sides, &av, addr));
	for (i = 0; i < 100; i++)
		TRY(one(&sides[0], &sides[1], addr[1], 64));
	TRY(to_itself(&sides[0], addr[0]));
	CHECK(fi_sendto(sides[0].ep, sides[0].buf, 1, NULL, 4711, NULL) == -EHOSTUNREACH);
	TRY(reuse(&pair, sides, av, addr));
	TRY(fi_av_remove(av, addr, 1, 0));
	CHECK(fi_av_remove(av, addr, 1, 0) == -EINVAL);
	CHECK(fi_av_lookup(av, addr[0], name, &len) == -EINVAL);
	CHECK(fi_sendto(sides[1].ep, sides[1].buf, 1, NULL, addr[0], NULL) == -EHOSTUNREACH);
	side_close(&sides[1]);
	TRY(send_fails(&sides[0], addr[1]));
	side_close(&sides[0]);
	TRY(fi_close(&av->fid));
	pair_close(&pair);
	return 0;
}

/* --- many --- */

#define CROWD 12

struct crowd {
	struct side	side[CROWD];
	struct fid_av	*av;
	fi_addr_t	addr[CROWD];
};

/* All send to all at the same time: each pair connects from both sides at once. */
static int crowd(struct pair *pair, struct crowd *crowd)
{
	struct fi_cq_tagged_entry entry;
	int i, j, received;

	for (i = 0; i < CROWD; i++) {
		u8 name[64];
		size_t len = sizeof(name);

		TRY(side_open(pair, pair->domain, &crowd->side[i], pair->info, NULL));
		TRY(fi_ep_bind(crowd->side[i].ep, &crowd->av->fid, 0));
		TRY(fi_enable(crowd->side[i].ep));
		TRY(fi_getname(&crowd->side[i].ep->fid, name, &len));
		CHECK(fi_av_insert(crowd->av, name, 1, &crowd->addr[i], 0, NULL) == 1);
		for (j = 0; j < CROWD; j++)
			TRY(fi_trecv(crowd->side[i].ep, crowd->side[i].buf + j * 65536, 65536,
				     NULL, FI_ADDR_UNSPEC, j, 0, NULL));
		fill(crowd->side[i].buf + (1 << 20), 65536, i);
	}
	for (j = 0; j < CROWD; j++)
		for (i = 0; i < CROWD; i++)
			TRY(fi_tsend(crowd->side[i].ep, crowd->side[i].buf + (1 << 20),
				     (i + j) & 1 ? 65536 : 512, NULL, crowd->addr[(i + j) % CROWD],
				     i, NULL));
	for (i = 0; i < CROWD; i++)
		for (received = 0; received < 2 * CROWD; received++)
			CHECK(next_completion(crowd->side[i].cq, &entry));
	for (i = 0; i < CROWD; i++)
		for (j = 0; j < CROWD; j++)
			CHECK(filled(crowd->side[i].buf + j * 65536, 512, j));
	return 0;
}

int case_crowd(struct target *target)
{
	struct crowd *all = kzalloc(sizeof(*all), GFP_KERNEL);
	struct pair pair = {};
	int status, i;

	CHECK(all);
	pair.info = test_info(target, FI_EP_RDM, true);
	if (!pair.info) {
		kfree(all);
		return SKIPPED;
	}
	TRY(fi_fabric(pair.info->fabric_attr, &pair.fabric, NULL));
	TRY(fi_domain(pair.fabric, pair.info, &pair.domain, NULL));
	TRY(fi_av_open(pair.domain, NULL, &all->av, NULL));
	status = crowd(&pair, all);
	for (i = 0; i < CROWD; i++)
		side_close(&all->side[i]);
	TRY(fi_close(&all->av->fid));
	pair_close(&pair);
	kfree(all);
	snprintf(target->note, sizeof(target->note), "%d endpoints, all to all", CROWD);
	return status;
}

/*
 * More than a receiver keeps: 4,000 bytes each, until the sender has no room.
 * Nothing is lost, and all arrives in order.
 */
static int sends_ahead(struct pair *pair, unsigned int *most)
{
	struct fi_cq_tagged_entry entry;
	unsigned int sent = 0, received = 0, ended = 0;
	const unsigned int total = 4000;

	while (received < total) {
		unsigned int waits = 0;

		while (sent < total && waits < 50) {
			*(u32 *)pair->a.buf = sent;
			if (fi_send(pair->a.ep, pair->a.buf, 4000, NULL, 0, NULL)) {
				waits++;
				if (fi_cq_sread(pair->a.cq, &entry, 1, NULL, 20) == 1)
					ended++;
			} else {
				sent++;
				/* Its buffer is not another one's before it has ended. */
				if (fi_cq_sread(pair->a.cq, &entry, 1, NULL, 1) == 1)
					ended++;
				else
					break;
			}
		}
		*most = max(*most, sent - received);
		while (received < sent) {
			TRY(fi_recv(pair->b.ep, pair->b.buf, 4000, NULL, 0, NULL));
			CHECK(next_completion(pair->b.cq, &entry) && entry.len == 4000);
			CHECK(*(u32 *)pair->b.buf == received);
			received++;
		}
		while (ended < sent && next_completion(pair->a.cq, NULL))
			ended++;
	}
	CHECK(ended == total);
	return 0;
}

int case_ahead(struct target *target)
{
	unsigned int most = 0;
	struct pair pair;
	int status;

	if (has_messages(target))
		return SKIPPED;
	TRY(pair_open(target, &pair, NULL));
	status = sends_ahead(&pair, &most);
	pair_close(&pair);
	snprintf(target->note, sizeof(target->note), "%u messages without a receive", most);
	return status;
}
