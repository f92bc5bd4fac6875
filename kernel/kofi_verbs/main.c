// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kofi_verbs: MSG endpoints over the kernel's RDMA devices. Devices come and
 * go by an ib_client; the removal of one waits until its domains are closed.
 * What it offers, fabrics, domains.
 */
#include "verbs.h"

#include <linux/slab.h>

static DEFINE_MUTEX(devices_lock);
static LIST_HEAD(devices);

#define KV_CAPS (FI_MSG | FI_RMA | FI_ATOMIC | FI_SEND | FI_RECV | FI_READ | FI_WRITE | \
		 FI_REMOTE_READ | FI_REMOTE_WRITE | FI_LOCAL_COMM | FI_REMOTE_COMM)
#define KV_ORDER (FI_ORDER_SAS | FI_ORDER_RAW | FI_ORDER_WAW)

/* --- devices --- */

static int add_device(struct ib_device *device)
{
	struct kv_device *kv;

	if (!(device->attrs.device_cap_flags & IB_DEVICE_MEM_MGT_EXTENSIONS) ||
	    device->attrs.max_send_sge < KV_SGE || device->attrs.max_recv_sge < KV_SGE)
		return -EOPNOTSUPP;
	kv = kzalloc(sizeof(*kv), GFP_KERNEL);
	if (!kv)
		return -ENOMEM;
	kv->device = device;
	refcount_set(&kv->users, 1);
	init_completion(&kv->unused);
	mutex_lock(&devices_lock);
	list_add_tail(&kv->node, &devices);
	mutex_unlock(&devices_lock);
	return 0;
}

static void put_device_user(struct kv_device *kv)
{
	if (refcount_dec_and_test(&kv->users))
		complete(&kv->unused);
}

static void remove_device(struct ib_device *device, void *data)
{
	struct kv_device *kv, *found = NULL;

	mutex_lock(&devices_lock);
	list_for_each_entry(kv, &devices, node)
		if (kv->device == device)
			found = kv;
	if (found)
		list_del(&found->node);
	mutex_unlock(&devices_lock);
	if (!found)
		return;
	put_device_user(found);
	wait_for_completion(&found->unused);
	kfree(found);
}

static struct ib_client client = { .name = "kofi_verbs", .add = add_device,
				   .remove = remove_device };

static struct kv_device *device_named(const char *name)
{
	struct kv_device *kv, *found = NULL;

	mutex_lock(&devices_lock);
	list_for_each_entry(kv, &devices, node)
		if (!found && !strcmp(dev_name(&kv->device->dev), name)) {
			refcount_inc(&kv->users);
			found = kv;
		}
	mutex_unlock(&devices_lock);
	return found;
}

/* --- offers --- */

static const struct kofi_offer kv_offer = {
	.fabric = "kofi_verbs", .caps = KV_CAPS, .order = KV_ORDER,
	.protocol = FI_PROTO_RDMA_CM_IB_RC, .inject_size = KV_INJECT_MAX, .size = KV_SIZE,
	.iov_limit = KV_SGE, .rma_iov_limit = 1, .max_msg_size = KV_MESSAGE_MAX,
	.mr_mode = FI_MR_PROV_KEY, .cq_data_size = 4,
};

static int no_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	return 0;
}

/* Whether the device would carry an endpoint with this address. True where that cannot be told. */
static bool serves(const void *of, const void *addr)
{
	struct sockaddr_storage any_port = {};
	const struct ib_device *device = of;
	struct rdma_cm_id *id;
	bool other;

	memcpy(&any_port, addr, kofi_ip_len(addr));
	if (any_port.ss_family == AF_INET)
		((struct sockaddr_in *)&any_port)->sin_port = 0;
	else
		((struct sockaddr_in6 *)&any_port)->sin6_port = 0;
	id = rdma_create_id(&init_net, no_event, NULL, RDMA_PS_TCP, IB_QPT_RC);
	if (IS_ERR(id))
		return true;
	other = !rdma_bind_addr(id, (struct sockaddr *)&any_port) && id->device &&
		id->device != device;
	rdma_destroy_id(id);
	return !other;
}

static int kv_getinfo(const char *node, const char *service, u64 flags,
		      const struct fi_info *hints, struct fi_info **info)
{
	struct kofi_ip_query query = { .node = node, .service = service, .flags = flags,
				       .hints = hints, .serves = serves };
	struct kofi_offer offer = kv_offer;
	struct fi_info **tail = info;
	struct kv_device *kv;
	int status = 0;

	mutex_lock(&devices_lock);
	list_for_each_entry(kv, &devices, node)
		if (!status) {
			offer.name = dev_name(&kv->device->dev);
			query.of = kv->device;
			status = kofi_ip_offers(&offer, &query, &tail);
		}
	mutex_unlock(&devices_lock);
	return *info ? 0 : status ?: -ENODATA;
}

/* --- domains, fabrics --- */

static void domain_close(struct fid *fid)
{
	struct kv_domain *domain = container_of(fid, struct kv_domain, domain.fid);

	kv_registrar_close(domain);
	ib_dealloc_pd(domain->pd);
	put_device_user(domain->device);
	kfree(domain);
}

static const struct fi_ops domain_fid_ops = { .close = domain_close };
static const struct fi_ops_domain domain_ops = { .endpoint = kv_endpoint,
						 .mr_regattr = kv_mr_regattr };

static int kv_domain(struct fid_fabric *fabric, const struct fi_info *info,
		     struct fid_domain **out)
{
	struct kv_domain *domain = kzalloc(sizeof(*domain), GFP_KERNEL);
	int status = -ENODEV;

	if (!domain)
		return -ENOMEM;
	domain->device = device_named(info->domain_attr->name);
	if (domain->device) {
		domain->pd = ib_alloc_pd(domain->device->device, 0);
		status = PTR_ERR_OR_ZERO(domain->pd);
		if (!status) {
			status = kv_registrar_open(domain);
			if (status)
				ib_dealloc_pd(domain->pd);
		}
		if (status)
			put_device_user(domain->device);
	}
	if (status) {
		kfree(domain);
		return status;
	}
	mutex_init(&domain->lock);
	domain->domain.fid.ops = &domain_fid_ops;
	domain->domain.ops = &domain_ops;
	*out = &domain->domain;
	return 0;
}

static const struct fi_ops_fabric fabric_ops = { .domain = kv_domain,
						 .passive_ep = kv_passive_ep };

static struct kofi_provider provider = {
	.name = "kofi_verbs", .version = FI_VERSION(1, 0), .owner = THIS_MODULE,
	.getinfo = kv_getinfo, .fabric_ops = &fabric_ops,
};

static int __init kv_init(void)
{
	int status = ib_register_client(&client);

	if (status)
		return status;
	status = kofi_provider_register(KOFI_PROVIDER_VERSION, &provider);
	if (status)
		ib_unregister_client(&client);
	return status;
}

static void __exit kv_exit(void)
{
	WARN_ON(kofi_provider_deregister(&provider));
	ib_unregister_client(&client);
}

module_init(kv_init);
module_exit(kv_exit);
MODULE_DESCRIPTION("kOFI provider over RDMA devices");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION("0.1.0");
