// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Connections: rdma_cm's events become those of an event queue. Handlers run in
 * process context under the id's handler lock; after rdma_destroy_id() none
 * runs.
 */
#include "verbs.h"

#include <linux/delay.h>
#include <linux/slab.h>

struct kv_pep {
	struct fid_pep		pep;
	struct rdma_cm_id	*id;
	struct fi_info		*model;		/* of the infos of requests */
	bool			listening;
};

/* A connection request that the client has not answered. */
struct kv_request {
	struct kofi_request	request;
	struct rdma_cm_id	*id;
	bool			gone;
};

/* Private data: a length, then as many bytes, for managers pad it. */
static u8 pack_param(u8 *to, const void *param, size_t len)
{
	to[0] = len;
	if (len)
		memcpy(to + 1, param, len);
	return len + 1;
}

static const void *unpack_param(const void *data, size_t room, size_t *len)
{
	const u8 *bytes = data;

	*len = bytes && room && bytes[0] < room ? bytes[0] : 0;
	return *len ? bytes + 1 : NULL;
}

/* --- the end of a connection --- */

/* Once. @err of a connection that never was. */
void kv_over(struct kv_ep *ep, int err, int reason, const void *data, size_t len)
{
	enum kv_state was;

	spin_lock_bh(&ep->lock);
	was = ep->state;
	ep->state = KV_OVER;
	if (was != KV_OVER)
		ep->reason = reason;
	spin_unlock_bh(&ep->lock);
	if (was == KV_OVER)
		return;
	if (was == KV_OPEN) {
		rdma_disconnect(ep->id);
		kofi_eq_write_cm(ep->ep.eq, FI_SHUTDOWN, &ep->ep.fid, NULL, NULL, 0);
	} else if (was == KV_CONNECTING && err) {
		kofi_eq_write_err(ep->ep.eq, &ep->ep.fid, err, reason, data, len);
	}
	kv_end_early(ep);
}

static void rejected(struct kv_ep *ep, struct rdma_cm_event *event)
{
	u8 room = 0;
	const void *data = rdma_consumer_reject_data(ep->id, event, &room);
	int reason = data ? KOFI_PE_REJECTED : KOFI_PE_REFUSED;
	size_t len = 0;

	if (data)
		data = unpack_param(data, room, &len);
	kv_over(ep, ECONNREFUSED, reason, data, len);
}

/* --- queue pairs --- */

static int open_queue_pair(struct kv_ep *ep)
{
	struct ib_device *device = ep->domain->device->device;
	int receives = ep->ep.posted_max[false];
	struct ib_qp_init_attr attr = {
		.cap = { .max_send_wr = ep->work_size + 8, .max_recv_wr = receives + 8,
			 .max_send_sge = KV_SGE, .max_recv_sge = KV_SGE },
		.qp_type = IB_QPT_RC, .sq_sig_type = IB_SIGNAL_REQ_WR };
	int status;

	if (ep->id->device != device)
		return -EXDEV;
	ep->cq = ib_alloc_cq_any(device, ep, ep->work_size + receives + 16, IB_POLL_WORKQUEUE);
	if (IS_ERR(ep->cq)) {
		status = PTR_ERR(ep->cq);
		ep->cq = NULL;
		return status;
	}
	attr.send_cq = ep->cq;
	attr.recv_cq = ep->cq;
	rdma_set_min_rnr_timer(ep->id, 1);
	status = rdma_create_qp(ep->id, ep->domain->pd, &attr);
	if (status)
		return status;
	spin_lock_bh(&ep->lock);
	ep->qp = ep->id->qp;
	spin_unlock_bh(&ep->lock);
	return kv_post_early(ep);
}

static struct rdma_conn_param conn_param(struct kv_ep *ep, u8 *data, const void *param, size_t len)
{
	const struct ib_device_attr *attrs = &ep->domain->device->device->attrs;

	return (struct rdma_conn_param){
		.private_data = data, .private_data_len = pack_param(data, param, len),
		.responder_resources = min(attrs->max_qp_rd_atom, 16),
		.initiator_depth = min(attrs->max_qp_init_rd_atom, 16),
		.retry_count = 7, .rnr_retry_count = 7 };
}

static void established(struct kv_ep *ep, struct rdma_cm_event *event)
{
	const void *data;
	size_t len = 0;

	spin_lock_bh(&ep->lock);
	if (ep->state == KV_CONNECTING)
		ep->state = KV_OPEN;
	spin_unlock_bh(&ep->lock);
	data = unpack_param(event->param.conn.private_data, event->param.conn.private_data_len,
			    &len);
	kofi_eq_write_cm(ep->ep.eq, FI_CONNECTED, &ep->ep.fid, NULL, data, len);
}

/* --- of endpoints --- */

static int ep_handler(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct kv_ep *ep = id->context;
	struct rdma_conn_param param;
	u8 data[1 + KV_PARAM_MAX];
	int status = 0;

	if (ep->closing)
		return 0;
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		status = rdma_resolve_route(id, KV_RESOLVE_MS);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		status = open_queue_pair(ep);
		param = conn_param(ep, data, ep->param, ep->param_len);
		if (!status)
			status = rdma_connect_locked(id, &param);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		established(ep, event);
		break;
	case RDMA_CM_EVENT_REJECTED:
		rejected(ep, event);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_CONNECT_ERROR:
		status = event->status < 0 ? event->status : -EHOSTUNREACH;
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
	case RDMA_CM_EVENT_ADDR_CHANGE:
		kv_over(ep, EIO, KOFI_PE_CLOSED, NULL, 0);
		break;
	default:
		break;
	}
	if (status)
		kv_over(ep, -status, status == -ETIMEDOUT ? KOFI_PE_TIMED_OUT : KOFI_PE_UNREACHABLE,
			NULL, 0);
	return 0;
}

static int set_out(struct kv_ep *ep, const void *addr)
{
	struct sockaddr *source = ep->source.ss_family ? (struct sockaddr *)&ep->source : NULL;
	struct rdma_cm_id *id = rdma_create_id(&init_net, ep_handler, ep, RDMA_PS_TCP, IB_QPT_RC);
	int status;

	if (IS_ERR(id))
		return PTR_ERR(id);
	memcpy(&ep->target, addr, kofi_ip_len(addr));
	ep->id = id;
	ep->state = KV_CONNECTING;
	status = rdma_resolve_addr(id, source, (struct sockaddr *)&ep->target, KV_RESOLVE_MS);
	/* What the network says is told as an event, like all that it says later. */
	if (status)
		kv_over(ep, -status, KOFI_PE_UNREACHABLE, NULL, 0);
	return 0;
}

static int kv_connect(struct fid_ep *fid_ep, const void *addr, const void *param, size_t len)
{
	struct kv_ep *ep = to_kv(fid_ep);
	int status = -EISCONN;

	if (!addr || len > KV_PARAM_MAX || !kofi_ip_len(addr) || ep->handle)
		return -EINVAL;
	mutex_lock(&ep->cm);
	if (ep->state == KV_IDLE) {
		ep->param_len = len;
		if (len)
			memcpy(ep->param, param, len);
		status = set_out(ep, addr);
	}
	mutex_unlock(&ep->cm);
	return status;
}

/* --- requests --- */

/* Takes a request from the client's hands. */
static struct kv_request *take(const struct fid *handle, const struct fid *of)
{
	struct kofi_request *request = kofi_request_take(handle, of);

	return request ? container_of(request, struct kv_request, request) : NULL;
}

static void refuse(struct kv_request *request, const void *param, size_t len)
{
	u8 data[1 + KV_PARAM_MAX];

	rdma_lock_handler(request->id);
	if (!request->gone)
		rdma_reject(request->id, data, pack_param(data, param, len),
			    IB_CM_REJ_CONSUMER_DEFINED);
	rdma_unlock_handler(request->id);
	rdma_destroy_id(request->id);
	kfree(request);
}

/* Of an id that nobody has accepted: the peer may go. */
static int request_handler(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	((struct kv_request *)id->context)->gone = true;
	return 0;
}

static int kv_accept(struct fid_ep *fid_ep, const void *param, size_t len)
{
	struct kv_ep *ep = to_kv(fid_ep);
	struct rdma_conn_param answer;
	struct kv_request *request = NULL;
	u8 data[1 + KV_PARAM_MAX];
	int status = -EINVAL;
	bool gone;

	if (len > KV_PARAM_MAX)
		return -EINVAL;
	mutex_lock(&ep->cm);
	if (ep->state == KV_IDLE && ep->handle) {
		request = take(ep->handle, &ep->ep.fid);
		ep->handle = NULL;
	}
	if (request) {
		ep->id = request->id;
		rdma_lock_handler(ep->id);
		gone = request->gone;
		ep->id->context = ep;
		ep->id->event_handler = ep_handler;
		ep->state = KV_CONNECTING;
		status = gone ? -ECONNREFUSED : open_queue_pair(ep);
		answer = conn_param(ep, data, param, len);
		if (!status)
			status = rdma_accept(ep->id, &answer);
		if (status && !gone)
			rdma_reject(ep->id, NULL, 0, IB_CM_REJ_NO_RESOURCES);
		rdma_unlock_handler(ep->id);
		kfree(request);
		if (status)
			kv_over(ep, 0, KOFI_PE_DIED, NULL, 0);
	}
	mutex_unlock(&ep->cm);
	return status;
}

static bool unsent(struct kv_ep *ep)
{
	bool more;

	spin_lock_bh(&ep->lock);
	more = ep->state == KV_OPEN && atomic_read(&ep->ep.posted[true]);
	spin_unlock_bh(&ep->lock);
	return more;
}

static int kv_shutdown(struct fid_ep *fid_ep, u64 flags)
{
	struct kv_ep *ep = to_kv(fid_ep);
	unsigned long until = jiffies + msecs_to_jiffies(KV_LINGER_MS);
	int status = 0;

	mutex_lock(&ep->cm);
	if (READ_ONCE(ep->state) != KV_OPEN)
		status = -ENOTCONN;
	while (!status && unsent(ep) && time_before(jiffies, until))
		usleep_range(200, 1000);
	if (!status)
		kv_over(ep, EIO, KOFI_PE_LOCAL, NULL, 0);
	mutex_unlock(&ep->cm);
	return status;
}

static int kv_getname(struct fid *fid, void *addr, size_t *len)
{
	struct kv_ep *ep = container_of(fid, struct kv_ep, ep.fid);
	int status;

	mutex_lock(&ep->cm);
	status = kofi_give_ip_name(ep->id ? &ep->id->route.addr.src_addr : &ep->source, addr, len);
	mutex_unlock(&ep->cm);
	return status;
}

static int kv_getpeer(struct fid_ep *fid_ep, void *addr, size_t *len)
{
	struct kv_ep *ep = to_kv(fid_ep);
	int status = -ENOTCONN;

	mutex_lock(&ep->cm);
	if (READ_ONCE(ep->state) == KV_OPEN)
		status = kofi_give_ip_name(&ep->id->route.addr.dst_addr, addr, len);
	mutex_unlock(&ep->cm);
	return status;
}

static const struct fi_ops_cm cm_ops = { .connect = kv_connect, .accept = kv_accept,
					 .shutdown = kv_shutdown, .getname = kv_getname,
					 .getpeer = kv_getpeer };

/* --- the endpoint --- */

static void ep_close(struct fid *fid)
{
	struct kv_ep *ep = container_of(fid, struct kv_ep, ep.fid);
	struct kv_request *request;

	kv_shutdown(&ep->ep, 0);
	if (ep->id) {
		rdma_lock_handler(ep->id);
		ep->closing = true;	/* handlers do nothing any more */
		rdma_unlock_handler(ep->id);
	}
	ep->reason = ep->reason ?: KOFI_PE_LOCAL;
	kv_over(ep, 0, KOFI_PE_LOCAL, NULL, 0);
	request = ep->handle ? take(ep->handle, &ep->ep.fid) : NULL;
	if (request)
		refuse(request, NULL, 0);
	if (ep->qp) {
		ib_drain_qp(ep->qp);
		rdma_destroy_qp(ep->id);
	}
	if (ep->cq)
		ib_free_cq(ep->cq);
	if (ep->id)
		rdma_destroy_id(ep->id);
	kfree(ep);
}

static const struct fi_ops ep_fid_ops = { .close = ep_close };
static const struct fi_ops_ep ep_ops = { .cancel = kv_cancel };

int kv_endpoint(struct fid_domain *domain, const struct fi_info *info, struct fid_ep **out)
{
	struct kv_ep *ep;

	if (info->ep_attr->type != FI_EP_MSG)
		return -EINVAL;
	ep = kzalloc(sizeof(*ep), GFP_KERNEL);
	if (!ep)
		return -ENOMEM;
	ep->domain = container_of(domain, struct kv_domain, domain);
	ep->handle = info->handle;
	if (!ep->handle && info->src_addr && info->src_addrlen <= sizeof(ep->source))
		memcpy(&ep->source, info->src_addr, info->src_addrlen);
	kofi_ep_sizes(&ep->ep, info, KV_SIZE, KV_SIZE_MAX);
	ep->work_size = 2 * ep->ep.posted_max[true] + KV_PARTS;
	mutex_init(&ep->cm);
	spin_lock_init(&ep->lock);
	INIT_LIST_HEAD(&ep->early);
	ep->ep.fid.ops = &ep_fid_ops;
	ep->ep.ops = &ep_ops;
	ep->ep.cm = &cm_ops;
	ep->ep.data = kv_data_ops;
	*out = &ep->ep;
	return 0;
}

/* --- listening --- */

static int on_request(struct kv_pep *pep, struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct kv_request *request = kzalloc(sizeof(*request), GFP_KERNEL);
	const struct sockaddr *local = (struct sockaddr *)&id->route.addr.src_addr;
	const struct sockaddr *remote = (struct sockaddr *)&id->route.addr.dst_addr;
	struct fi_info *info = kofi_info_new(pep->model, local, kofi_ip_len(local), remote,
					     kofi_ip_len(remote));
	const void *data;
	size_t len = 0;
	int status;

	if (!request || !info || !id->device) {
		fi_freeinfo(info);
		kfree(request);
		return -ENOMEM;
	}
	strscpy(info->domain_attr->name, dev_name(&id->device->dev), FI_NAME_MAX);
	request->id = id;
	id->context = request;
	id->event_handler = request_handler;
	data = unpack_param(event->param.conn.private_data, event->param.conn.private_data_len,
			    &len);
	status = kofi_request_offer(&request->request, &pep->pep, info, data, len);
	if (status)
		kfree(request);
	return status;		/* rdma_cm destroys the id, which rejects */
}

static int pep_handler(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		return on_request(id->context, id, event);
	return 0;
}

static int pep_listen(struct fid_pep *fid_pep)
{
	struct kv_pep *pep = container_of(fid_pep, struct kv_pep, pep);
	int status;

	if (pep->listening)
		return -FI_EOPBADSTATE;
	status = rdma_listen(pep->id, 128);
	pep->listening = !status;
	return status;
}

static int pep_reject(struct fid_pep *fid_pep, struct fid *handle, const void *param, size_t len)
{
	struct kv_request *request;

	if (len > KV_PARAM_MAX)
		return -EINVAL;
	request = take(handle, &fid_pep->fid);
	if (!request)
		return -EINVAL;
	refuse(request, param, len);
	return 0;
}

static int pep_getname(struct fid *fid, void *addr, size_t *len)
{
	struct kv_pep *pep = container_of(fid, struct kv_pep, pep.fid);

	return kofi_give_ip_name(&pep->id->route.addr.src_addr, addr, len);
}

static void pep_close(struct fid *fid)
{
	struct kv_pep *pep = container_of(fid, struct kv_pep, pep.fid);
	struct kv_request *request;

	rdma_destroy_id(pep->id);	/* nobody comes any more */
	while ((request = take(NULL, fid)))
		refuse(request, NULL, 0);
	fi_freeinfo(pep->model);
	kfree(pep);
}

static const struct fi_ops pep_fid_ops = { .close = pep_close };
static const struct fi_ops_pep pep_ops = { .listen = pep_listen, .reject = pep_reject,
					   .getname = pep_getname };

int kv_passive_ep(struct fid_fabric *fabric, const struct fi_info *info, struct fid_pep **out)
{
	struct sockaddr_storage addr = { .ss_family = info->addr_format == FI_SOCKADDR_IN6 ?
						      AF_INET6 : AF_INET };
	struct kv_pep *pep = kzalloc(sizeof(*pep), GFP_KERNEL);
	int status = -ENOMEM;

	if (!pep)
		return -ENOMEM;
	if (info->src_addr && info->src_addrlen <= sizeof(addr))
		memcpy(&addr, info->src_addr, info->src_addrlen);
	pep->model = fi_dupinfo(info);
	pep->id = rdma_create_id(&init_net, pep_handler, pep, RDMA_PS_TCP, IB_QPT_RC);
	if (IS_ERR(pep->id))
		status = PTR_ERR(pep->id);
	else if (pep->model)
		status = rdma_bind_addr(pep->id, (struct sockaddr *)&addr);
	if (status) {
		if (!IS_ERR(pep->id))
			rdma_destroy_id(pep->id);
		fi_freeinfo(pep->model);
		kfree(pep);
		return status;
	}
	pep->pep.fid.ops = &pep_fid_ops;
	pep->pep.ops = &pep_ops;
	*out = &pep->pep;
	return 0;
}
