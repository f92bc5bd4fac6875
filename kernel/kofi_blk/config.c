// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kofi_blk: block devices whose reads and writes are RMA over any provider.
 *
 *   mkdir /sys/kernel/config/kofi_blk/NAME
 *   echo kofi_tcp >NAME/provider; echo 10.0.0.1 >NAME/address; echo 4710 >NAME/service
 *   echo 1 >NAME/connect        /dev/kofiN is there: cat NAME/device
 *   echo 0 >NAME/connect        -EBUSY while somebody has it open
 *
 * configfs: what is configured, and what it is now. Module begin and end.
 */
#include "blk.h"

#include <linux/module.h>
#include <linux/slab.h>

struct workqueue_struct *kblk_wq;

static struct kblk_dev *to_dev(struct config_item *item)
{
	return container_of(item, struct kblk_dev, config.item);
}

/* --- what is configured: only while there is no disk --- */

static ssize_t store_number(struct config_item *item, u32 *to, u32 least, u32 most,
			    const char *page, size_t len)
{
	struct kblk_dev *dev = to_dev(item);
	ssize_t status;
	u32 number;

	status = kstrtou32(page, 10, &number);
	if (status)
		return status;
	if (number < least || number > most)
		return -ERANGE;
	mutex_lock(&dev->config.lock);
	if (dev->config.in_use)
		status = -EBUSY;
	else
		*to = number;
	mutex_unlock(&dev->config.lock);
	return status ?: len;
}

#define NUMBER(name, member, least, most)					\
static ssize_t kblk_##name##_show(struct config_item *item, char *page)		\
{										\
	return sprintf(page, "%u\n", to_dev(item)->member);			\
}										\
static ssize_t kblk_##name##_store(struct config_item *item, const char *page,	\
				   size_t len)					\
{										\
	return store_number(item, &to_dev(item)->member, least, most, page, len);	\
}										\
CONFIGFS_ATTR(kblk_, name)

KOFI_BLOCK_TEXTS(kblk_);
KOFI_BLOCK_TEXT(kblk_, export, to_dev(item)->export);
NUMBER(queues, queue_count, 1, KBLK_QUEUES_MAX);
NUMBER(depth, depth, 1, KBLK_DEPTH_MAX);
NUMBER(timeout, timeout_s, 1, 3600);
NUMBER(give_up, give_up_s, 0, 86400);

/* --- connecting --- */

static int connect_dev(struct kblk_dev *dev)
{
	int status;

	lockdep_assert_held(&dev->config.lock);
	if (dev->disk)
		return -EISCONN;
	status = kblk_session_open(dev);
	if (status)
		return status;
	status = kblk_disk_add(dev);
	if (status) {
		kblk_session_close(dev);
		return status;
	}
	/* A connection that ended meanwhile is heard now. */
	kblk_session_live(dev);
	status = device_add_disk(NULL, dev->disk, NULL);
	if (!status)
		return 0;
	kblk_session_fail(dev);
	cancel_delayed_work_sync(&dev->work);
	kblk_disk_del(dev);
	kblk_session_close(dev);
	WRITE_ONCE(dev->state, KBLK_OFF);
	return status;
}

static int disconnect_dev(struct kblk_dev *dev, bool force)
{
	lockdep_assert_held(&dev->config.lock);
	if (!dev->disk)
		return -ENOTCONN;
	if (!force && disk_openers(dev->disk))
		return -EBUSY;
	/* Without a connection requests would wait for ever. */
	if (force || READ_ONCE(dev->state) != KBLK_LIVE)
		kblk_session_fail(dev);
	del_gendisk(dev->disk);
	kblk_session_fail(dev);
	cancel_delayed_work_sync(&dev->work);
	kblk_disk_del(dev);
	kblk_session_close(dev);
	WRITE_ONCE(dev->state, KBLK_OFF);
	return 0;
}

static ssize_t kblk_connect_show(struct config_item *item, char *page)
{
	return sprintf(page, "%d\n", !!to_dev(item)->disk);
}

static ssize_t kblk_connect_store(struct config_item *item, const char *page, size_t len)
{
	struct kblk_dev *dev = to_dev(item);
	bool wanted;
	int status = kstrtobool(page, &wanted);

	if (status)
		return status;
	mutex_lock(&dev->config.lock);
	status = wanted ? connect_dev(dev) : disconnect_dev(dev, false);
	dev->config.in_use = dev->disk;
	mutex_unlock(&dev->config.lock);
	return kofi_block_stored(status, len);
}
CONFIGFS_ATTR(kblk_, connect);

static ssize_t kblk_device_show(struct config_item *item, char *page)
{
	struct kblk_dev *dev = to_dev(item);
	ssize_t len = 0;

	mutex_lock(&dev->config.lock);
	if (dev->disk)
		len = sprintf(page, "/dev/%s\n", dev->disk->disk_name);
	mutex_unlock(&dev->config.lock);
	return len;
}
CONFIGFS_ATTR_RO(kblk_, device);

static ssize_t kblk_state_show(struct config_item *item, char *page)
{
	static const char * const words[] = {
		[KBLK_OFF] = "off", [KBLK_LIVE] = "live", [KBLK_CUT] = "cut",
		[KBLK_CONNECTING] = "connecting", [KBLK_FAILED] = "failed" };
	struct kblk_dev *dev = to_dev(item);

	return sprintf(page, "%s generation %u cuts %u acknowledged %lld flushed %lld\n",
		       words[READ_ONCE(dev->state)], dev->generation, dev->cuts,
		       atomic64_read(&dev->acknowledged), atomic64_read(&dev->flushed));
}
CONFIGFS_ATTR_RO(kblk_, state);

/* For tests: as if a connection had ended. */
static ssize_t kblk_cut_store(struct config_item *item, const char *page, size_t len)
{
	kblk_cut(to_dev(item));
	return len;
}
CONFIGFS_ATTR_WO(kblk_, cut);

static struct configfs_attribute *dev_attrs[] = {
	&kblk_attr_provider, &kblk_attr_address, &kblk_attr_service, &kblk_attr_export,
	&kblk_attr_queues, &kblk_attr_depth, &kblk_attr_timeout, &kblk_attr_give_up,
	&kblk_attr_connect, &kblk_attr_device, &kblk_attr_state, &kblk_attr_cut, NULL,
};

static void dev_release(struct config_item *item)
{
	struct kblk_dev *dev = to_dev(item);

	mutex_lock(&dev->config.lock);
	if (dev->disk)
		disconnect_dev(dev, true);
	mutex_unlock(&dev->config.lock);
	cancel_delayed_work_sync(&dev->work);
	kfree(dev);
}

static struct configfs_item_operations dev_item_ops = { .release = dev_release };

static const struct config_item_type dev_type = { .ct_item_ops = &dev_item_ops,
						  .ct_attrs = dev_attrs,
						  .ct_owner = THIS_MODULE };

static struct config_item *make_dev(struct config_group *group, const char *name)
{
	struct kblk_dev *dev = kzalloc(sizeof(*dev), GFP_KERNEL);

	if (!dev)
		return ERR_PTR(-ENOMEM);
	mutex_init(&dev->session);
	INIT_DELAYED_WORK(&dev->work, kblk_session_work);
	dev->queue_count = min_t(u32, num_online_cpus(), 4);
	dev->depth = 64;
	dev->timeout_s = 30;
	kofi_block_config_init(&dev->config, name, &dev_type);
	return &dev->config.item;
}

static struct configfs_group_operations group_ops = { .make_item = make_dev };

static const struct config_item_type group_type = { .ct_group_ops = &group_ops,
						    .ct_owner = THIS_MODULE };

static struct configfs_subsystem subsystem = {
	.su_group = { .cg_item = { .ci_namebuf = "kofi_blk", .ci_type = &group_type } },
};

static int __init kblk_init(void)
{
	int status;

	kblk_wq = alloc_workqueue("kofi_blk", WQ_MEM_RECLAIM | WQ_UNBOUND, 0);
	if (!kblk_wq)
		return -ENOMEM;
	status = kofi_block_config_register(&subsystem);
	if (status)
		destroy_workqueue(kblk_wq);
	return status;
}

static void __exit kblk_exit(void)
{
	configfs_unregister_subsystem(&subsystem);
	destroy_workqueue(kblk_wq);
	kblk_exit_names();
}

module_init(kblk_init);
module_exit(kblk_exit);
MODULE_DESCRIPTION("Block devices over any kOFI provider");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION("0.1.0");
