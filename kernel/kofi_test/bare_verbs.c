// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kofi_bare_verbs: what kofi_verbs is measured against. The same work requests by
 * bare ib_post_send(), between two RC queue pairs that rdma_cm connects. It must
 * not know kOFI.
 *
 *   echo "10.7.0.1 latency" >/sys/kernel/debug/kofi_bare_verbs; cat ...
 *   echo "10.7.0.1 stream" >...
 */
#include <linux/debugfs.h>
#include <linux/inet.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

#include "both.h"

#define LATENCY_BYTES	8
#define LATENCY_TURNS	4000
#define STREAM_BYTES	65536
#define STREAM_TURNS	1000
#define WINDOW		16
#define SERVICE		4719

struct end {
	struct rdma_cm_id	*id;
	struct completion	connected;
	struct ib_cq		*cq;
	struct ib_qp		*qp;
	struct ib_cqe		sent, received;
	atomic_t		sends, receives;	/* reports that were not taken */
	atomic_t		failed;
	wait_queue_head_t	wait;
	u8			*buf;
	u64			addr;
	bool			first, stream;
	int			status;
};

static struct end ends[2];
static struct ib_pd *pd;	/* of the device of both */
static DEFINE_MUTEX(run_lock);
static char result[64];

static void note(struct end *end, struct ib_wc *wc, atomic_t *count)
{
	if (wc->status != IB_WC_SUCCESS)
		atomic_set(&end->failed, 1);
	atomic_inc(count);
	wake_up(&end->wait);
}

static void on_sent(struct ib_cq *cq, struct ib_wc *wc)
{
	struct end *end = container_of(wc->wr_cqe, struct end, sent);

	note(end, wc, &end->sends);
}

static void on_received(struct ib_cq *cq, struct ib_wc *wc)
{
	struct end *end = container_of(wc->wr_cqe, struct end, received);

	note(end, wc, &end->receives);
}

static int post(struct end *end, bool send, u32 index, u32 len)
{
	struct ib_sge sge = { end->addr + index % WINDOW * STREAM_BYTES, len,
			      pd->local_dma_lkey };
	struct ib_send_wr out = { .wr_cqe = &end->sent, .sg_list = &sge, .num_sge = 1,
				  .opcode = IB_WR_SEND, .send_flags = IB_SEND_SIGNALED };
	struct ib_recv_wr in = { .wr_cqe = &end->received, .sg_list = &sge, .num_sge = 1 };

	return send ? ib_post_send(end->qp, &out, NULL) : ib_post_recv(end->qp, &in, NULL);
}

static int take(struct end *end, atomic_t *count)
{
	if (!wait_event_timeout(end->wait, atomic_read(&end->failed) ||
				atomic_dec_if_positive(count) >= 0, 20 * HZ))
		return -ETIMEDOUT;
	return atomic_read(&end->failed) ? -EIO : 0;
}

static int latency(struct end *end)
{
	int status = 0, i;

	for (i = 0; i < LATENCY_TURNS && !status; i++) {
		if (end->first)
			status = post(end, true, 0, LATENCY_BYTES);
		status = status ?: take(end, &end->receives);
		status = status ?: post(end, false, 0, LATENCY_BYTES);
		if (!end->first)
			status = status ?: post(end, true, 0, LATENCY_BYTES);
		/* Long there: it was reported with what has come. */
		while (atomic_dec_if_positive(&end->sends) >= 0)
			;
	}
	return status;
}

static int stream(struct end *end)
{
	atomic_t *count = end->first ? &end->sends : &end->receives;
	int posted = end->first ? 0 : WINDOW, done, status = 0;

	for (done = 0; done < STREAM_TURNS && !status; done++) {
		while (!status && end->first && posted < STREAM_TURNS && posted - done < WINDOW)
			status = post(end, true, posted++, STREAM_BYTES);
		status = status ?: take(end, count);
		if (!end->first && posted < STREAM_TURNS)
			status = status ?: post(end, false, posted++, STREAM_BYTES);
	}
	return status;
}

static int turns(void *context)
{
	struct end *end = context;

	return end->stream ? stream(end) : latency(end);
}

/* --- connections --- */

static int end_open(struct end *end)
{
	struct ib_qp_init_attr attr = { .cap = { .max_send_wr = 64, .max_recv_wr = 64,
						 .max_send_sge = 1, .max_recv_sge = 1 },
					.qp_type = IB_QPT_RC, .sq_sig_type = IB_SIGNAL_REQ_WR };
	struct ib_device *device = end->id->device;
	int status;

	if (!pd) {
		struct ib_pd *new = ib_alloc_pd(device, 0);

		if (IS_ERR(new))
			return PTR_ERR(new);
		pd = new;
	}
	end->addr = ib_dma_map_single(device, end->buf, WINDOW * STREAM_BYTES, DMA_BIDIRECTIONAL);
	/* As kofi_verbs has them. */
	end->cq = ib_alloc_cq_any(device, end, 256, IB_POLL_WORKQUEUE);
	if (IS_ERR(end->cq)) {
		status = PTR_ERR(end->cq);
		end->cq = NULL;
		return status;
	}
	attr.send_cq = end->cq;
	attr.recv_cq = end->cq;
	rdma_set_min_rnr_timer(end->id, 1);
	status = rdma_create_qp(end->id, pd, &attr);
	end->qp = status ? NULL : end->id->qp;
	return status;
}

static void end_close(struct end *end)
{
	if (end->qp) {
		rdma_disconnect(end->id);
		ib_drain_qp(end->qp);
		rdma_destroy_qp(end->id);
	}
	if (end->cq)
		ib_free_cq(end->cq);
	if (end->addr)
		ib_dma_unmap_single(end->id->device, end->addr, WINDOW * STREAM_BYTES,
				    DMA_BIDIRECTIONAL);
	free_pages((unsigned long)end->buf, get_order(WINDOW * STREAM_BYTES));
}

static int handler(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct end *end = id->context;
	int status = 0;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		status = rdma_resolve_route(id, 5000);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		status = end_open(end) ?: rdma_connect_locked(id, &param);
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		if (ends[1].id)
			return -EBUSY;	/* rdma_cm ends it */
		end = &ends[1];
		end->id = id;
		id->context = end;
		status = end_open(end) ?: rdma_accept(id, &param);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		complete(&end->connected);
		break;
	default:
		status = -ECONNRESET;
	}
	if (status && end) {
		end->status = status;
		complete(&end->connected);
	}
	return 0;
}

static int join(struct sockaddr_in *addr, struct rdma_cm_id **listener)
{
	int status, i;

	*listener = rdma_create_id(&init_net, handler, NULL, RDMA_PS_TCP, IB_QPT_RC);
	if (IS_ERR(*listener))
		return PTR_ERR(*listener);
	ends[0].id = rdma_create_id(&init_net, handler, &ends[0], RDMA_PS_TCP, IB_QPT_RC);
	if (IS_ERR(ends[0].id)) {
		status = PTR_ERR(ends[0].id);
		ends[0].id = NULL;
		return status;
	}
	status = rdma_bind_addr(*listener, (struct sockaddr *)addr) ?:
		 rdma_listen(*listener, 1) ?:
		 rdma_resolve_addr(ends[0].id, NULL, (struct sockaddr *)addr, 5000);
	for (i = 0; i < 2 && !status; i++)
		if (!wait_for_completion_timeout(&ends[i].connected, 10 * HZ))
			status = -ETIMEDOUT;
	return status ?: ends[0].status ?: ends[1].status;
}

static int measure(struct sockaddr_in *addr, bool is_stream)
{
	struct rdma_cm_id *listener = NULL;
	int status = 0, i, j;
	u64 took;

	memset(ends, 0, sizeof(ends));
	for (i = 0; i < 2; i++) {
		ends[i].first = !i;
		ends[i].stream = is_stream;
		ends[i].sent.done = on_sent;
		ends[i].received.done = on_received;
		init_waitqueue_head(&ends[i].wait);
		init_completion(&ends[i].connected);
		ends[i].buf = (u8 *)__get_free_pages(GFP_KERNEL,
						     get_order(WINDOW * STREAM_BYTES));
		if (!ends[i].buf)
			status = -ENOMEM;
	}
	status = status ?: join(addr, &listener);
	for (i = 0; i < 2; i++)
		for (j = 0; !status && j < (is_stream ? WINDOW : 1); j++)
			status = post(&ends[i], false, j,
				      is_stream ? STREAM_BYTES : LATENCY_BYTES);
	status = status ?: run_both(turns, &ends[0], &ends[1], &took);
	if (status)
		snprintf(result, sizeof(result), "FAILED bare_verbs: %d\n", status);
	else if (is_stream)
		snprintf(result, sizeof(result), "ok bare_verbs stream: %llu MB/s\n",
			 (u64)STREAM_TURNS * STREAM_BYTES * 1000 / took);
	else
		snprintf(result, sizeof(result), "ok bare_verbs latency: %llu ns\n",
			 took / (2 * LATENCY_TURNS));
	if (!IS_ERR_OR_NULL(listener))
		rdma_destroy_id(listener);
	for (i = 0; i < 2; i++)
		end_close(&ends[i]);
	if (pd)
		ib_dealloc_pd(pd);
	pd = NULL;
	for (i = 0; i < 2; i++)
		if (ends[i].id)
			rdma_destroy_id(ends[i].id);
	return status;
}

/* --- the file --- */

static ssize_t run_write(struct file *file, const char __user *user, size_t count, loff_t *at)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(SERVICE) };
	char text[32] = "";
	const char *end;
	int status;

	if (count >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, user, count))
		return -EFAULT;
	if (!in4_pton(text, -1, (u8 *)&addr.sin_addr, ' ', &end))
		return -EINVAL;
	mutex_lock(&run_lock);
	status = measure(&addr, !strncmp(end, " stream", 7));
	mutex_unlock(&run_lock);
	return status ?: count;
}

static ssize_t run_read(struct file *file, char __user *user, size_t count, loff_t *at)
{
	return simple_read_from_buffer(user, count, at, result, strlen(result));
}

static const struct file_operations run_fops = { .owner = THIS_MODULE, .write = run_write,
						 .read = run_read };

static struct dentry *entry;

static int __init bare_init(void)
{
	entry = debugfs_create_file("kofi_bare_verbs", 0600, NULL, NULL, &run_fops);
	return 0;
}

static void __exit bare_exit(void)
{
	debugfs_remove(entry);
}

module_init(bare_init);
module_exit(bare_exit);
MODULE_DESCRIPTION("Work requests without kOFI, to measure kofi_verbs");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION("0.1.0");
