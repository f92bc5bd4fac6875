/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Two threads, one on each of the first two processors, from begin to end: what
 * is measured, and what it is measured against. Must not know kOFI.
 */
#ifndef _KOFI_TEST_BOTH_H
#define _KOFI_TEST_BOTH_H

#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/ktime.h>

struct both {
	int			(*turns)(void *end);
	void			*end;
	int			status;
	struct completion	done;
};

static int both_thread(void *context)
{
	struct both *one = context;

	one->status = one->turns(one->end);
	complete(&one->done);
	return 0;
}

/* *took: nanoseconds. The first status that is not 0. */
static int run_both(int (*turns)(void *end), void *first, void *second, u64 *took)
{
	struct both both[2] = { { turns, first }, { turns, second } };
	struct task_struct *tasks[2];
	u64 started;
	int i;

	for (i = 0; i < 2; i++) {
		init_completion(&both[i].done);
		tasks[i] = kthread_create(both_thread, &both[i], "kofi_both%d", i);
		if (IS_ERR(tasks[i])) {
			if (i)
				kthread_stop(tasks[0]);
			return -ENOMEM;
		}
		if (cpu_online(i))
			kthread_bind(tasks[i], i);
	}
	started = ktime_get_ns();
	wake_up_process(tasks[1]);
	wake_up_process(tasks[0]);
	for (i = 0; i < 2; i++)
		wait_for_completion(&both[i].done);
	*took = ktime_get_ns() - started;
	return both[0].status ?: both[1].status;
}

#endif
