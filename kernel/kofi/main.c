// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* kofi.ko: its begin and end, and what /sys/kernel/debug/kofi shows. */
#include "internal.h"

#include <linux/debugfs.h>

#include <kofi/compat.h>

#define CREATE_TRACE_POINTS
#include "trace.h"

struct workqueue_struct *kofi_wq;
static struct dentry *kofi_dir;

static int providers_show(struct seq_file *seq, void *unused)
{
	kofi_registry_show(seq);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(providers);

static int objects_show(struct seq_file *seq, void *unused)
{
	kofi_objects_show(seq, false);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(objects);

static int counters_show(struct seq_file *seq, void *unused)
{
	kofi_objects_show(seq, true);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(counters);

static int __init kofi_init(void)
{
	/* Not reclaimed by memory pressure: a block device may stand on it. */
	kofi_wq = alloc_workqueue("kofi", WQ_HIGHPRI | WQ_MEM_RECLAIM | WQ_PERCPU, 0);
	if (!kofi_wq)
		return -ENOMEM;
	kofi_dir = debugfs_create_dir("kofi", NULL);
	debugfs_create_file("providers", 0400, kofi_dir, NULL, &providers_fops);
	debugfs_create_file("objects", 0400, kofi_dir, NULL, &objects_fops);
	debugfs_create_file("counters", 0400, kofi_dir, NULL, &counters_fops);
	return 0;
}

static void __exit kofi_exit(void)
{
	debugfs_remove(kofi_dir);
	destroy_workqueue(kofi_wq);
}

module_init(kofi_init);
module_exit(kofi_exit);
MODULE_DESCRIPTION("Fabric interface in the kernel");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION("0.1.0");
