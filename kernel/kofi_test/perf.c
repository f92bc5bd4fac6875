// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Traffic: latency, bandwidth, and pairs that come and go under load. */
#include "test.h"

#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/delay.h>
#include <linux/sched/signal.h>

#define TURNS	500
#define WINDOW	16
#define MESSAGES 128

int case_pingpong(struct target *target)
{
	struct pair pair;
	u64 started;
	int i;

	TRY(pair_open(target, &pair, NULL));
	started = ktime_get_ns();
	for (i = 0; i < TURNS; i++) {
		TRY(fi_recv(pair.b.ep, pair.b.buf, 8, NULL, 0, NULL));
		TRY(fi_recv(pair.a.ep, pair.a.buf, 8, NULL, 0, NULL));
		TRY(fi_inject(pair.a.ep, pair.a.buf, 8, 0));
		CHECK(next_completion(pair.b.cq, NULL));
		TRY(fi_inject(pair.b.ep, pair.b.buf, 8, 0));
		CHECK(next_completion(pair.a.cq, NULL));
	}
	snprintf(target->note, sizeof(target->note), "8 bytes one way: %llu ns",
		 (ktime_get_ns() - started) / (2 * TURNS));
	pair_close(&pair);
	return 0;
}

int case_bandwidth(struct target *target)
{
	struct fi_cq_tagged_entry entry;
	int posted = 0, sent = 0, received = 0;
	const size_t len = 65536;
	struct pair pair;
	u64 started, took;

	TRY(pair_open(target, &pair, NULL));
	started = ktime_get_ns();
	while (received < MESSAGES) {
		while (posted < MESSAGES && posted - received < WINDOW)
			TRY(fi_recv(pair.b.ep, pair.b.buf + (posted++ % WINDOW) * len, len, NULL,
				    0, NULL));
		while (sent < posted && !fi_send(pair.a.ep, pair.a.buf + (sent % WINDOW) * len,
						 len, NULL, 0, NULL))
			sent++;
		CHECK(next_completion(pair.b.cq, &entry) && entry.len == len);
		received++;
		while (fi_cq_read(pair.a.cq, &entry, 1) == 1)
			;
	}
	took = ktime_get_ns() - started;
	snprintf(target->note, sizeof(target->note), "64 KiB: %llu MB/s",
		 (u64)MESSAGES * len * 1000 / took);
	pair_close(&pair);
	return 0;
}

/* Sends until the connection ends. */
static int flood(void *context)
{
	struct side *side = context;
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error;
	ssize_t status = 0;

	while (!kthread_should_stop()) {
		if (!status)
			status = fi_send(side->ep, side->buf, 20000, NULL, 0, NULL);
		if (status == -EAGAIN)
			status = 0;
		while (fi_cq_read(side->cq, &entry, 1) == 1)
			;
		while (fi_cq_readerr(side->cq, &error, 0) == 1)
			;
		cond_resched();
	}
	return 0;
}

/* One pair is opened, used, shut down in the middle of traffic, closed. */
static int churn_once(struct target *target, unsigned int turn)
{
	struct task_struct *task;
	struct pair pair;
	int i;

	TRY(pair_open(target, &pair, NULL));
	for (i = 0; i < 20; i++)
		TRY(fi_recv(pair.b.ep, pair.b.buf, 20000, NULL, 0, NULL));
	task = kthread_run(flood, &pair.a, "kofi_flood");
	CHECK(!IS_ERR(task));
	usleep_range(100, 1000);
	if (turn % 3 == 0)
		fi_shutdown(pair.a.ep, 0);	/* while its own thread sends */
	else if (turn % 3 == 1)
		fi_shutdown(pair.b.ep, 0);
	else
		side_close(&pair.b);		/* under the sender's feet */
	kthread_stop(task);
	pair_close(&pair);
	return 0;
}

int case_churn(struct target *target)
{
	unsigned int turn;

	for (turn = 0; turn < 24; turn++)
		TRY(churn_once(target, turn));
	snprintf(target->note, sizeof(target->note), "%u connections under load", turn);
	return 0;
}
