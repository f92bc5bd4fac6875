// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Connections to the target: opening them, reading their queues, the cut.
 *
 * All connections of a generation live and go together. When one is over, the
 * work item quiesces the disk, closes all, and only then queues again what has
 * no answer: nothing of the old generation can reach a request or its pages.
 * The target, for its part, ends all of an older generation before it welcomes
 * the first connection of a newer one (docs/wire/block.md).
 */
#include "blk.h"

#include <kofi/provider.h>	/* kofi_copy() */
#include <linux/gfp.h>
#include <linux/random.h>
#include <linux/sched/mm.h>
#include <linux/log2.h>
#include <linux/slab.h>

static bool set_state(struct kblk_dev *dev, enum kblk_state from, enum kblk_state to)
{
	return cmpxchg(&dev->state, from, to) == from;
}

void kblk_cut(struct kblk_dev *dev)
{
	if (set_state(dev, KBLK_LIVE, KBLK_CUT))
		queue_delayed_work(kblk_wq, &dev->work, 0);
}

/* --- answers --- */

static void queue_dead(struct kblk_queue *queue)
{
	WRITE_ONCE(queue->dead, true);
	/* Pairs with that of kblk_session_live(). */
	smp_mb();
	kblk_cut(queue->dev);
}

static void misbehaves(struct kblk_queue *queue, const char *what)
{
	pr_warn_ratelimited("kofi_blk: queue %u: the target sends %s\n", queue->index, what);
	queue_dead(queue);
}

/* The command that an answer names, taken from whoever else would end it; or NULL. */
static struct kblk_cmd *claim(struct kblk_queue *queue, u16 tag, u16 sequence)
{
	struct kblk_dev *dev = queue->dev;
	struct kblk_cmd *cmd = NULL;
	enum kblk_state state;
	struct request *rq;

	/* Pairs with that of kblk_session_live(): who sees the state sees the tags. */
	state = smp_load_acquire(&dev->state);
	/* Otherwise nothing was sent, and there may be no tags. */
	if (tag < dev->depth && (state == KBLK_LIVE || state == KBLK_CUT ||
				 state == KBLK_FAILED)) {
		rq = blk_mq_tag_to_rq(dev->tags.tags[queue->index], tag);
		cmd = rq ? blk_mq_rq_to_pdu(rq) : NULL;
	}
	if (!cmd || cmd->queue != queue || atomic_read_acquire(&cmd->state) != KBLK_SENT ||
	    cmd->sequence != sequence ||
	    atomic_cmpxchg(&cmd->state, KBLK_SENT, KBLK_ANSWERED) != KBLK_SENT)
		return NULL;
	return cmd;
}

/* @well: what came is what the command has asked for. */
static void end_command(struct kblk_queue *queue, struct kblk_cmd *cmd, u16 err, bool well)
{
	if (err) {
		cmd->status = errno_to_blk_status(-(int)err);
	} else if (!well) {
		cmd->status = BLK_STS_IOERR;
		misbehaves(queue, "the answer of another operation");
	}
	kblk_cmd_put(cmd);
}

static int post_frame(struct kblk_queue *queue, void **frame)
{
	return fi_recv(queue->ep, *frame, KBLK_FRAME, NULL, FI_ADDR_UNSPEC, frame);
}

static bool is_frame(const struct kblk_queue *queue, const void *context)
{
	return context >= (void *)queue->frames &&
	       context < (void *)(queue->frames + queue->dev->depth);
}

/* The bytes of an inline read. */
static void take_bytes(struct kblk_cmd *cmd, const void *bytes)
{
	struct kofi_vec from = kofi_vec_buf((void *)bytes, cmd->bytes);
	struct kofi_vec to = kofi_vec_bvec(cmd->bvec + 1, cmd->count, 0, cmd->bytes);

	kofi_copy(&to, 0, &from, 0, cmd->bytes);
}

static void on_message(struct kblk_queue *queue, void **frame, size_t len)
{
	const struct kblk_answer answer = *(struct kblk_answer *)*frame;
	struct kblk_cmd *cmd = NULL;
	bool read, well = false;

	if (len >= sizeof(answer))
		cmd = claim(queue, le16_to_cpu(answer.tag), le16_to_cpu(answer.sequence));
	if (!cmd) {
		misbehaves(queue, "an answer to no command");
		return;
	}
	if (!answer.err) {
		read = cmd->wire.op == KBLK_READ;
		len -= sizeof(answer);
		well = read ? (cmd->wire.flags & KBLK_INLINE) && len == cmd->bytes : !len;
		if (read && well)
			take_bytes(cmd, *frame + sizeof(answer));
	}
	/* Before the request ends: the next command finds the receive. */
	if (queue->ep && post_frame(queue, frame))
		queue_dead(queue);
	end_command(queue, cmd, le16_to_cpu(answer.err), well);
}

/* The bytes of a read are in its pages. */
static void on_data(struct kblk_queue *queue, u32 data, size_t len)
{
	struct kblk_cmd *cmd = claim(queue, data & 0xffff, data >> 16);

	if (!cmd) {
		misbehaves(queue, "an answer to no command");
		return;
	}
	/* An RDMA device may count the last of several work requests only. */
	end_command(queue, cmd, 0, cmd->wire.op == KBLK_READ &&
		    !(cmd->wire.flags & KBLK_INLINE) && len && len <= cmd->bytes);
}

/* An operation that failed, sent or not: if there is no answer, the cut sends it again. */
static void on_entry(void *of, const struct fi_cq_tagged_entry *entry, int err, int reason)
{
	struct kblk_queue *queue = of;
	void *context = entry->op_context;

	if (err) {
		if (context && !is_frame(queue, context))
			kblk_cmd_put(context);
		queue_dead(queue);
	} else if (is_frame(queue, context))
		on_message(queue, context, entry->len);
	else if (context)
		kblk_cmd_put(context);
	else if (entry->flags & FI_REMOTE_CQ_DATA)
		on_data(queue, entry->data, entry->len);
}

static void queue_poll(struct fid_cq *cq, void *context)
{
	struct kblk_queue *queue = context;

	mutex_lock(&queue->rx);
	if (kofi_cq_drain(cq, queue, on_entry) == -FI_EOVERRUN)
		queue_dead(queue);
	mutex_unlock(&queue->rx);
}

/* --- connections --- */

static void free_frames(struct kblk_queue *queue)
{
	u32 i;

	for (i = 0; queue->frames && i < queue->dev->depth; i++)
		if (queue->frames[i])
			free_pages_exact(queue->frames[i], PAGE_ALIGN(KBLK_FRAME));
	kfree(queue->frames);
	queue->frames = NULL;
}

/* For the session: a cut may happen because there is no memory. */
static int get_frames(struct kblk_queue *queue)
{
	u32 i;

	queue->frames = kcalloc(queue->dev->depth, sizeof(*queue->frames), GFP_KERNEL);
	if (!queue->frames)
		return -ENOMEM;
	for (i = 0; i < queue->dev->depth; i++) {
		queue->frames[i] = alloc_pages_exact(PAGE_ALIGN(KBLK_FRAME), GFP_KERNEL);
		if (!queue->frames[i])
			return -ENOMEM;
	}
	return 0;
}

static void queue_close(struct kblk_queue *queue)
{
	/* The reader posts receives; requests come no more, for the disk is quiesced. */
	mutex_lock(&queue->rx);
	if (queue->ep)
		WARN_ON(fi_close(&queue->ep->fid));
	queue->ep = NULL;
	mutex_unlock(&queue->rx);
	if (queue->cq) {
		queue_poll(queue->cq, queue);	/* answers that had come count */
		WARN_ON(fi_close(&queue->cq->fid));
	}
	queue->cq = NULL;
	if (queue->eq)
		WARN_ON(fi_close(&queue->eq->fid));
	queue->eq = NULL;
}

static int queue_open(struct kblk_queue *queue)
{
	struct kblk_dev *dev = queue->dev;
	/* Receives, sends, and the data that answer reads. */
	struct fi_cq_attr attr = { .size = 4 * dev->depth, .handler = queue_poll,
				   .noio = true };
	int status, i;

	queue->dead = false;
	status = fi_eq_open(dev->fabric, NULL, &queue->eq, queue);
	if (!status)
		status = fi_cq_open(dev->domain, &attr, &queue->cq, queue);
	if (!status)
		status = fi_endpoint(dev->domain, dev->info, &queue->ep, queue);
	if (!status)
		status = fi_ep_bind(queue->ep, &queue->eq->fid, 0);
	if (!status)
		status = fi_ep_bind(queue->ep, &queue->cq->fid, FI_RECV);
	if (!status)
		status = fi_ep_bind(queue->ep, &queue->cq->fid,
				    FI_TRANSMIT | FI_SELECTIVE_COMPLETION);
	if (!status)
		status = fi_enable(queue->ep);
	for (i = 0; i < dev->depth && !status; i++)
		status = post_frame(queue, &queue->frames[i]);
	return status;
}

/* Whether what a target says at connecting can be meant. */
static int check_welcome(struct kblk_dev *dev, const struct kblk_welcome *now)
{
	const struct kblk_welcome *first = &dev->welcome;
	u32 block = le32_to_cpu(now->block_bytes);

	if (le32_to_cpu(now->magic) != KBLK_MAGIC || le16_to_cpu(now->version) != KBLK_VERSION)
		return -EPROTO;
	if (!is_power_of_2(block) || block < SECTOR_SIZE || block > PAGE_SIZE ||
	    !now->bytes || le64_to_cpu(now->bytes) % block || le64_to_cpu(now->bytes) > S64_MAX)
		return -EPROTO;
	if (!dev->welcomed) {
		dev->welcome = *now;
		dev->welcomed = true;
		return 0;
	}
	if (now->bytes != first->bytes || now->block_bytes != first->block_bytes ||
	    now->volume != first->volume)
		return -ESTALE;
	/* The target forgot writes that were acknowledged and not flushed. */
	if (now->epoch != first->epoch &&
	    atomic64_read(&dev->acknowledged) > atomic64_read(&dev->flushed))
		return -ESTALE;
	dev->welcome.epoch = now->epoch;
	/* It may be a newer target, or an older one. */
	dev->welcome.flags &= ~cpu_to_le16(KBLK_INLINE_READS);
	dev->welcome.flags |= now->flags & cpu_to_le16(KBLK_INLINE_READS);
	return 0;
}

/* Waits for the answer to fi_connect(). */
static int queue_wait(struct kblk_queue *queue)
{
	struct {
		struct fi_eq_cm_entry	entry;
		struct kblk_welcome	welcome;
	} event;
	struct kblk_refusal refusal = {};
	struct fi_eq_err_entry error = { .err_data = &refusal, .err_data_size = sizeof(refusal) };
	ssize_t len;
	u32 type;

	len = fi_eq_sread(queue->eq, &type, &event, sizeof(event), KBLK_CONNECT_MS, 0);
	if (len == -FI_EAVAIL && fi_eq_readerr(queue->eq, &error, 0) > 0) {
		if (error.err_data_size == sizeof(refusal) &&
		    le32_to_cpu(refusal.magic) == KBLK_MAGIC &&
		    le32_to_cpu(refusal.err) && le32_to_cpu(refusal.err) < MAX_ERRNO)
			return -(int)le32_to_cpu(refusal.err);
		return -error.err;
	}
	if (len < 0)
		return len == -EAGAIN ? -ETIMEDOUT : len;
	if (type != FI_CONNECTED || len != sizeof(event))
		return -EPROTO;
	return check_welcome(queue->dev, &event.welcome);
}

static int queue_connect(struct kblk_queue *queue)
{
	struct kblk_dev *dev = queue->dev;
	struct kblk_hello hello = {
		.magic = cpu_to_le32(KBLK_MAGIC), .version = cpu_to_le16(KBLK_VERSION),
		.queue = cpu_to_le16(queue->index), .queues = cpu_to_le16(dev->queue_count),
		.depth = cpu_to_le16(dev->depth), .generation = cpu_to_le32(dev->generation) };
	int status = queue_open(queue);

	memcpy(hello.session, dev->id, sizeof(hello.session));
	memcpy(hello.export, dev->export, sizeof(hello.export));
	if (!status)
		status = fi_connect(queue->ep, dev->info->dest_addr, &hello, sizeof(hello));
	return status ?: queue_wait(queue);
}

static void close_all(struct kblk_dev *dev)
{
	u32 i;

	for (i = 0; i < dev->queue_count; i++)
		queue_close(&dev->queues[i]);
}

/*
 * Nothing is registered any more. An RDMA device that is removed waits until
 * its domains are closed; it may be there again when the next generation connects.
 */
static void domain_close(struct kblk_dev *dev)
{
	if (dev->domain)
		WARN_ON(fi_close(&dev->domain->fid));
	dev->domain = NULL;
}

static bool any_dead(struct kblk_dev *dev)
{
	u32 i;

	for (i = 0; i < dev->queue_count; i++)
		if (READ_ONCE(dev->queues[i].dead))
			return true;
	return false;
}

/* A new generation. */
static int connect_all(struct kblk_dev *dev)
{
	int status = 0;
	u32 i;

	lockdep_assert_held(&dev->session);
	dev->generation++;
	if (!dev->domain)
		status = fi_domain(dev->fabric, dev->info, &dev->domain, NULL);
	for (i = 0; i < dev->queue_count && !status; i++)
		status = queue_connect(&dev->queues[i]);
	if (!status && any_dead(dev))
		status = -ECONNRESET;
	if (status) {
		close_all(dev);
		domain_close(dev);
	}
	return status;
}

/* --- the cut --- */

void kblk_session_live(struct kblk_dev *dev)
{
	/* Pairs with that of claim(). */
	smp_store_release(&dev->state, KBLK_LIVE);
	/* Pairs with that of queue_dead(). */
	smp_mb();
	if (any_dead(dev))
		kblk_cut(dev);
}

static void take_up(struct kblk_dev *dev)
{
	kblk_session_live(dev);
	blk_mq_unquiesce_queue(dev->disk->queue);
	blk_mq_kick_requeue_list(dev->disk->queue);
}

static void fail_locked(struct kblk_dev *dev)
{
	enum kblk_state was = xchg(&dev->state, KBLK_FAILED);

	lockdep_assert_held(&dev->session);
	if (was == KBLK_FAILED)
		return;
	/* Deleted: no request is left, and its queue's work must not be started again. */
	if (!disk_live(dev->disk)) {
		close_all(dev);
		return;
	}
	if (was == KBLK_LIVE || was == KBLK_CUT)
		blk_mq_quiesce_queue(dev->disk->queue);
	close_all(dev);
	kblk_requeue_sent(dev);
	domain_close(dev);
	blk_mq_unquiesce_queue(dev->disk->queue);
	blk_mq_kick_requeue_list(dev->disk->queue);
}

void kblk_session_fail(struct kblk_dev *dev)
{
	mutex_lock(&dev->session);
	fail_locked(dev);
	mutex_unlock(&dev->session);
}

static void reconnect(struct kblk_dev *dev)
{
	int status = connect_all(dev);

	if (!status) {
		pr_info("kofi_blk: %s: connected again, generation %u\n",
			dev->disk->disk_name, dev->generation);
		take_up(dev);
	} else if (status == -ESTALE ||
		   (dev->give_up_s &&
		    time_after(jiffies, dev->cut_at + dev->give_up_s * HZ))) {
		pr_err("kofi_blk: %s: %s\n", dev->disk->disk_name, status == -ESTALE ?
		       "the target lost writes, or is another one: no more requests" :
		       "the target does not come back: no more requests");
		fail_locked(dev);
	} else {
		queue_delayed_work(kblk_wq, &dev->work, KBLK_RETRY);
	}
}

void kblk_session_work(struct work_struct *work)
{
	struct kblk_dev *dev = container_of(work, struct kblk_dev, work.work);
	unsigned int noio = memalloc_noio_save();

	mutex_lock(&dev->session);
	if (dev->state == KBLK_CUT) {
		pr_info("kofi_blk: %s: cut, generation %u\n", dev->disk->disk_name,
			dev->generation);
		dev->cuts++;
		dev->cut_at = jiffies;
		blk_mq_quiesce_queue(dev->disk->queue);
		close_all(dev);
		kblk_requeue_sent(dev);
		domain_close(dev);
		set_state(dev, KBLK_CUT, KBLK_CONNECTING);
	}
	if (dev->state == KBLK_CONNECTING)
		reconnect(dev);
	mutex_unlock(&dev->session);
	memalloc_noio_restore(noio);
}

/* --- the session --- */

void kblk_session_close(struct kblk_dev *dev)
{
	u32 i;

	mutex_lock(&dev->session);
	if (dev->queues)
		close_all(dev);
	for (i = 0; dev->queues && i < dev->queue_count; i++)
		free_frames(&dev->queues[i]);
	kfree(dev->queues);
	dev->queues = NULL;
	domain_close(dev);
	if (dev->fabric)
		WARN_ON(fi_close(&dev->fabric->fid));
	dev->fabric = NULL;
	fi_freeinfo(dev->info);
	dev->info = NULL;
	mutex_unlock(&dev->session);
}

int kblk_session_open(struct kblk_dev *dev)
{
	int status = kofi_block_getinfo(&dev->config, 0, sizeof(struct kblk_command), &dev->info);
	u32 i;

	if (status)
		return status;
	mutex_lock(&dev->session);
	get_random_bytes(dev->id, sizeof(dev->id));
	atomic64_set(&dev->keys, get_random_u32());
	atomic64_set(&dev->acknowledged, 0);
	atomic64_set(&dev->flushed, 0);
	dev->generation = 0;
	dev->cuts = 0;
	dev->welcomed = false;
	dev->queues = kcalloc(dev->queue_count, sizeof(*dev->queues), GFP_KERNEL);
	status = dev->queues ? 0 : -ENOMEM;
	for (i = 0; !status && i < dev->queue_count; i++) {
		dev->queues[i].dev = dev;
		dev->queues[i].index = i;
		mutex_init(&dev->queues[i].rx);
		status = get_frames(&dev->queues[i]);
	}
	if (!status)
		status = fi_fabric(dev->info->fabric_attr, &dev->fabric, NULL);
	if (!status)
		status = connect_all(dev);
	mutex_unlock(&dev->session);
	if (status)
		kblk_session_close(dev);
	return status;
}
