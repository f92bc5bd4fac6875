// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The disk: requests become commands, answers end requests. Must not know how
 * connections come and go.
 *
 * A write of up to KBLK_INLINE_MAX bytes travels with its command, a read with
 * its answer, if the target can. The pages of all other requests are registered
 * under a key that is never used again; the target reads or writes them, and the
 * registration is closed before the request ends: then nobody reaches the pages
 * any more.
 */
#include "blk.h"

#include <linux/idr.h>
#include <linux/sched/mm.h>

static DEFINE_IDA(names);

/* --- the end of a command --- */

static void note_write(struct kblk_dev *dev, const struct kblk_cmd *cmd)
{
	s64 flushed;

	switch (cmd->wire.op) {
	case KBLK_WRITE:
	case KBLK_ZERO:
	case KBLK_DISCARD_OP:
		if (!(cmd->wire.flags & KBLK_FUA))
			atomic64_inc(&dev->acknowledged);
		break;
	case KBLK_FLUSH:
		flushed = atomic64_read(&dev->flushed);
		while (flushed < (s64)cmd->mark &&
		       !atomic64_try_cmpxchg(&dev->flushed, &flushed, cmd->mark))
			;
		break;
	default:
		break;
	}
}

void kblk_cmd_put(struct kblk_cmd *cmd)
{
	struct request *rq = blk_mq_rq_from_pdu(cmd);

	if (!atomic_dec_and_test(&cmd->refs))
		return;
	if (cmd->mr)
		WARN_ON(fi_close(&cmd->mr->fid));
	cmd->mr = NULL;
	if (!cmd->status)
		note_write(cmd->queue->dev, cmd);
	atomic_set(&cmd->state, KBLK_IDLE);
	if (cmd->status == BLK_STS_RESOURCE) {
		/* The target has no memory now: it is asked again, as after a cut. */
		blk_mq_requeue_request(rq, false);
		blk_mq_delay_kick_requeue_list(rq->q, KBLK_MEMORY_MS);
		return;
	}
	blk_mq_end_request(rq, cmd->status);
}

/* --- requests --- */

static int op_of(struct request *rq)
{
	switch (req_op(rq)) {
	case REQ_OP_READ:
		return KBLK_READ;
	case REQ_OP_WRITE:
		return KBLK_WRITE;
	case REQ_OP_FLUSH:
		return KBLK_FLUSH;
	case REQ_OP_DISCARD:
		return KBLK_DISCARD_OP;
	case REQ_OP_WRITE_ZEROES:
		return KBLK_ZERO;
	default:
		return -EOPNOTSUPP;
	}
}

/* The pages of a request, behind the entry of the command. */
static bool take_pages(struct kblk_cmd *cmd, struct request *rq)
{
	struct req_iterator iter;
	struct bio_vec bvec;

	cmd->count = 0;
	rq_for_each_bvec(bvec, rq, iter) {
		if (WARN_ON_ONCE(cmd->count == KBLK_SEGMENTS))
			return false;
		cmd->bvec[1 + cmd->count++] = bvec;
	}
	return true;
}

static int register_pages(struct kblk_dev *dev, struct kblk_cmd *cmd, bool write)
{
	struct fi_mr_attr attr = {
		.vec = kofi_vec_bvec(cmd->bvec + 1, cmd->count, 0, cmd->bytes),
		.access = write ? FI_REMOTE_READ : FI_REMOTE_WRITE,
		.requested_key = atomic64_inc_return(&dev->keys) };
	int status = fi_mr_regattr(dev->domain, &attr, 0, &cmd->mr);

	if (!status)
		cmd->wire.key = cpu_to_le64(cmd->mr->key);
	return status;
}

static bool is_inline(const struct kblk_cmd *cmd, int op)
{
	return (cmd->wire.flags & KBLK_INLINE) && cmd->wire.op == op;
}

/* A write in its command that is too long to inject: its end is reported. */
static bool is_reported(const struct kblk_cmd *cmd)
{
	return is_inline(cmd, KBLK_WRITE) &&
	       sizeof(cmd->wire) + cmd->bytes > cmd->queue->dev->info->tx_attr->inject_size;
}

/*
 * What is injected is copied when the call returns, and only its failure is
 * reported: without a command, which the cut then sends again.
 */
static ssize_t send_command(struct kblk_cmd *cmd)
{
	bool reported = is_reported(cmd);
	struct fi_msg msg = { .vec = kofi_vec_bvec(cmd->bvec, 1 + cmd->count, 0,
						   sizeof(cmd->wire) + cmd->bytes),
			      .context = reported ? cmd : NULL };

	if (!is_inline(cmd, KBLK_WRITE))
		return fi_inject(cmd->queue->ep, &cmd->wire, sizeof(cmd->wire), FI_ADDR_UNSPEC);
	cmd->bvec[0] = (struct bio_vec){ virt_to_page(&cmd->wire), sizeof(cmd->wire),
					 offset_in_page(&cmd->wire) };
	return fi_sendmsg(cmd->queue->ep, &msg, reported ? FI_COMPLETION : FI_INJECT);
}

static bool goes_inline(const struct kblk_dev *dev, int op, u32 bytes)
{
	if (bytes > KBLK_INLINE_MAX)
		return false;
	return op == KBLK_WRITE ||
	       (op == KBLK_READ && (dev->welcome.flags & cpu_to_le16(KBLK_INLINE_READS)));
}

static blk_status_t start(struct kblk_queue *queue, struct request *rq, struct kblk_cmd *cmd)
{
	struct kblk_dev *dev = queue->dev;
	bool has_pages, with_it, reported;
	int op = op_of(rq), status = 0;

	if (op < 0 || dev->state == KBLK_FAILED)
		return op < 0 ? BLK_STS_NOTSUPP : BLK_STS_IOERR;
	has_pages = op == KBLK_READ || op == KBLK_WRITE;
	cmd->queue = queue;
	cmd->mr = NULL;
	cmd->status = BLK_STS_OK;
	cmd->bytes = op == KBLK_FLUSH ? 0 : blk_rq_bytes(rq);
	cmd->mark = atomic64_read(&dev->acknowledged);
	with_it = goes_inline(dev, op, cmd->bytes);
	cmd->wire = (struct kblk_command){
		.op = op, .tag = cpu_to_le16(rq->tag), .sequence = cpu_to_le16(++cmd->sequence),
		.flags = (rq->cmd_flags & REQ_FUA ? KBLK_FUA : 0) | (with_it ? KBLK_INLINE : 0),
		.bytes = cpu_to_le32(cmd->bytes),
		.offset = cpu_to_le64(op == KBLK_FLUSH ? 0 : blk_rq_pos(rq) << SECTOR_SHIFT) };
	if (has_pages && !take_pages(cmd, rq))
		return BLK_STS_IOERR;
	blk_mq_start_request(rq);
	if (has_pages && !with_it)
		status = register_pages(dev, cmd, op == KBLK_WRITE);
	if (status == -EINVAL)
		return BLK_STS_IOERR;
	if (status) {	/* no memory; or a device that is going, which a cut will tell */
		if (status != -EAGAIN && status != -ENOMEM)
			kblk_cut(dev);
		return BLK_STS_RESOURCE;
	}
	/* An answer may come before the send returns, which still looks at the command then. */
	reported = is_reported(cmd);
	atomic_set(&cmd->refs, 2);
	atomic_set_release(&cmd->state, KBLK_SENT);
	status = send_command(cmd);
	if (!status) {
		if (!reported)
			kblk_cmd_put(cmd);
		return BLK_STS_OK;
	}
	if (atomic_cmpxchg(&cmd->state, KBLK_SENT, KBLK_IDLE) != KBLK_SENT) {
		/* An answer to what was not sent: it ends the request all the same. */
		kblk_cmd_put(cmd);
		return BLK_STS_OK;
	}
	if (cmd->mr)
		WARN_ON(fi_close(&cmd->mr->fid));
	cmd->mr = NULL;
	if (status != -EAGAIN)
		kblk_cut(dev);
	return BLK_STS_RESOURCE;
}

static blk_status_t queue_rq(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *bd)
{
	unsigned int noio = memalloc_noio_save();
	blk_status_t status = start(hctx->driver_data, bd->rq, blk_mq_rq_to_pdu(bd->rq));

	memalloc_noio_restore(noio);
	return status;
}

/* No answer in time: the connections are cut, and what has no answer is sent again. */
static enum blk_eh_timer_return timed_out(struct request *rq)
{
	struct kblk_cmd *cmd = blk_mq_rq_to_pdu(rq);

	kblk_cut(cmd->queue->dev);
	return BLK_EH_RESET_TIMER;
}

static bool requeue_one(struct request *rq, void *data)
{
	struct kblk_cmd *cmd = blk_mq_rq_to_pdu(rq);

	if (atomic_cmpxchg(&cmd->state, KBLK_SENT, KBLK_IDLE) != KBLK_SENT)
		return true;
	if (cmd->mr)
		WARN_ON(fi_close(&cmd->mr->fid));
	cmd->mr = NULL;
	blk_mq_requeue_request(rq, false);
	return true;
}

/* No connection is left, and the queue is quiesced. */
void kblk_requeue_sent(struct kblk_dev *dev)
{
	blk_mq_tagset_busy_iter(&dev->tags, requeue_one, dev);
}

static int init_hctx(struct blk_mq_hw_ctx *hctx, void *data, unsigned int index)
{
	hctx->driver_data = &((struct kblk_dev *)data)->queues[index];
	return 0;
}

static int init_request(struct blk_mq_tag_set *set, struct request *rq, unsigned int hctx,
			kofi_numa_node_t node)
{
	struct kblk_cmd *cmd = blk_mq_rq_to_pdu(rq);

	cmd->queue = &((struct kblk_dev *)set->driver_data)->queues[hctx];
	return 0;
}

static const struct blk_mq_ops mq_ops = { .queue_rq = queue_rq, .timeout = timed_out,
					  .init_hctx = init_hctx, .init_request = init_request };

static const struct block_device_operations disk_ops = { .owner = THIS_MODULE };

/* --- the disk; the session is live --- */

static struct gendisk *alloc_disk(struct kblk_dev *dev)
{
	u32 block = le32_to_cpu(dev->welcome.block_bytes);
	u16 flags = le16_to_cpu(dev->welcome.flags);
	struct queue_limits limits = {
		.features = BLK_FEAT_WRITE_CACHE | BLK_FEAT_FUA,
		.logical_block_size = block,
		.physical_block_size = max_t(u32, block, PAGE_SIZE),
		.io_min = PAGE_SIZE,
		.io_opt = KBLK_IO_MAX,
		.max_hw_sectors = KBLK_IO_MAX >> SECTOR_SHIFT,
		.max_segments = KBLK_SEGMENTS,
	};

	if (flags & KBLK_DISCARD) {
		limits.discard_granularity = limits.physical_block_size;
		limits.max_hw_discard_sectors = SZ_1G >> SECTOR_SHIFT;
	}
	if (flags & KBLK_ZEROES)
		limits.max_write_zeroes_sectors = SZ_1G >> SECTOR_SHIFT;
	/* Devices that register pages want no gaps between them. */
	if (dev->info->domain_attr->mr_mode & FI_MR_PROV_KEY)
		limits.virt_boundary_mask = PAGE_SIZE - 1;
	else
		limits.max_segment_size = KBLK_IO_MAX;
	return blk_mq_alloc_disk(&dev->tags, &limits, dev);
}

int kblk_disk_add(struct kblk_dev *dev)
{
	int status;

	dev->tags = (struct blk_mq_tag_set){
		.ops = &mq_ops, .nr_hw_queues = dev->queue_count, .queue_depth = dev->depth,
		.numa_node = NUMA_NO_NODE, .cmd_size = sizeof(struct kblk_cmd),
		.flags = BLK_MQ_F_BLOCKING,
		.timeout = dev->timeout_s * HZ, .driver_data = dev };
	status = blk_mq_alloc_tag_set(&dev->tags);
	if (status)
		return status;
	dev->index = ida_alloc(&names, GFP_KERNEL);
	status = dev->index;
	if (status < 0)
		goto free_tags;
	dev->disk = alloc_disk(dev);
	if (IS_ERR(dev->disk)) {
		status = PTR_ERR(dev->disk);
		goto free_name;
	}
	dev->disk->fops = &disk_ops;
	dev->disk->private_data = dev;
	snprintf(dev->disk->disk_name, DISK_NAME_LEN, "kofi%d", dev->index);
	set_disk_ro(dev->disk, le16_to_cpu(dev->welcome.flags) & KBLK_READ_ONLY);
	set_capacity(dev->disk, le64_to_cpu(dev->welcome.bytes) >> SECTOR_SHIFT);
	return 0;
free_name:
	ida_free(&names, dev->index);
free_tags:
	dev->disk = NULL;
	blk_mq_free_tag_set(&dev->tags);
	return status;
}

/* Requests have ended, or end with an error. */
void kblk_disk_del(struct kblk_dev *dev)
{
	if (disk_live(dev->disk))
		del_gendisk(dev->disk);
	/* A session that came back while the disk was deleted may have started it again. */
	cancel_delayed_work_sync(&dev->disk->queue->requeue_work);
	put_disk(dev->disk);
	dev->disk = NULL;
	blk_mq_free_tag_set(&dev->tags);
	ida_free(&names, dev->index);
}

void kblk_exit_names(void)
{
	ida_destroy(&names);
}
