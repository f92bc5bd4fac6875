// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Listening, and connections. What makes a repeated command safe is here: the
 * first connection of a newer generation is welcomed only after all commands
 * of the older one have ended.
 */
#include "target.h"

#include <linux/file.h>
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/jhash.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/slab.h>

/* --- the end of a connection --- */

/* It is dead, and the work item frees it. */
void kbt_cut(struct kbt_conn *conn)
{
	spin_lock(&conn->lock);
	if (!conn->dead)
		queue_work(kbt_wq, &conn->dev->reap);
	conn->dead = true;
	spin_unlock(&conn->lock);
}

static void conn_free(struct kbt_conn *conn)
{
	u32 i;

	lockdep_assert_held(&conn->dev->cm);
	spin_lock(&conn->lock);
	conn->dead = true;	/* no work is queued any more... */
	spin_unlock(&conn->lock);
	for (i = 0; conn->slots && i < conn->slot_count; i++)
		if (conn->slots[i].conn && cancel_work_sync(&conn->slots[i].work))
			kbt_slot_free(&conn->slots[i]);
	/* ...and none runs: only the reader is left that calls down. */
	mutex_lock(&conn->rx);
	if (conn->ep)
		WARN_ON(fi_close(&conn->ep->fid));
	conn->ep = NULL;
	mutex_unlock(&conn->rx);
	if (conn->cq) {
		kbt_poll(conn->cq, conn);
		WARN_ON(fi_close(&conn->cq->fid));
	}
	for (i = 0; conn->receives && i < conn->depth; i++)
		if (conn->receives[i].frame)
			free_pages_exact(conn->receives[i].frame, PAGE_ALIGN(KBT_FRAME));
	list_del(&conn->node);
	kbt_pages_free(conn);
	kfree(conn->receives);
	kvfree(conn->slots);
	free_page((unsigned long)conn->answers);
	kfree(conn);
}

static void end_all(struct kbt_dev *dev)
{
	struct kbt_conn *conn, *next;

	list_for_each_entry_safe(conn, next, &dev->conns, node)
		conn_free(conn);
}

static void reap_locked(struct kbt_dev *dev)
{
	struct kbt_conn *conn, *next;

	list_for_each_entry_safe(conn, next, &dev->conns, node)
		if (READ_ONCE(conn->dead))
			conn_free(conn);
}

void kbt_reap(struct work_struct *work)
{
	struct kbt_dev *dev = container_of(work, struct kbt_dev, reap);

	mutex_lock(&dev->cm);
	reap_locked(dev);
	mutex_unlock(&dev->cm);
}

/* --- the begin --- */

static int make_room(struct kbt_conn *conn)
{
	u32 i;

	conn->receives = kcalloc(conn->depth, sizeof(*conn->receives), GFP_KERNEL);
	conn->slot_count = 2 * conn->depth;
	conn->slots = kvcalloc(conn->slot_count, sizeof(*conn->slots), GFP_KERNEL);
	conn->answers = (void *)__get_free_page(GFP_KERNEL);
	BUILD_BUG_ON(2 * KBLK_DEPTH_MAX * sizeof(*conn->answers) > PAGE_SIZE);
	if (!conn->receives || !conn->slots || !conn->answers)
		return -ENOMEM;
	for (i = 0; i < conn->depth; i++) {
		conn->receives[i].kind = KBT_RECEIVE;
		conn->receives[i].frame = alloc_pages_exact(PAGE_ALIGN(KBT_FRAME), GFP_KERNEL);
		if (!conn->receives[i].frame)
			return -ENOMEM;
	}
	for (i = 0; i < conn->slot_count; i++)
		kbt_slot_init(conn, &conn->slots[i]);
	return 0;
}

static int conn_open(struct kbt_conn *conn, struct fi_info *request)
{
	struct kbt_dev *dev = conn->dev;
	struct fi_cq_attr attr = { .size = 4 * conn->depth, .handler = kbt_poll, .noio = true };
	int status = make_room(conn), i;

	if (!status)
		status = fi_cq_open(dev->domain, &attr, &conn->cq, conn);
	if (!status)
		status = fi_endpoint(dev->domain, request, &conn->ep, conn);
	if (!status)
		status = fi_ep_bind(conn->ep, &dev->eq->fid, 0);
	if (!status)
		status = fi_ep_bind(conn->ep, &conn->cq->fid, FI_RECV);
	if (!status)
		status = fi_ep_bind(conn->ep, &conn->cq->fid,
				    FI_TRANSMIT | FI_SELECTIVE_COMPLETION);
	if (!status)
		status = fi_enable(conn->ep);
	for (i = 0; i < conn->depth && !status; i++)
		status = kbt_post(conn, &conn->receives[i]);
	return status;
}

/* Who may connect: 0 or an errno. */
static int admit(struct kbt_dev *dev, const struct kblk_hello *hello)
{
	u16 queues = le16_to_cpu(hello->queues), depth = le16_to_cpu(hello->depth);
	u32 generation = le32_to_cpu(hello->generation);
	struct kbt_conn *conn;

	if (le32_to_cpu(hello->magic) != KBLK_MAGIC || le16_to_cpu(hello->version) != KBLK_VERSION)
		return EPROTO;
	if (!queues || queues > KBLK_QUEUES_MAX || le16_to_cpu(hello->queue) >= queues || !depth ||
	    depth > KBLK_DEPTH_MAX || !generation)
		return EINVAL;
	reap_locked(dev);
	if (dev->generation && memcmp(dev->session, hello->session, sizeof(dev->session))) {
		if (!list_empty(&dev->conns))
			return EBUSY;
		dev->generation = 0;
	}
	if (generation < dev->generation)
		return ESTALE;
	if (generation > dev->generation) {
		end_all(dev);
		memcpy(dev->session, hello->session, sizeof(dev->session));
		dev->generation = generation;
	}
	list_for_each_entry(conn, &dev->conns, node)
		if (conn->queue == le16_to_cpu(hello->queue))
			return EEXIST;
	return 0;
}

static struct kbt_conn *conn_new(struct kbt_dev *dev, const struct kblk_hello *hello)
{
	struct kbt_conn *conn = kzalloc(sizeof(*conn), GFP_KERNEL);

	if (!conn)
		return NULL;
	conn->dev = dev;
	conn->queue = le16_to_cpu(hello->queue);
	conn->depth = le16_to_cpu(hello->depth);
	mutex_init(&conn->rx);
	spin_lock_init(&conn->lock);
	INIT_LIST_HEAD(&conn->free);
	INIT_LIST_HEAD(&conn->pages);
	list_add_tail(&conn->node, &dev->conns);
	return conn;
}

static void on_request(struct kbt_dev *dev, struct fi_info *request, const void *data, size_t len)
{
	struct kblk_welcome welcome = {
		.magic = cpu_to_le32(KBLK_MAGIC), .version = cpu_to_le16(KBLK_VERSION),
		.flags = cpu_to_le16(KBLK_DISCARD | KBLK_ZEROES | KBLK_INLINE_READS),
		.block_bytes = cpu_to_le32(KBT_BLOCK), .bytes = cpu_to_le64(dev->bytes),
		.volume = cpu_to_le64(dev->volume), .epoch = cpu_to_le64(kbt_epoch) };
	struct kblk_refusal refusal = { .magic = cpu_to_le32(KBLK_MAGIC) };
	const struct kblk_hello *hello = data;
	struct kbt_conn *conn = NULL;
	int err = EPROTO, status = -ENOMEM;

	if (len == sizeof(*hello))
		err = admit(dev, hello);
	if (!err)
		conn = conn_new(dev, hello);
	if (conn)
		status = conn_open(conn, request);
	if (!status) {
		if (fi_accept(conn->ep, &welcome, sizeof(welcome)))
			kbt_cut(conn);
		return;
	}
	refusal.err = cpu_to_le32(err ?: ENOMEM);
	if (dev->pep)
		fi_reject(dev->pep, request->handle, &refusal, sizeof(refusal));
	if (conn)
		conn_free(conn);
}

static void on_event(void *of, const struct kofi_cm_event *event)
{
	if (event->err || event->type == FI_SHUTDOWN)
		kbt_cut(event->fid->context);
	else if (event->type == FI_CONNREQ)
		on_request(of, event->info, event->data, event->len);
}

static void eq_handler(struct fid_eq *eq, void *context)
{
	struct kbt_dev *dev = context;

	kofi_eq_drain(eq, &dev->cm, dev, on_event);
}

/* --- the device --- */

static int open_file(struct kbt_dev *dev)
{
	struct file *file = filp_open(dev->path, O_RDWR | O_LARGEFILE | O_NOATIME, 0);
	struct inode *inode;

	if (IS_ERR(file))
		return PTR_ERR(file);
	inode = file->f_mapping->host;
	dev->bytes = i_size_read(inode) & ~(u64)(KBT_BLOCK - 1);
	if ((!S_ISREG(inode->i_mode) && !S_ISBLK(inode->i_mode)) || !dev->bytes) {
		fput(file);
		return -EINVAL;
	}
	dev->volume = (u64)(S_ISBLK(inode->i_mode) ? inode->i_rdev : inode->i_sb->s_dev) << 32 |
		      jhash(&inode->i_ino, sizeof(inode->i_ino), 0);
	dev->in_memory = S_ISREG(inode->i_mode) && (inode->i_sb->s_magic == TMPFS_MAGIC ||
						    inode->i_sb->s_magic == RAMFS_MAGIC);
	dev->file = file;
	return 0;
}

static int open_fabric(struct kbt_dev *dev)
{
	struct fi_eq_attr attr = { .handler = eq_handler };
	int status = kofi_block_getinfo(&dev->config, FI_SOURCE, sizeof(struct kblk_answer),
					&dev->info);

	if (!status)
		status = fi_fabric(dev->info->fabric_attr, &dev->fabric, NULL);
	if (!status)
		status = fi_domain(dev->fabric, dev->info, &dev->domain, NULL);
	if (!status)
		status = fi_eq_open(dev->fabric, &attr, &dev->eq, dev);
	if (!status)
		status = fi_passive_ep(dev->fabric, dev->info, &dev->pep, dev);
	if (!status)
		status = fi_pep_bind(dev->pep, &dev->eq->fid, 0);
	return status ?: fi_listen(dev->pep);
}

void kbt_close(struct kbt_dev *dev)
{
	mutex_lock(&dev->cm);
	if (dev->pep)
		WARN_ON(fi_close(&dev->pep->fid));	/* its events are gone, too */
	dev->pep = NULL;
	end_all(dev);
	mutex_unlock(&dev->cm);
	if (dev->eq)
		WARN_ON(fi_close(&dev->eq->fid));
	dev->eq = NULL;
	cancel_work_sync(&dev->reap);
	if (dev->domain)
		WARN_ON(fi_close(&dev->domain->fid));
	dev->domain = NULL;
	if (dev->fabric)
		WARN_ON(fi_close(&dev->fabric->fid));
	dev->fabric = NULL;
	fi_freeinfo(dev->info);
	dev->info = NULL;
	if (dev->file)
		fput(dev->file);
	dev->file = NULL;
}

int kbt_open(struct kbt_dev *dev)
{
	int status;

	dev->generation = 0;
	dev->lost = false;
	status = open_file(dev) ?: open_fabric(dev);
	if (status)
		kbt_close(dev);
	return status;
}
