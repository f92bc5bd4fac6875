// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Traffic that may fail: for runs in which allocations fail, devices go or
 * packets are lost. Calls and operations may end with errors. What must hold:
 * every operation that was accepted ends, what is reported to have arrived is
 * whole, all objects can be closed.
 */
#include "test.h"

#include <linux/kernel.h>
#include <linux/random.h>

#define PAIRS		8
#define ROUNDS		4
#define REAP_MS		20	/* for one more completion, between rounds */
#define PATIENCE_MS	3000	/* for a connection */

/* Of a side's buffer: four slots for each kind of operation, and what peers read and write. */
enum area { AREA_RECV, AREA_SEND, AREA_RMA, AREA_TARGET };

#define SLOTS		4
#define SLOT_BYTES	(PAIR_BYTES / 16)
#define TARGET_OFFSET	(AREA_TARGET * SLOTS * SLOT_BYTES)
#define TARGET_SEED	1	/* all writes write what is there */

static const u32 lens[] = { 1, 100, 4000, 9000, 66000, SLOT_BYTES };

struct half {
	struct side	*side;
	struct fid_mr	*second;	/* registered and closed under traffic */
	bool		busy[AREA_TARGET * SLOTS];
};

struct tally {
	unsigned int	open, done, failed, refused;
	unsigned int	access;		/* of those that failed: the region was closed */
};

static u32 below(u32 limit)
{
	u32 word;

	get_random_bytes(&word, sizeof(word));
	return word % limit;
}

static ssize_t post(struct half *half, struct half *peer, enum area area, u8 *at)
{
	struct fid_ep *ep = half->side->ep;
	u32 len = lens[below(ARRAY_SIZE(lens))];
	u64 key = peer->second && below(4) == 0 ? fi_mr_key(peer->second) : key_of(peer->side);

	switch (area) {
	case AREA_RECV:
		return fi_recv(ep, at, SLOT_BYTES, NULL, FI_ADDR_UNSPEC, at);
	case AREA_SEND:
		fill(at, len, below(256));
		return fi_send(ep, at, len, NULL, 0, at);
	default:
		fill(at, len, TARGET_SEED);
		if (below(2))
			return fi_write(ep, at, len, NULL, 0, TARGET_OFFSET, key, at);
		memset(at, 0, len);
		return fi_read(ep, at, len, NULL, 0, TARGET_OFFSET, key, at);
	}
}

static void post_all(struct half *half, struct half *peer, enum area area, struct tally *tally)
{
	u32 slot;

	for (slot = area * SLOTS; slot < (area + 1) * SLOTS; slot++) {
		if (half->busy[slot])
			continue;
		half->busy[slot] = true;	/* it may end before the call does */
		if (post(half, peer, area, half->side->buf + slot * SLOT_BYTES)) {
			half->busy[slot] = false;
			tally->refused++;
		}
	}
}

/* Says what is wrong: which bytes, and what is there instead. */
static bool whole(const u8 *at, size_t len, u32 seed, const char *what)
{
	size_t first = 0, last = len;

	if (filled(at, len, seed))
		return true;
	while (first < len && at[first] == (u8)(seed + first + (first >> 8)))
		first++;
	while (last > first && at[last - 1] == (u8)(seed + last - 1 + ((last - 1) >> 8)))
		last--;
	pr_info("kofi_test: %s of %zu bytes: %zu to %zu are wrong; %02x, not %02x; %s later\n",
		what, len, first, last, at[first], (u8)(seed + first + (first >> 8)),
		filled(at, len, seed) ? "right" : "the same");
	return false;
}

/* 1: one operation has ended; 0: none in time; or the negative line of what is wrong. */
static int reap(struct half *half, int wait_ms, struct tally *tally)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error;
	ssize_t got = fi_cq_sread(half->side->cq, &entry, 1, NULL, wait_ms);
	size_t slot;
	u8 *at;

	if (got == -EAGAIN)
		return 0;
	if (got == -FI_EAVAIL) {
		CHECK(fi_cq_readerr(half->side->cq, &error, 0) == 1 && error.err);
		at = error.op_context;
		tally->failed++;
		tally->access += error.err == EACCES;
	} else {
		CHECK(got == 1);
		at = entry.op_context;
		tally->done++;
	}
	slot = (at - half->side->buf) / SLOT_BYTES;
	CHECK(at >= half->side->buf && slot < ARRAY_SIZE(half->busy) && half->busy[slot]);
	half->busy[slot] = false;
	if (got == 1 && slot / SLOTS == AREA_RECV)
		CHECK(entry.len && entry.len <= SLOT_BYTES && whole(at, entry.len, *at, "a message"));
	if (got == 1 && slot / SLOTS == AREA_RMA)
		CHECK(whole(at, entry.len, TARGET_SEED, "one-sided operation"));
	return 1;
}

static void second_region(struct half *half, struct fid_domain *domain)
{
	if (half->second) {
		fi_close(&half->second->fid);
		half->second = NULL;
		return;
	}
	if (fi_mr_reg(domain, half->side->buf, PAIR_BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
		      PAIR_KEY + 1, 0, &half->second, NULL))
		half->second = NULL;
}

static int traffic(struct pair *pair, struct half *halves, struct tally *tally)
{
	enum area area;
	int round, i, status;

	for (round = 0; round < ROUNDS; round++) {
		for (area = AREA_RECV; area < AREA_TARGET; area++)
			for (i = 0; i < 2; i++)
				post_all(&halves[i], &halves[!i], area, tally);
		second_region(&halves[round & 1], round & 1 ? pair->other_domain : pair->domain);
		for (i = 0; i < 2; i++)
			do {
				status = reap(&halves[i], REAP_MS, tally);
				if (status < 0)
					return status;
			} while (status);
	}
	return 0;
}

/* The endpoint goes: whatever it had accepted has ended then. */
static int leave(struct half *half, struct tally *tally)
{
	size_t slot;
	int status;

	TRY(fi_close(&half->side->ep->fid));
	half->side->ep = NULL;
	do {
		status = reap(half, 0, tally);
	} while (status > 0);
	if (status)
		return status;
	for (slot = 0; slot < ARRAY_SIZE(half->busy); slot++)
		CHECK(!half->busy[slot]);
	return 0;
}

static int use(struct pair *pair, struct tally *tally)
{
	struct half halves[2] = { { .side = &pair->a }, { .side = &pair->b } };
	int i, status, last;

	for (i = 0; i < 2; i++)
		fill(halves[i].side->buf + TARGET_OFFSET, SLOT_BYTES, TARGET_SEED);
	status = traffic(pair, halves, tally);
	if (pair->eq && below(2))
		fi_shutdown(halves[below(2)].side->ep, 0);
	for (i = 0; i < 2; i++) {
		last = leave(&halves[i], tally);
		status = status ?: last;
	}
	for (i = 0; i < 2; i++)
		if (halves[i].second)
			fi_close(&halves[i].second->fid);
	return status;
}

int case_scarce(struct target *target)
{
	unsigned int pairs, turn, wait_ms = test_wait_ms;
	struct tally tally = {};
	struct pair pair;
	int status = 0;

	if (!*target->service || kstrtouint(target->service, 10, &pairs))
		pairs = PAIRS;
	test_wait_ms = min_t(unsigned int, test_wait_ms, PATIENCE_MS);
	for (turn = 0; turn < pairs && !status; turn++) {
		if (pair_open(target, &pair, NULL))
			continue;
		tally.open++;
		status = use(&pair, &tally);
		pair_close(&pair);
	}
	test_wait_ms = wait_ms;
	snprintf(target->note, sizeof(target->note),
		 "%u of %u pairs, %u operations, %u with errors (%u of access), %u refused",
		 tally.open, pairs, tally.done + tally.failed, tally.failed, tally.access,
		 tally.refused);
	return status;
}
