// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Commands: what comes is checked here, once, from a copy; a work item executes
 * it on the file. docs/wire/block.md.
 */
#include "target.h"

#include <kofi/provider.h>	/* kofi_copy() */
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/uio.h>

int kbt_post(struct kbt_conn *conn, struct kbt_receive *receive)
{
	return fi_recv(conn->ep, receive->frame, KBT_FRAME, NULL, FI_ADDR_UNSPEC, receive);
}

/* --- slots --- */

/*
 * Pages are used again and again: the allocator may clear each one first. What
 * is in them has been read from the file or comes from the initiator, and all
 * of it is overwritten before it is sent.
 */
static struct page *page_get(struct kbt_conn *conn)
{
	struct page *page;

	spin_lock(&conn->lock);
	page = list_first_entry_or_null(&conn->pages, struct page, lru);
	if (page) {
		list_del(&page->lru);
		conn->kept--;
	}
	spin_unlock(&conn->lock);
	return page ?: alloc_page(GFP_NOIO);
}

static void page_put(struct kbt_conn *conn, struct page *page)
{
	bool keep;

	spin_lock(&conn->lock);
	/* Nobody below refers to it any more. */
	keep = conn->kept < KBT_KEPT && page_ref_count(page) == 1;
	if (keep) {
		list_add(&page->lru, &conn->pages);
		conn->kept++;
	}
	spin_unlock(&conn->lock);
	if (!keep)
		__free_page(page);
}

void kbt_pages_free(struct kbt_conn *conn)
{
	struct page *page, *next;

	list_for_each_entry_safe(page, next, &conn->pages, lru) {
		list_del(&page->lru);
		__free_page(page);
	}
}

static void free_pages_of(struct kbt_slot *slot)
{
	while (slot->pages)
		page_put(slot->conn, slot->bvec[slot->pages--].bv_page);
}

static int get_pages(struct kbt_slot *slot, u32 bytes)
{
	while (bytes) {
		u32 len = min_t(u32, bytes, PAGE_SIZE);
		struct page *page = page_get(slot->conn);

		if (!page) {
			free_pages_of(slot);
			return -ENOMEM;
		}
		slot->bvec[++slot->pages] = (struct bio_vec){ page, len, 0 };
		bytes -= len;
	}
	return 0;
}

static struct kofi_vec pages_of(const struct kbt_slot *slot)
{
	return kofi_vec_bvec(slot->bvec + 1, slot->pages, 0, le32_to_cpu(slot->command.bytes));
}

static struct kbt_slot *slot_get(struct kbt_conn *conn)
{
	struct kbt_slot *slot;

	spin_lock(&conn->lock);
	slot = list_first_entry_or_null(&conn->free, struct kbt_slot, node);
	if (slot)
		list_del(&slot->node);
	spin_unlock(&conn->lock);
	return slot;
}

void kbt_slot_free(struct kbt_slot *slot)
{
	struct kbt_conn *conn = slot->conn;

	free_pages_of(slot);
	spin_lock(&conn->lock);
	list_add(&slot->node, &conn->free);
	spin_unlock(&conn->lock);
}

/* Once the connection is dead no work starts, so that its end can wait for those that run. */
static void slot_queue(struct kbt_slot *slot)
{
	struct kbt_conn *conn = slot->conn;
	bool queued;

	spin_lock(&conn->lock);
	queued = !conn->dead;
	if (queued)
		queue_work(kbt_wq, &slot->work);
	spin_unlock(&conn->lock);
	if (!queued)
		kbt_slot_free(slot);
}

/* --- the file --- */

static int transfer(struct kbt_slot *slot, bool write, rwf_t flags)
{
	struct file *file = slot->conn->dev->file;
	u32 bytes = le32_to_cpu(slot->command.bytes);
	loff_t at = le64_to_cpu(slot->command.offset);
	struct iov_iter iter;
	ssize_t done = 1;

	iov_iter_bvec(&iter, write ? ITER_SOURCE : ITER_DEST, slot->bvec + 1, slot->pages, bytes);
	while (iov_iter_count(&iter) && done > 0) {
		if (write) {
			file_start_write(file);
			done = vfs_iter_write(file, &iter, &at, flags);
			file_end_write(file);
		} else {
			done = vfs_iter_read(file, &iter, &at, flags);
		}
	}
	return done < 0 ? done : iov_iter_count(&iter) ? -EIO : 0;
}

static int flush(struct kbt_dev *dev)
{
	if (READ_ONCE(dev->lost))
		return -EIO;
	if (!vfs_fsync(dev->file, 1))
		return 0;
	/* The kernel reports it once; what was not written is forgotten. */
	WRITE_ONCE(dev->lost, true);
	return -EIO;
}

static int punch(struct kbt_slot *slot)
{
	struct kbt_dev *dev = slot->conn->dev;
	u32 bytes = le32_to_cpu(slot->command.bytes);
	loff_t at = le64_to_cpu(slot->command.offset);
	int status = -EOPNOTSUPP;

	if (!bytes)
		return 0;
	if (slot->command.op == KBLK_ZERO)
		status = vfs_fallocate(dev->file, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, at,
				       bytes);
	/* A hole reads as zeros. */
	if (status == -EOPNOTSUPP)
		status = vfs_fallocate(dev->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at,
				       bytes);
	return status ?: slot->command.flags & KBLK_FUA ? flush(dev) : 0;
}

/* --- execution --- */

static void answer(struct kbt_slot *slot, int status)
{
	struct kblk_answer answer = { .tag = slot->command.tag,
				      .sequence = slot->command.sequence,
				      .err = cpu_to_le16(-status) };
	struct kbt_conn *conn = slot->conn;

	/* Before the answer leaves: the next command may come at once. */
	kbt_slot_free(slot);
	if (fi_inject(conn->ep, &answer, sizeof(answer), FI_ADDR_UNSPEC))
		kbt_cut(conn);
}

/* The bytes of a read, behind its answer. */
static ssize_t bring_inline(struct kbt_slot *slot)
{
	u32 len = sizeof(*slot->answer) + le32_to_cpu(slot->command.bytes);
	struct fi_msg msg = { .vec = kofi_vec_bvec(slot->bvec, 1 + slot->pages, 0, len) };
	struct kbt_conn *conn = slot->conn;
	ssize_t status = -EAGAIN;

	*slot->answer = (struct kblk_answer){ .tag = slot->command.tag,
					      .sequence = slot->command.sequence };
	slot->bvec[0] = (struct bio_vec){ virt_to_page(slot->answer), sizeof(*slot->answer),
					  offset_in_page(slot->answer) };
	/* What is injected is copied when the call returns; a failure is reported without a slot. */
	if (len <= conn->dev->info->tx_attr->inject_size)
		status = fi_sendmsg(conn->ep, &msg, FI_INJECT);
	if (!status)
		kbt_slot_free(slot);
	if (status != -EAGAIN)
		return status;
	msg.context = slot;
	return fi_sendmsg(conn->ep, &msg, FI_COMPLETION);
}

/* Its answer is the write of its bytes. */
static ssize_t bring_by_rma(struct kbt_slot *slot)
{
	struct fi_rma_iov target = { .len = le32_to_cpu(slot->command.bytes),
				     .key = le64_to_cpu(slot->command.key) };
	struct fi_msg_rma msg = {
		.msg = { .vec = pages_of(slot), .context = slot,
			 .data = kblk_answer_data(le16_to_cpu(slot->command.tag),
						  le16_to_cpu(slot->command.sequence)) },
		.rma_iov = &target, .rma_iov_count = 1 };

	return fi_writemsg(slot->conn->ep, &msg, FI_REMOTE_CQ_DATA | FI_COMPLETION);
}

static void bring(struct kbt_slot *slot)
{
	if (!(slot->command.flags & KBLK_INLINE ? bring_inline(slot) : bring_by_rma(slot)))
		return;
	kbt_cut(slot->conn);
	kbt_slot_free(slot);
}

static void fetch(struct kbt_slot *slot)
{
	struct fi_rma_iov target = { .len = le32_to_cpu(slot->command.bytes),
				     .key = le64_to_cpu(slot->command.key) };
	struct fi_msg_rma msg = { .msg = { .vec = pages_of(slot), .context = slot },
				  .rma_iov = &target, .rma_iov_count = 1 };

	if (!fi_readmsg(slot->conn->ep, &msg, FI_COMPLETION))
		return;
	kbt_cut(slot->conn);
	kbt_slot_free(slot);
}

static void execute(struct kbt_slot *slot)
{
	struct kbt_dev *dev = slot->conn->dev;
	int status = 0;

	if (slot->command.op == KBLK_READ) {
		status = get_pages(slot, le32_to_cpu(slot->command.bytes)) ?:
			 transfer(slot, false, 0);
		if (!status) {
			bring(slot);
			return;
		}
	} else if (READ_ONCE(dev->lost)) {
		status = -EIO;
	} else if (slot->command.op == KBLK_WRITE && !slot->fetched) {
		status = get_pages(slot, le32_to_cpu(slot->command.bytes));
		if (!status) {
			fetch(slot);
			return;
		}
	} else if (slot->command.op == KBLK_WRITE) {
		status = transfer(slot, true,
				  slot->command.flags & KBLK_FUA ? RWF_DSYNC : 0);
	} else if (slot->command.op == KBLK_FLUSH) {
		status = flush(dev);
	} else {
		status = punch(slot);
	}
	answer(slot, status);
}

/* What memory is got by must not wait for a disk whose target this may be. */
static void execute_work(struct work_struct *work)
{
	unsigned int noio = memalloc_noio_save();

	execute(container_of(work, struct kbt_slot, work));
	memalloc_noio_restore(noio);
}

/* A read of what the page cache has. False: nothing has happened. */
static bool read_now(struct kbt_slot *slot)
{
	if (slot->command.op != KBLK_READ || !(slot->conn->dev->file->f_mode & FMODE_NOWAIT))
		return false;
	if (get_pages(slot, le32_to_cpu(slot->command.bytes)) ||
	    transfer(slot, false, RWF_NOWAIT)) {
		free_pages_of(slot);
		return false;
	}
	bring(slot);
	return true;
}

/*
 * By the reader of the queue, if that does not wait, and if there are not too
 * many: others want its processor.
 */
static void execute_soon(struct kbt_slot *slot)
{
	struct kbt_conn *conn = slot->conn;
	bool memory_only = conn->dev->in_memory && slot->command.op <= KBLK_FLUSH;
	bool fetch_only = slot->command.op == KBLK_WRITE && !slot->fetched;

	lockdep_assert_held(&conn->rx);
	if (conn->burst++ < KBT_BURST) {
		if (memory_only || fetch_only) {
			execute(slot);
			return;
		}
		if (read_now(slot))
			return;
	}
	slot_queue(slot);
}

void kbt_slot_init(struct kbt_conn *conn, struct kbt_slot *slot)
{
	slot->kind = KBT_SLOT;
	slot->conn = conn;
	slot->answer = conn->answers + (slot - conn->slots);
	INIT_WORK(&slot->work, execute_work);
	list_add(&slot->node, &conn->free);
}

/* --- what comes --- */

static bool well_formed(const struct kblk_command *command, size_t len)
{
	bool pages = command->op == KBLK_READ || command->op == KBLK_WRITE;
	u32 bytes = le32_to_cpu(command->bytes);
	u32 with_it = command->flags & KBLK_INLINE ? bytes : 0;
	u32 payload = command->op == KBLK_WRITE ? with_it : 0;

	if (command->op > KBLK_ZERO || (command->flags & ~(KBLK_FUA | KBLK_INLINE)))
		return false;
	if (with_it && (!pages || with_it > KBLK_INLINE_MAX))
		return false;
	return len == sizeof(*command) + payload && !(pages && (!bytes || bytes > KBLK_IO_MAX));
}

static bool in_bounds(const struct kbt_dev *dev, const struct kblk_command *command)
{
	u64 offset = le64_to_cpu(command->offset);
	u32 bytes = le32_to_cpu(command->bytes);

	return !(bytes % KBT_BLOCK) && !(offset % KBT_BLOCK) && offset <= dev->bytes &&
	       bytes <= dev->bytes - offset;
}

static void on_command(struct kbt_conn *conn, struct kbt_receive *receive, size_t len)
{
	struct kbt_slot *slot = NULL;
	struct kblk_command command;
	struct kofi_vec from, to;
	int status = 0;

	if (len >= sizeof(command)) {
		memcpy(&command, receive->frame, sizeof(command));
		if (well_formed(&command, len))
			slot = slot_get(conn);
	}
	if (!slot) {	/* nonsense, or more commands than were agreed on */
		kbt_cut(conn);
		return;
	}
	slot->command = command;
	slot->fetched = command.op == KBLK_WRITE && (command.flags & KBLK_INLINE);
	if (slot->fetched) {
		status = get_pages(slot, le32_to_cpu(command.bytes));
		if (!status) {
			from = kofi_vec_buf(receive->frame + sizeof(command),
					    le32_to_cpu(command.bytes));
			to = pages_of(slot);
			kofi_copy(&to, 0, &from, 0, from.len);
		}
	}
	if (kbt_post(conn, receive)) {
		kbt_slot_free(slot);
		kbt_cut(conn);
	} else if (status || !in_bounds(conn->dev, &command)) {
		answer(slot, status ?: -EINVAL);
	} else {
		execute_soon(slot);
	}
}

static void on_entry(void *of, const struct fi_cq_tagged_entry *entry, int err, int reason)
{
	void *context = entry->op_context;
	struct kbt_slot *slot = context;
	struct kbt_conn *conn = of;

	if (!context) {
		if (err)	/* an answer that was injected */
			kbt_cut(conn);
		return;
	}
	if (err || READ_ONCE(conn->dead)) {
		if (slot->kind == KBT_SLOT)
			kbt_slot_free(slot);
		if (err)
			kbt_cut(conn);
	} else if (slot->kind == KBT_RECEIVE) {
		on_command(conn, context, entry->len);
	} else if (slot->command.op == KBLK_WRITE) {
		slot->fetched = true;
		execute_soon(slot);
	} else {
		kbt_slot_free(slot);
	}
}

void kbt_poll(struct fid_cq *cq, void *context)
{
	struct kbt_conn *conn = context;

	mutex_lock(&conn->rx);
	conn->burst = 0;
	kofi_cq_drain(cq, conn, on_entry);
	mutex_unlock(&conn->rx);
}
