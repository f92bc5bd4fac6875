// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kofi_test: cases over any provider, chosen by a debugfs file.
 *
 *   echo "kofi_loop" >/sys/kernel/debug/kofi_test/run              all cases
 *   echo "kofi_tcp 127.0.0.1 messages" >/sys/kernel/debug/kofi_test/run
 *   echo "kofi_tcp 127.0.0.1 serve 4711" >/sys/kernel/debug/kofi_test/run
 *   echo "kofi_tcp 127.0.0.1 scarce 100" >/sys/kernel/debug/kofi_test/run   100 pairs
 *   cat /sys/kernel/debug/kofi_test/run                            one line a case
 *
 * The write ends when the cases have; it fails with EIO when one has failed.
 */
#include "test.h"

#include <linux/debugfs.h>
#include <linux/ktime.h>
#include <linux/mutex.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

static const struct {
	const char	*name;
	int		(*run)(struct target *target);
} cases[] = {
	{ "getinfo", case_getinfo },
	{ "provider", case_provider },
	{ "objects", case_objects },
	{ "connect", case_connect },
	{ "messages", case_messages },
	{ "vectors", case_vectors },
	{ "unexpected", case_unexpected },
	{ "tagged", case_tagged },
	{ "rma", case_rma },
	{ "atomics", case_atomics },
	{ "queues", case_queues },
	{ "callbacks", case_callbacks },
	{ "cancel", case_cancel },
	{ "rdm", case_rdm },
	{ "crowd", case_crowd },
	{ "ahead", case_ahead },
	{ "intruder", case_intruder },
	{ "shutdown", case_shutdown },
	{ "churn", case_churn },
	{ "pingpong", case_pingpong },
	{ "bandwidth", case_bandwidth },
	{ "scarce", case_scarce },
	/* Measuring, and with a program outside: only when they are named. */
	{ "latency", case_latency },
	{ "stream", case_stream },
	{ "socket-latency", case_socket_latency },
	{ "socket-stream", case_socket_stream },
	{ "serve", case_serve },
	{ "drive", case_drive },
};

#define CASES_ALONE (ARRAY_SIZE(cases) - 6)

#define RESULT_BYTES 8192

unsigned int test_wait_ms = 20000;
module_param_named(wait_ms, test_wait_ms, uint, 0600);
MODULE_PARM_DESC(wait_ms, "how long a case waits for a completion or an event");

static DEFINE_MUTEX(test_lock);
static char *test_results;	/* RESULT_BYTES */
static struct dentry *test_dir;

static bool run_case(size_t i, struct target *target)
{
	u64 started = ktime_get_ns();
	size_t len = strlen(test_results);
	const char *word;
	int status;

	*target->note = 0;
	status = cases[i].run(target);
	word = !status ? "ok" : status == SKIPPED ? "skipped" : "FAILED";
	snprintf(target->note + strlen(target->note), sizeof(target->note) - strlen(target->note),
		 "%s%llu ms", *target->note ? ", " : "", (ktime_get_ns() - started) / 1000000);
	if (status < 0)
		snprintf(target->note, sizeof(target->note), "line %d", -status);
	else if (status == SKIPPED)
		strscpy(target->note, "not a case of this provider", sizeof(target->note));
	snprintf(test_results + len, RESULT_BYTES - len, "%s %s %s: %s\n", word,
		 target->provider, cases[i].name, target->note);
	pr_info("kofi_test: %s %s %s: %s\n", word, target->provider, cases[i].name, target->note);
	return status >= 0;
}

static ssize_t run_write(struct file *file, const char __user *user, size_t count, loff_t *at)
{
	char text[160] = "", provider[FI_NAME_MAX] = "", node[64] = "", only[32] = "";
	char service[16] = "";
	struct target *target;
	bool all_well = true, found = false;
	size_t i;

	if (count >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, user, count))
		return -EFAULT;
	if (sscanf(text, "%63s %63s %31s %15s", provider, node, only, service) < 1)
		return -EINVAL;
	target = kzalloc(sizeof(*target), GFP_KERNEL);
	if (!target)
		return -ENOMEM;
	strscpy(target->provider, provider, sizeof(target->provider));
	if (strcmp(node, "-"))
		strscpy(target->node, node, sizeof(target->node));
	strscpy(target->service, service, sizeof(target->service));
	if (mutex_lock_interruptible(&test_lock)) {
		kfree(target);
		return -EINTR;
	}
	*test_results = 0;
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		if (*only && strcmp(only, cases[i].name))
			continue;
		if (!*only && i >= CASES_ALONE)
			break;
		found = true;
		all_well &= run_case(i, target);
	}
	mutex_unlock(&test_lock);
	kfree(target);
	return !found ? -EINVAL : all_well ? count : -EIO;
}

static int run_show(struct seq_file *seq, void *unused)
{
	mutex_lock(&test_lock);
	seq_puts(seq, test_results);
	mutex_unlock(&test_lock);
	return 0;
}

static int run_open(struct inode *inode, struct file *file)
{
	return single_open(file, run_show, NULL);
}

static const struct file_operations run_fops = {
	.owner = THIS_MODULE,
	.open = run_open,
	.read = seq_read,
	.write = run_write,
	.llseek = seq_lseek,
	.release = single_release,
};

static int __init test_init(void)
{
	test_results = kzalloc(RESULT_BYTES, GFP_KERNEL);
	if (!test_results)
		return -ENOMEM;
	test_dir = debugfs_create_dir("kofi_test", NULL);
	debugfs_create_file("run", 0600, test_dir, NULL, &run_fops);
	return 0;
}

static void __exit test_exit(void)
{
	debugfs_remove(test_dir);
	kfree(test_results);
}

module_init(test_init);
module_exit(test_exit);
MODULE_DESCRIPTION("Cases of the fabric interface in the kernel");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION("0.1.0");
