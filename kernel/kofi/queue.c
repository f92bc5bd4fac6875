// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Completion queues, event queues and counters for providers that have none of
 * their own. Must not know what completes.
 *
 * A handler runs from a work item: never inside a call of the client, so that
 * it may post operations and the provider may complete them at once.
 */
#include "internal.h"

#include <kofi/handler.h>

#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "trace.h"

#define KOFI_CQ_SIZE		1024
#define KOFI_CQ_SIZE_MAX	BIT(20)
#define KOFI_EQ_SIZE		1024

struct cq_slot {
	struct fi_cq_tagged_entry	entry;
	fi_addr_t			src;
	size_t				olen;
	int				err;
	int				prov_errno;
};

/* @room counts entries that are neither written nor reserved. */
struct kofi_cq {
	struct fid_cq		cq;
	atomic_t		room;
	spinlock_t		lock;	/* head, tail, overrun */
	u32			mask;
	u32			head;
	u32			tail;
	u32			entry_size;
	bool			overrun;
	struct cq_slot		*slots;
	void			(*handler)(struct fid_cq *cq, void *context);
	bool			noio;
	struct work_struct	work;
	u64			written;
	u64			errors;
};

static struct kofi_cq *to_cq(struct fid_cq *cq)
{
	return container_of(cq, struct kofi_cq, cq);
}

int kofi_cq_reserve(struct fid_cq *cq)
{
	if (!cq || atomic_dec_if_positive(&to_cq(cq)->room) >= 0)
		return 0;
	return -EAGAIN;
}
EXPORT_SYMBOL_GPL(kofi_cq_reserve);

void kofi_cq_unreserve(struct fid_cq *cq)
{
	if (cq)
		atomic_inc(&to_cq(cq)->room);
}
EXPORT_SYMBOL_GPL(kofi_cq_unreserve);

static void cq_write(struct fid_cq *fid_cq, const struct kofi_completion *done)
{
	struct kofi_cq *cq = to_cq(fid_cq);
	bool was_empty, room = true;
	struct cq_slot *slot;
	unsigned long flags;

	if (done->unreserved && kofi_cq_reserve(fid_cq))
		room = false;
	spin_lock_irqsave(&cq->lock, flags);
	was_empty = cq->head == cq->tail;
	if (room) {
		slot = &cq->slots[cq->tail++ & cq->mask];
		slot->entry = done->entry;
		slot->src = done->src;
		slot->olen = done->olen;
		slot->err = done->err;
		slot->prov_errno = done->prov_errno;
		cq->written++;
		cq->errors += !!done->err;
	} else {
		cq->overrun = true;
	}
	spin_unlock_irqrestore(&cq->lock, flags);
	if (was_empty && cq->handler)
		queue_work(kofi_wq, &cq->work);
	if (wq_has_sleeper(&fid_cq->wait))
		wake_up(&fid_cq->wait);
}

void kofi_complete(struct fid_ep *ep, int kind, const struct kofi_completion *done)
{
	struct fid_cntr *cntr = ep->cntr[kind];
	struct fid_cq *cq = kofi_cq_of(ep, kind);

	trace_kofi_complete(ep, kind, done);
	if (done->err) {
		atomic64_inc(&ep->errors);
	} else if (kind == KOFI_CNTR_SEND || kind == KOFI_CNTR_READ || kind == KOFI_CNTR_WRITE) {
		atomic64_inc(&ep->tx_count);
		atomic64_add(done->entry.len, &ep->tx_bytes);
	} else {
		atomic64_inc(&ep->rx_count);
		atomic64_add(done->entry.len, &ep->rx_bytes);
	}
	if (cntr)
		cntr->ops->add(cntr, 1, done->err);
	if (!cq)
		return;
	if (!done->silent || done->err)
		cq_write(cq, done);
	else if (!done->unreserved)
		kofi_cq_unreserve(cq);
}
EXPORT_SYMBOL_GPL(kofi_complete);

void kofi_complete_rma(struct fid_ep *ep, u64 kind, bool write, const struct fi_msg *msg,
		       int status, u64 flags)
{
	struct kofi_completion done = {
		.entry = { .op_context = msg->context, .len = status ? 0 : msg->vec.len,
			   .flags = kind | (write ? FI_WRITE : FI_READ) },
		.err = -status, .src = FI_ADDR_NOTAVAIL,
		.prov_errno = status == -EKEYREJECTED ? KOFI_PE_REMOTE_KEY :
			      status == -EACCES ? KOFI_PE_REMOTE_ACCESS : 0,
		.silent = !kofi_wants_entry(ep, true, flags) };

	kofi_complete(ep, write ? KOFI_CNTR_WRITE : KOFI_CNTR_READ, &done);
}
EXPORT_SYMBOL_GPL(kofi_complete_rma);

void kofi_complete_remote(struct fid_ep *ep, u64 kind, bool write, size_t len, u64 flags,
			  u64 data)
{
	struct kofi_completion done = {
		.entry = { .len = len, .data = data,
			   .flags = kind | (write ? FI_REMOTE_WRITE : FI_REMOTE_READ) |
				    (flags & FI_REMOTE_CQ_DATA) },
		.src = FI_ADDR_NOTAVAIL, .unreserved = true,
		.silent = !(flags & FI_REMOTE_CQ_DATA) };

	kofi_complete(ep, write ? KOFI_CNTR_REMOTE_WRITE : KOFI_CNTR_REMOTE_READ, &done);
}
EXPORT_SYMBOL_GPL(kofi_complete_remote);

static ssize_t cq_readfrom(struct fid_cq *fid_cq, void *buf, size_t count, fi_addr_t *src)
{
	struct kofi_cq *cq = to_cq(fid_cq);
	unsigned long flags;
	size_t taken = 0;
	ssize_t none = -EAGAIN;

	spin_lock_irqsave(&cq->lock, flags);
	while (taken < count && cq->head != cq->tail) {
		const struct cq_slot *slot = &cq->slots[cq->head & cq->mask];

		if (slot->err) {
			none = -FI_EAVAIL;
			break;
		}
		memcpy(buf + taken * cq->entry_size, &slot->entry, cq->entry_size);
		if (src)
			src[taken] = slot->src;
		cq->head++;
		taken++;
	}
	if (!taken && none == -EAGAIN && cq->overrun)
		none = -FI_EOVERRUN;
	spin_unlock_irqrestore(&cq->lock, flags);
	if (!taken)
		return none;
	atomic_add(taken, &cq->room);
	return taken;
}

static ssize_t cq_readerr(struct fid_cq *fid_cq, struct fi_cq_err_entry *buf, u64 unused)
{
	struct kofi_cq *cq = to_cq(fid_cq);
	const struct cq_slot *slot;
	unsigned long flags;
	bool found;

	spin_lock_irqsave(&cq->lock, flags);
	slot = &cq->slots[cq->head & cq->mask];
	found = cq->head != cq->tail && slot->err;
	if (found) {
		*buf = (struct fi_cq_err_entry){
			.op_context = slot->entry.op_context, .flags = slot->entry.flags,
			.len = slot->entry.len, .buf = slot->entry.buf,
			.data = slot->entry.data, .tag = slot->entry.tag,
			.olen = slot->olen, .err = slot->err, .prov_errno = slot->prov_errno };
		cq->head++;
	}
	spin_unlock_irqrestore(&cq->lock, flags);
	if (!found)
		return -EAGAIN;
	atomic_inc(&cq->room);
	return 1;
}

static const struct fi_ops_cq cq_ops = { .readfrom = cq_readfrom, .readerr = cq_readerr };

static void cq_work(struct work_struct *work)
{
	struct kofi_cq *cq = container_of(work, struct kofi_cq, work);

	unsigned int noio = cq->noio ? memalloc_noio_save() : 0;

	cq->handler(&cq->cq, cq->cq.fid.context);
	if (cq->noio)
		memalloc_noio_restore(noio);
}

static void cq_close(struct fid *fid)
{
	struct kofi_cq *cq = container_of(fid, struct kofi_cq, cq.fid);

	cancel_work_sync(&cq->work);
	kvfree(cq->slots);
	kfree(cq);
}

static const struct fi_ops cq_fid_ops = { .close = cq_close };

int kofi_cq_new(const struct fi_cq_attr *attr, struct fid_cq **out)
{
	static const u32 entry_sizes[] = {
		[FI_CQ_FORMAT_UNSPEC] = sizeof(struct fi_cq_tagged_entry),
		[FI_CQ_FORMAT_CONTEXT] = sizeof(struct fi_cq_entry),
		[FI_CQ_FORMAT_MSG] = sizeof(struct fi_cq_msg_entry),
		[FI_CQ_FORMAT_DATA] = sizeof(struct fi_cq_data_entry),
		[FI_CQ_FORMAT_TAGGED] = sizeof(struct fi_cq_tagged_entry),
	};
	size_t size = attr && attr->size ? attr->size : KOFI_CQ_SIZE;
	unsigned int format = attr ? attr->format : FI_CQ_FORMAT_UNSPEC;
	struct kofi_cq *cq;

	if (format >= ARRAY_SIZE(entry_sizes) || size > KOFI_CQ_SIZE_MAX)
		return -EINVAL;
	size = roundup_pow_of_two(size);
	cq = kzalloc(sizeof(*cq), GFP_KERNEL);
	if (!cq)
		return -ENOMEM;
	cq->slots = kvcalloc(size, sizeof(*cq->slots), GFP_KERNEL);
	if (!cq->slots) {
		kfree(cq);
		return -ENOMEM;
	}
	spin_lock_init(&cq->lock);
	atomic_set(&cq->room, size);
	cq->mask = size - 1;
	cq->entry_size = entry_sizes[format];
	cq->handler = attr ? attr->handler : NULL;
	cq->noio = attr && attr->noio;
	INIT_WORK(&cq->work, cq_work);
	cq->cq.ops = &cq_ops;
	cq->cq.fid.ops = &cq_fid_ops;
	*out = &cq->cq;
	return 0;
}

void kofi_cq_show(struct seq_file *seq, struct fid_cq *fid_cq)
{
	struct kofi_cq *cq;

	if (fid_cq->ops != &cq_ops)
		return;
	cq = to_cq(fid_cq);
	seq_printf(seq, " written %llu errors %llu waiting %u room %d", cq->written, cq->errors,
		   READ_ONCE(cq->tail) - READ_ONCE(cq->head), atomic_read(&cq->room));
}

/* Whether a read has an answer that is not "empty". */
static bool cq_answers(struct fid_cq *cq, void *buf, size_t count, ssize_t *answer)
{
	*answer = cq->ops->readfrom(cq, buf, count, NULL);
	return *answer != -EAGAIN || atomic_xchg(&cq->signalled, 0);
}

static long timeout_jiffies(int timeout)
{
	return timeout < 0 ? MAX_SCHEDULE_TIMEOUT : msecs_to_jiffies(timeout);
}

ssize_t fi_cq_sread(struct fid_cq *cq, void *buf, size_t count, const void *cond, int timeout)
{
	ssize_t answer;

	might_sleep();
	if (wait_event_interruptible_timeout(cq->wait, cq_answers(cq, buf, count, &answer),
					     timeout_jiffies(timeout)) < 0)
		return -EINTR;
	return answer;
}
EXPORT_SYMBOL_GPL(fi_cq_sread);

int fi_cq_signal(struct fid_cq *cq)
{
	atomic_set(&cq->signalled, 1);
	wake_up(&cq->wait);
	return 0;
}
EXPORT_SYMBOL_GPL(fi_cq_signal);

/* --- events --- */

struct kofi_event {
	struct list_head	node;
	u32			event;
	int			err;		/* not 0: an error */
	int			prov_errno;
	struct fid		*fid;
	struct fi_info		*info;
	size_t			len;		/* of data */
	u8			data[];
};

struct kofi_eq {
	struct fid_eq		eq;
	spinlock_t		lock;
	struct list_head	events;
	size_t			count;
	size_t			size;
	bool			overrun;
	void			(*handler)(struct fid_eq *eq, void *context);
	struct work_struct	work;
};

static struct kofi_eq *to_eq(struct fid_eq *eq)
{
	return container_of(eq, struct kofi_eq, eq);
}

static int eq_write(struct fid_eq *fid_eq, struct kofi_event *event)
{
	struct kofi_eq *eq = to_eq(fid_eq);
	bool was_empty, room;

	trace_kofi_event(event->fid, event->event, event->err, event->prov_errno);
	spin_lock_bh(&eq->lock);
	was_empty = list_empty(&eq->events);
	room = eq->count < eq->size;
	if (room) {
		list_add_tail(&event->node, &eq->events);
		eq->count++;
	} else {
		eq->overrun = true;
	}
	spin_unlock_bh(&eq->lock);
	if (!room) {
		kfree(event);
		return -ENOSPC;
	}
	if (was_empty && eq->handler)
		queue_work(kofi_wq, &eq->work);
	wake_up(&fid_eq->wait);
	return 0;
}

static struct kofi_event *event_new(u32 event, struct fid *fid, const void *data, size_t len,
				    gfp_t gfp)
{
	struct kofi_event *new = kzalloc(struct_size(new, data, len), gfp);

	if (!new)
		return NULL;
	new->event = event;
	new->fid = fid;
	new->len = len;
	if (len)
		memcpy(new->data, data, len);
	return new;
}

/*
 * A connection request may be refused for want of memory. What has become of
 * a connection is told in any case: nobody would hear of it otherwise.
 */
#define EVENT_GFP (GFP_NOIO | __GFP_NOFAIL)

/* On failure the info stays with the caller. */
int kofi_eq_write_cm(struct fid_eq *eq, u32 event, struct fid *fid, struct fi_info *info,
		     const void *data, size_t len)
{
	struct kofi_event *new = event_new(event, fid, data, len, info ? GFP_KERNEL : EVENT_GFP);

	if (!new)
		return -ENOMEM;
	new->info = info;
	return eq_write(eq, new);
}
EXPORT_SYMBOL_GPL(kofi_eq_write_cm);

int kofi_eq_write_err(struct fid_eq *eq, struct fid *fid, int err, int prov_errno,
		      const void *data, size_t len)
{
	struct kofi_event *new = event_new(FI_NOTIFY, fid, data, len, EVENT_GFP);

	if (!new)
		return -ENOMEM;
	new->err = err;
	new->prov_errno = prov_errno;
	return eq_write(eq, new);
}
EXPORT_SYMBOL_GPL(kofi_eq_write_err);

void kofi_eq_forget(struct fid_eq *fid_eq, struct fid *fid)
{
	struct kofi_eq *eq = to_eq(fid_eq);
	struct kofi_event *event, *next;
	LIST_HEAD(gone);

	spin_lock_bh(&eq->lock);
	list_for_each_entry_safe(event, next, &eq->events, node)
		if (event->fid == fid) {
			list_move(&event->node, &gone);
			eq->count--;
		}
	spin_unlock_bh(&eq->lock);
	list_for_each_entry_safe(event, next, &gone, node) {
		fi_freeinfo(event->info);
		kfree(event);
	}
}

static ssize_t eq_read(struct fid_eq *fid_eq, u32 *out, void *buf, size_t len, u64 flags)
{
	struct kofi_eq *eq = to_eq(fid_eq);
	struct fi_eq_cm_entry *entry = buf;
	struct kofi_event *event;
	ssize_t status = 0;

	spin_lock_bh(&eq->lock);
	event = list_first_entry_or_null(&eq->events, struct kofi_event, node);
	if (!event)
		status = eq->overrun ? -FI_EOVERRUN : -EAGAIN;
	else if (event->err)
		status = -FI_EAVAIL;
	else if (len < sizeof(*entry))
		status = -FI_ETOOSMALL;
	if (!status) {
		list_del(&event->node);
		eq->count--;
	}
	spin_unlock_bh(&eq->lock);
	if (status)
		return status;
	*out = event->event;
	entry->fid = event->fid;
	entry->info = event->info;
	len = min(len - sizeof(*entry), event->len);
	memcpy(entry->data, event->data, len);
	kfree(event);
	return sizeof(*entry) + len;
}

static ssize_t eq_readerr(struct fid_eq *fid_eq, struct fi_eq_err_entry *buf, u64 flags)
{
	struct kofi_eq *eq = to_eq(fid_eq);
	struct kofi_event *event;

	spin_lock_bh(&eq->lock);
	event = list_first_entry_or_null(&eq->events, struct kofi_event, node);
	if (event && !event->err)
		event = NULL;
	if (event) {
		list_del(&event->node);
		eq->count--;
	}
	spin_unlock_bh(&eq->lock);
	if (!event)
		return -EAGAIN;
	buf->fid = event->fid;
	buf->context = event->fid->context;
	buf->data = 0;
	buf->err = event->err;
	buf->prov_errno = event->prov_errno;
	buf->err_data_size = buf->err_data ? min(buf->err_data_size, event->len) : 0;
	if (buf->err_data_size)
		memcpy(buf->err_data, event->data, buf->err_data_size);
	kfree(event);
	return sizeof(*buf);
}

static const struct fi_ops_eq eq_ops = { .read = eq_read, .readerr = eq_readerr };

static void eq_work(struct work_struct *work)
{
	struct kofi_eq *eq = container_of(work, struct kofi_eq, work);

	eq->handler(&eq->eq, eq->eq.fid.context);
}

static void eq_close(struct fid *fid)
{
	struct kofi_eq *eq = container_of(fid, struct kofi_eq, eq.fid);
	struct kofi_event *event, *next;

	cancel_work_sync(&eq->work);
	list_for_each_entry_safe(event, next, &eq->events, node) {
		fi_freeinfo(event->info);
		kfree(event);
	}
	kfree(eq);
}

static const struct fi_ops eq_fid_ops = { .close = eq_close };

int kofi_eq_new(const struct fi_eq_attr *attr, struct fid_eq **out)
{
	struct kofi_eq *eq = kzalloc(sizeof(*eq), GFP_KERNEL);

	if (!eq)
		return -ENOMEM;
	spin_lock_init(&eq->lock);
	INIT_LIST_HEAD(&eq->events);
	eq->size = attr && attr->size ? attr->size : KOFI_EQ_SIZE;
	eq->handler = attr ? attr->handler : NULL;
	INIT_WORK(&eq->work, eq_work);
	eq->eq.ops = &eq_ops;
	eq->eq.fid.ops = &eq_fid_ops;
	*out = &eq->eq;
	return 0;
}

static bool eq_answers(struct fid_eq *eq, u32 *event, void *buf, size_t len, u64 flags,
		       ssize_t *answer)
{
	*answer = eq->ops->read(eq, event, buf, len, flags);
	return *answer != -EAGAIN;
}

ssize_t fi_eq_sread(struct fid_eq *eq, u32 *event, void *buf, size_t len, int timeout, u64 flags)
{
	ssize_t answer;

	might_sleep();
	if (wait_event_interruptible_timeout(eq->wait,
					     eq_answers(eq, event, buf, len, flags, &answer),
					     timeout_jiffies(timeout)) < 0)
		return -EINTR;
	return answer;
}
EXPORT_SYMBOL_GPL(fi_eq_sread);

/* False: nothing was there. */
static bool take_event(struct fid_eq *eq, void *of,
		       void (*on_event)(void *of, const struct kofi_cm_event *event))
{
	struct {
		struct fi_eq_cm_entry	entry;
		u8			data[64];
	} buf;
	struct fi_eq_err_entry error = {};
	struct kofi_cm_event event = {};
	ssize_t len = fi_eq_read(eq, &event.type, &buf, sizeof(buf), 0);

	if (len == -FI_EAVAIL && fi_eq_readerr(eq, &error, 0) > 0) {
		event.fid = error.fid;
		event.err = error.err;
		event.reason = error.prov_errno;
		if (error.fid->fclass == FI_CLASS_EP)
			on_event(of, &event);
		return true;
	}
	if (len < (ssize_t)sizeof(buf.entry))
		return false;
	event.fid = buf.entry.fid;
	event.info = event.type == FI_CONNREQ ? buf.entry.info : NULL;
	event.data = buf.data;
	event.len = len - sizeof(buf.entry);
	on_event(of, &event);
	fi_freeinfo(event.info);
	return true;
}

void kofi_eq_drain(struct fid_eq *eq, struct mutex *lock, void *of,
		   void (*on_event)(void *of, const struct kofi_cm_event *event))
{
	bool more = true;

	while (more) {
		mutex_lock(lock);
		more = take_event(eq, of, on_event);
		mutex_unlock(lock);
	}
}
EXPORT_SYMBOL_GPL(kofi_eq_drain);

/* --- counters --- */

struct kofi_cntr {
	struct fid_cntr		cntr;
	atomic64_t		value;
	atomic64_t		errors;
	void			(*handler)(struct fid_cntr *cntr, void *context);
	struct work_struct	work;
};

static struct kofi_cntr *to_cntr(struct fid_cntr *cntr)
{
	return container_of(cntr, struct kofi_cntr, cntr);
}

static u64 cntr_read(struct fid_cntr *cntr)
{
	return atomic64_read(&to_cntr(cntr)->value);
}

static u64 cntr_readerr(struct fid_cntr *cntr)
{
	return atomic64_read(&to_cntr(cntr)->errors);
}

static void cntr_changed(struct fid_cntr *cntr)
{
	if (to_cntr(cntr)->handler)
		queue_work(kofi_wq, &to_cntr(cntr)->work);
	if (wq_has_sleeper(&cntr->wait))
		wake_up_all(&cntr->wait);
}

static void cntr_add(struct fid_cntr *cntr, u64 value, bool error)
{
	atomic64_add(value, error ? &to_cntr(cntr)->errors : &to_cntr(cntr)->value);
	cntr_changed(cntr);
}

static void cntr_set(struct fid_cntr *cntr, u64 value, bool error)
{
	atomic64_set(error ? &to_cntr(cntr)->errors : &to_cntr(cntr)->value, value);
	cntr_changed(cntr);
}

static const struct fi_ops_cntr cntr_ops = { .read = cntr_read, .readerr = cntr_readerr,
					     .add = cntr_add, .set = cntr_set };

static void cntr_work(struct work_struct *work)
{
	struct kofi_cntr *cntr = container_of(work, struct kofi_cntr, work);

	cntr->handler(&cntr->cntr, cntr->cntr.fid.context);
}

static void cntr_close(struct fid *fid)
{
	struct kofi_cntr *cntr = container_of(fid, struct kofi_cntr, cntr.fid);

	cancel_work_sync(&cntr->work);
	kfree(cntr);
}

static const struct fi_ops cntr_fid_ops = { .close = cntr_close };

int kofi_cntr_new(const struct fi_cntr_attr *attr, struct fid_cntr **out)
{
	struct kofi_cntr *cntr = kzalloc(sizeof(*cntr), GFP_KERNEL);

	if (!cntr)
		return -ENOMEM;
	cntr->handler = attr ? attr->handler : NULL;
	INIT_WORK(&cntr->work, cntr_work);
	cntr->cntr.ops = &cntr_ops;
	cntr->cntr.fid.ops = &cntr_fid_ops;
	*out = &cntr->cntr;
	return 0;
}

void kofi_cntr_show(struct seq_file *seq, struct fid_cntr *cntr)
{
	seq_printf(seq, " value %llu errors %llu", cntr->ops->read(cntr),
		   cntr->ops->readerr(cntr));
}

int fi_cntr_wait(struct fid_cntr *cntr, u64 threshold, int timeout)
{
	u64 errors = cntr->ops->readerr(cntr);
	long left;

	might_sleep();
	left = wait_event_interruptible_timeout(cntr->wait,
						cntr->ops->read(cntr) >= threshold ||
						cntr->ops->readerr(cntr) != errors,
						timeout_jiffies(timeout));
	if (left < 0)
		return -EINTR;
	if (cntr->ops->read(cntr) >= threshold)
		return 0;
	return left ? -FI_EAVAIL : -ETIMEDOUT;
}
EXPORT_SYMBOL_GPL(fi_cntr_wait);
