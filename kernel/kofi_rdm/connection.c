// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Endpoints and their connections: when they are opened, accepted, ended.
 *
 * A connection is opened for the first operation that goes to an address. It
 * ends when the provider below says so, or with the endpoint; what was given
 * to it ends with an error, and the next operation opens another one. So an
 * address that another endpoint takes over is reached at once, and nothing is
 * ever sent twice.
 */
#include "rdm.h"

#include <linux/jhash.h>
#include <linux/rcupdate.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

static const struct rdm_hello hello = { cpu_to_le32(RDM_MAGIC), cpu_to_le32(1) };

/* --- the list of what is to be done --- */

void rdm_todo_locked(struct rdm_conn *conn)
{
	lockdep_assert_held(&conn->ep->lock);
	if (list_empty(&conn->todo))
		list_add_tail(&conn->todo, &conn->ep->todo);
	mod_delayed_work(rdm_wq, &conn->ep->work, 0);
}

/* No more operations: the work item ends it. */
static void over_locked(struct rdm_conn *conn, int err, int reason)
{
	if (conn->state == RDM_OVER)
		return;
	conn->state = RDM_OVER;
	conn->err = err;
	conn->reason = reason;
	if (conn->out)
		hash_del(&conn->by_name);
	rdm_todo_locked(conn);
}

void rdm_over(struct rdm_conn *conn, int err, int reason)
{
	spin_lock_bh(&conn->ep->lock);
	over_locked(conn, err, reason);
	spin_unlock_bh(&conn->ep->lock);
}

bool rdm_enter(struct rdm_conn *conn)
{
	bool entered;

	spin_lock_bh(&conn->ep->lock);
	entered = conn->state != RDM_OVER;
	conn->busy += entered;
	spin_unlock_bh(&conn->ep->lock);
	return entered;
}

void rdm_idle(struct rdm_conn *conn)
{
	struct rdm_ep *ep = conn->ep;

	spin_lock_bh(&ep->lock);
	if (!--conn->busy)
		wake_up_all(&ep->wait);
	spin_unlock_bh(&ep->lock);
}

/* --- coming --- */

static struct rdm_conn *conn_new_locked(struct rdm_ep *ep, bool out)
{
	struct rdm_conn *conn;

	lockdep_assert_held(&ep->lock);
	if (ep->closing || ep->count[out] >= RDM_CONNS_MAX)
		return NULL;
	conn = kzalloc(sizeof(*conn), GFP_ATOMIC);
	if (!conn)
		return NULL;
	conn->ep = ep;
	conn->out = out;
	INIT_LIST_HEAD(&conn->todo);
	INIT_LIST_HEAD(&conn->pending);
	INIT_LIST_HEAD(&conn->held);
	xa_init_flags(&conn->announced, XA_FLAGS_ALLOC1);
	mutex_init(&conn->rx);
	list_add_tail(&conn->node, &ep->conns);
	ep->count[out]++;
	return conn;
}

/* The connection to an address, or a new one. NULL: no such address; ERR_PTR(-EAGAIN): no room. */
struct rdm_conn *rdm_conn_for_locked(struct rdm_ep *ep, fi_addr_t addr)
{
	size_t len = ep->domain->domain.addrlen;
	struct rdm_conn *conn;
	u8 name[RDM_NAME_MAX];
	const void *bytes;
	u32 hash;

	rcu_read_lock();
	bytes = kofi_av_get(ep->ep.av, addr);
	if (bytes)
		memcpy(name, bytes, len);
	rcu_read_unlock();
	if (!bytes)
		return NULL;
	hash = jhash(name, len, 0);
	hash_for_each_possible(ep->opened, conn, by_name, hash)
		if (!memcmp(conn->name, name, len))
			return conn;
	conn = conn_new_locked(ep, true);
	if (!conn)
		return ERR_PTR(-EAGAIN);
	conn->name_len = len;
	memcpy(conn->name, name, len);
	hash_add(ep->opened, &conn->by_name, hash);
	rdm_todo_locked(conn);
	return conn;
}

static int buffers_new(struct rdm_conn *conn)
{
	unsigned int count = conn->out ? RDM_BUFFERS_OUT : RDM_BUFFERS_IN, i;

	conn->buffers = kcalloc(count, sizeof(*conn->buffers), GFP_KERNEL);
	if (!conn->buffers)
		return -ENOMEM;
	for (i = 0; i < count; i++, conn->buffer_count++) {
		conn->buffers[i].frame = (void *)__get_free_page(GFP_KERNEL);
		if (!conn->buffers[i].frame)
			return -ENOMEM;
	}
	return 0;
}

/* The endpoint below, up to its first receives. What was opened is closed by conn_free(). */
static int conn_open(struct rdm_conn *conn, struct fi_info *info)
{
	struct fi_cq_attr attr = { .size = 2 * RDM_CONN_SIZE, .handler = rdm_poll };
	struct rdm_ep *ep = conn->ep;
	int status = buffers_new(conn);

	info->tx_attr->size = RDM_CONN_SIZE;
	info->rx_attr->size = conn->out ? RDM_BUFFERS_OUT : RDM_BUFFERS_IN;
	info->tx_attr->op_flags = 0;
	info->rx_attr->op_flags = 0;
	if (!status)
		status = fi_cq_open(ep->domain->lower, &attr, &conn->cq, conn);
	if (!status)
		status = fi_endpoint(ep->domain->lower, info, &conn->lower, conn);
	if (!status)
		status = fi_ep_bind(conn->lower, &ep->eq->fid, 0);
	if (!status)
		status = fi_ep_bind(conn->lower, &conn->cq->fid, FI_TRANSMIT | FI_RECV);
	if (!status)
		status = fi_enable(conn->lower);
	return status ?: rdm_post_buffers(conn);
}

static void connect_out(struct rdm_conn *conn)
{
	struct fi_info *info;
	int status = -ENOMEM;

	spin_lock_bh(&conn->ep->lock);
	if (conn->state == RDM_NEW)
		conn->state = RDM_CONNECTING;
	spin_unlock_bh(&conn->ep->lock);
	info = fi_dupinfo(conn->ep->domain->info);
	if (info)
		status = conn_open(conn, info);
	if (!status)
		status = fi_connect(conn->lower, conn->name, &hello, sizeof(hello));
	fi_freeinfo(info);
	if (status)
		rdm_over(conn, -status, KOFI_PE_UNREACHABLE);
}

static bool greeted(const void *data, size_t len)
{
	return len == sizeof(hello) && !memcmp(data, &hello, len);
}

static void accept_in(struct rdm_ep *ep, struct fi_info *info, const void *data, size_t len)
{
	struct rdm_conn *conn = NULL;
	int status;

	spin_lock_bh(&ep->lock);
	if (greeted(data, len))
		conn = conn_new_locked(ep, false);
	if (conn)
		conn->state = RDM_CONNECTING;
	spin_unlock_bh(&ep->lock);
	if (!conn) {
		if (ep->pep)
			fi_reject(ep->pep, info->handle, NULL, 0);
		return;
	}
	status = conn_open(conn, info);
	if (!status)
		status = fi_accept(conn->lower, &hello, sizeof(hello));
	else if (!conn->lower)
		fi_reject(ep->pep, info->handle, NULL, 0);
	if (status)
		rdm_over(conn, -status, KOFI_PE_DIED);
}

static void connected(struct rdm_conn *conn, const void *data, size_t len)
{
	if (conn->out && !greeted(data, len)) {
		rdm_over(conn, ECONNREFUSED, KOFI_PE_FOREIGN);
		return;
	}
	spin_lock_bh(&conn->ep->lock);
	if (conn->state == RDM_CONNECTING) {
		conn->state = RDM_OPEN;
		rdm_todo_locked(conn);
	}
	spin_unlock_bh(&conn->ep->lock);
}

/* --- going --- */

/* Operations that end with their connection, and what the peer announced over it. */
static void conn_forget(struct rdm_conn *conn, struct list_head *gone)
{
	struct rdm_ep *ep = conn->ep;
	struct rdm_buffered *buffered, *next;
	int i;

	spin_lock_bh(&ep->lock);
	list_splice_init(&conn->pending, gone);
	for (i = 0; i < 2; i++)
		list_for_each_entry_safe(buffered, next, &ep->buffered[i], node)
			if (buffered->conn == conn) {
				list_del(&buffered->node);
				ep->buffered_count--;
				kfree(buffered);
			}
	spin_unlock_bh(&ep->lock);
}

static void conn_free(struct rdm_conn *conn)
{
	struct rdm_ep *ep = conn->ep;
	struct rdm_op *op, *next;
	unsigned long id;
	LIST_HEAD(gone);

	lockdep_assert_held(&ep->cm);
	wait_event(ep->wait, !READ_ONCE(conn->busy));
	spin_lock_bh(&ep->lock);	/* the last rdm_idle() is through */
	spin_unlock_bh(&ep->lock);
	if (conn->lower)
		WARN_ON(fi_close(&conn->lower->fid));
	if (conn->cq) {
		rdm_poll(conn->cq, conn);	/* what the close has completed */
		WARN_ON(fi_close(&conn->cq->fid));
	}
	conn_forget(conn, &gone);
	list_for_each_entry_safe(op, next, &gone, op.node)
		rdm_op_end(op, conn->err, conn->reason);
	xa_for_each(&conn->announced, id, op) {
		xa_erase(&conn->announced, id);
		rdm_op_end(op, conn->err, conn->reason);
	}
	xa_destroy(&conn->announced);
	spin_lock_bh(&ep->lock);
	if (conn->holds)
		ep->holding--;
	list_del(&conn->node);
	list_del(&conn->todo);
	ep->count[conn->out]--;
	spin_unlock_bh(&ep->lock);
	while (conn->buffer_count)
		free_page((unsigned long)conn->buffers[--conn->buffer_count].frame);
	kfree(conn->buffers);
	kfree(conn);
}

/* --- the work item, and events --- */

static struct rdm_conn *next_todo(struct rdm_ep *ep, enum rdm_state *state)
{
	struct rdm_conn *conn;

	spin_lock_bh(&ep->lock);
	conn = list_first_entry_or_null(&ep->now, struct rdm_conn, todo);
	if (conn) {
		list_del_init(&conn->todo);
		*state = conn->state;
	}
	spin_unlock_bh(&ep->lock);
	return conn;
}

static void rdm_work(struct work_struct *work)
{
	struct rdm_ep *ep = container_of(work, struct rdm_ep, work.work);
	unsigned int noio = memalloc_noio_save();
	struct rdm_conn *conn;
	enum rdm_state state;

	mutex_lock(&ep->cm);
	/* What has no room below goes back on the list, for later. */
	spin_lock_bh(&ep->lock);
	list_splice_tail_init(&ep->todo, &ep->now);
	spin_unlock_bh(&ep->lock);
	while ((conn = next_todo(ep, &state))) {
		if (state == RDM_OVER) {
			conn_free(conn);
			continue;
		}
		if (state == RDM_NEW)
			connect_out(conn);
		if (conn->cq)
			rdm_unhold(conn);
		if (state == RDM_OPEN)
			rdm_drain(conn);
	}
	mutex_unlock(&ep->cm);
	memalloc_noio_restore(noio);
}

static void on_event(void *of, const struct kofi_cm_event *event)
{
	if (event->err)
		rdm_over(event->fid->context, event->err, event->reason);
	else if (event->type == FI_CONNREQ)
		accept_in(of, event->info, event->data, event->len);
	else if (event->type == FI_CONNECTED)
		connected(event->fid->context, event->data, event->len);
	else
		rdm_over(event->fid->context, EIO, KOFI_PE_CLOSED);
}

static void eq_handler(struct fid_eq *eq, void *context)
{
	struct rdm_ep *ep = context;

	kofi_eq_drain(eq, &ep->cm, ep, on_event);
}

/* --- the endpoint --- */

static int rdm_enable(struct fid_ep *ep)
{
	return fi_listen(to_rdm(ep)->pep);
}

static int rdm_getname(struct fid *fid, void *addr, size_t *len)
{
	return fi_getname(&container_of(fid, struct rdm_ep, ep.fid)->pep->fid, addr, len);
}

static const struct fi_ops_cm cm_ops = { .getname = rdm_getname };
static const struct fi_ops_ep ep_ops = { .enable = rdm_enable, .cancel = rdm_cancel };

static void end_receives(struct rdm_ep *ep)
{
	struct rdm_buffered *buffered, *next_buffered;
	struct rdm_op *op, *next;
	LIST_HEAD(gone);
	int i;

	spin_lock_bh(&ep->lock);
	for (i = 0; i < 2; i++) {
		list_splice_tail_init(&ep->posted[i], &gone);
		list_for_each_entry_safe(buffered, next_buffered, &ep->buffered[i], node) {
			list_del(&buffered->node);
			kfree(buffered);
		}
	}
	spin_unlock_bh(&ep->lock);
	list_for_each_entry_safe(op, next, &gone, op.node)
		rdm_op_end(op, ECANCELED, KOFI_PE_LOCAL);
}

static void ep_close(struct fid *fid)
{
	struct rdm_ep *ep = container_of(fid, struct rdm_ep, ep.fid);
	struct rdm_conn *conn;

	mutex_lock(&ep->cm);
	if (ep->pep)
		WARN_ON(fi_close(&ep->pep->fid));	/* its events are gone, too */
	ep->pep = NULL;
	spin_lock_bh(&ep->lock);
	ep->closing = true;
	list_for_each_entry(conn, &ep->conns, node)
		over_locked(conn, ECANCELED, KOFI_PE_LOCAL);
	spin_unlock_bh(&ep->lock);
	mutex_unlock(&ep->cm);
	rdm_work(&ep->work.work);
	end_receives(ep);
	if (ep->eq)
		WARN_ON(fi_close(&ep->eq->fid));
	cancel_delayed_work_sync(&ep->work);
	kfree(ep);
}

static const struct fi_ops ep_fid_ops = { .close = ep_close };

static int open_below(struct rdm_ep *ep, const struct fi_info *info)
{
	struct fi_eq_attr attr = { .size = 8 * RDM_CONNS_MAX, .handler = eq_handler };
	struct fi_info *lower = kofi_info_new(ep->domain->info, info->src_addr, info->src_addrlen,
					      NULL, 0);
	int status;

	if (!lower)
		return -ENOMEM;
	status = fi_eq_open(ep->fabric, &attr, &ep->eq, ep);
	if (!status)
		status = fi_passive_ep(ep->fabric, lower, &ep->pep, ep);
	if (!status)
		status = fi_pep_bind(ep->pep, &ep->eq->fid, 0);
	fi_freeinfo(lower);
	return status;
}

int rdm_endpoint(struct fid_domain *domain, const struct fi_info *info, struct fid_ep **out)
{
	struct rdm_ep *ep;
	int status, i;

	if (info->ep_attr->type != FI_EP_RDM)
		return -EINVAL;
	ep = kzalloc(sizeof(*ep), GFP_KERNEL);
	if (!ep)
		return -ENOMEM;
	ep->domain = to_rdm_domain(domain);
	ep->fabric = container_of(ep->domain->lower->fid.parent, struct fid_fabric, fid);
	ep->ep.type = FI_EP_RDM;
	ep->ep.fid.ops = &ep_fid_ops;
	ep->ep.ops = &ep_ops;
	ep->ep.cm = &cm_ops;
	ep->ep.data = rdm_data_ops;
	kofi_ep_sizes(&ep->ep, info, RDM_SIZE, INT_MAX);
	INIT_DELAYED_WORK(&ep->work, rdm_work);
	mutex_init(&ep->cm);
	init_waitqueue_head(&ep->wait);
	spin_lock_init(&ep->lock);
	hash_init(ep->opened);
	INIT_LIST_HEAD(&ep->conns);
	INIT_LIST_HEAD(&ep->todo);
	INIT_LIST_HEAD(&ep->now);
	for (i = 0; i < 2; i++) {
		INIT_LIST_HEAD(&ep->posted[i]);
		INIT_LIST_HEAD(&ep->buffered[i]);
	}
	status = open_below(ep, info);
	if (status) {
		ep_close(&ep->ep.fid);
		return status;
	}
	*out = &ep->ep;
	return 0;
}
