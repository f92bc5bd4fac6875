// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kofi_blk_target: serves files and disks to kofi_blk.
 *
 *   mkdir /sys/kernel/config/kofi_blk_target/NAME
 *   echo kofi_tcp >NAME/provider; echo 10.0.0.1 >NAME/address; echo 4710 >NAME/service
 *   echo /srv/disk.img >NAME/path
 *   echo 1 >NAME/enable
 *
 * configfs, and the module's begin and end.
 */
#include "target.h"

#include <linux/module.h>
#include <linux/random.h>
#include <linux/slab.h>

#include <kofi/compat.h>

struct workqueue_struct *kbt_wq;
/* Unflushed writes are in the page cache, of which another load of the module knows nothing. */
u64 kbt_epoch;

static struct kbt_dev *to_dev(struct config_item *item)
{
	return container_of(item, struct kbt_dev, config.item);
}

KOFI_BLOCK_TEXTS(kbt_);
KOFI_BLOCK_TEXT(kbt_, path, to_dev(item)->path);

static ssize_t kbt_enable_show(struct config_item *item, char *page)
{
	return sprintf(page, "%d\n", to_dev(item)->config.in_use);
}

static ssize_t kbt_enable_store(struct config_item *item, const char *page, size_t len)
{
	struct kbt_dev *dev = to_dev(item);
	bool wanted;
	int status = kstrtobool(page, &wanted);

	if (status)
		return status;
	mutex_lock(&dev->config.lock);
	if (wanted && !dev->config.in_use)
		status = kbt_open(dev);
	else if (!wanted && dev->config.in_use)
		kbt_close(dev);
	if (!status)
		dev->config.in_use = wanted;
	mutex_unlock(&dev->config.lock);
	return kofi_block_stored(status, len);
}
CONFIGFS_ATTR(kbt_, enable);

static ssize_t kbt_state_show(struct config_item *item, char *page)
{
	struct kbt_dev *dev = to_dev(item);
	struct kbt_conn *conn;
	unsigned int count = 0;

	mutex_lock(&dev->cm);
	list_for_each_entry(conn, &dev->conns, node)
		count++;
	mutex_unlock(&dev->cm);
	return sprintf(page, "generation %u connections %u bytes %llu%s\n", dev->generation, count,
		       dev->bytes, dev->lost ? " lost writes" : "");
}
CONFIGFS_ATTR_RO(kbt_, state);

static struct configfs_attribute *dev_attrs[] = {
	&kbt_attr_provider, &kbt_attr_address, &kbt_attr_service, &kbt_attr_path,
	&kbt_attr_enable, &kbt_attr_state, NULL,
};

static void dev_release(struct config_item *item)
{
	struct kbt_dev *dev = to_dev(item);

	if (dev->config.in_use)
		kbt_close(dev);
	kfree(dev);
}

static struct configfs_item_operations dev_item_ops = { .release = dev_release };

static const struct config_item_type dev_type = { .ct_item_ops = &dev_item_ops,
						  .ct_attrs = dev_attrs,
						  .ct_owner = THIS_MODULE };

static struct config_item *make_dev(struct config_group *group, const char *name)
{
	struct kbt_dev *dev = kzalloc(sizeof(*dev), GFP_KERNEL);

	if (!dev)
		return ERR_PTR(-ENOMEM);
	mutex_init(&dev->cm);
	INIT_LIST_HEAD(&dev->conns);
	INIT_WORK(&dev->reap, kbt_reap);
	kofi_block_config_init(&dev->config, name, &dev_type);
	return &dev->config.item;
}

static struct configfs_group_operations group_ops = { .make_item = make_dev };

static const struct config_item_type group_type = { .ct_group_ops = &group_ops,
						    .ct_owner = THIS_MODULE };

static struct configfs_subsystem subsystem = {
	.su_group = { .cg_item = { .ci_namebuf = "kofi_blk_target", .ci_type = &group_type } },
};

static int __init kbt_init(void)
{
	int status;

	get_random_bytes(&kbt_epoch, sizeof(kbt_epoch));
	kbt_wq = alloc_workqueue("kofi_blk_target", WQ_MEM_RECLAIM | WQ_PERCPU, 0);
	if (!kbt_wq)
		return -ENOMEM;
	status = kofi_block_config_register(&subsystem);
	if (status)
		destroy_workqueue(kbt_wq);
	return status;
}

static void __exit kbt_exit(void)
{
	configfs_unregister_subsystem(&subsystem);
	destroy_workqueue(kbt_wq);
}

module_init(kbt_init);
module_exit(kbt_exit);
MODULE_DESCRIPTION("Target of block devices over any kOFI provider");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION("0.1.0");
