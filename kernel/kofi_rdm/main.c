// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kofi_rdm: RDM endpoints over the MSG endpoints of any other provider.
 *
 * It is named behind the one that it stands on: "kofi_tcp;kofi_rdm". What it
 * offers, fabrics, domains, regions.
 */
#include "rdm.h"

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/slab.h>

struct workqueue_struct *rdm_wq;

#define RDM_LAYER "kofi_rdm"
/* Long messages are read by their receiver. */
#define RDM_NEEDS (FI_MSG | FI_RMA)

/* The name of the provider below: what stands before the last ';'. False: nothing does. */
static bool lower_name(const char *name, char *lower)
{
	const char *end = strrchr(name, ';');

	if (!end)
		return false;
	strscpy(lower, name, min_t(size_t, end - name + 1, FI_NAME_MAX));
	return true;
}

/* Offers below that can carry the layer. */
static int lower_offers(const char *provider, const char *node, const char *service, u64 flags,
			const struct fi_info *hints, struct fi_info **info)
{
	struct fi_info *plain = kofi_info_new(NULL, hints ? hints->src_addr : NULL,
					      hints ? hints->src_addrlen : 0,
					      hints ? hints->dest_addr : NULL,
					      hints ? hints->dest_addrlen : 0);
	int status;

	if (!plain)
		return -ENOMEM;
	plain->ep_attr->type = FI_EP_MSG;
	if (hints) {
		plain->caps = hints->caps ? RDM_NEEDS | (hints->caps & FI_ATOMIC) : 0;
		plain->addr_format = hints->addr_format;
		plain->mode = hints->mode;
		plain->domain_attr->mr_mode = hints->domain_attr->mr_mode;
	}
	strscpy(plain->fabric_attr->prov_name, provider, FI_NAME_MAX);
	status = fi_getinfo(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), node, service, flags,
			    plain, info);
	fi_freeinfo(plain);
	return status;
}

static struct fi_info *offer(const struct fi_info *lower)
{
	struct fi_info *info = fi_dupinfo(lower);
	char name[FI_NAME_MAX + sizeof(RDM_LAYER)];

	if (!info)
		return NULL;
	info->caps |= FI_TAGGED | FI_SEND | FI_RECV;
	info->ep_attr->type = FI_EP_RDM;
	info->ep_attr->protocol_version = 1;
	info->tx_attr->inject_size = min_t(size_t, lower->tx_attr->inject_size, RDM_EAGER_MAX);
	info->tx_attr->size = RDM_SIZE;
	info->tx_attr->rma_iov_limit = min_t(size_t, lower->tx_attr->rma_iov_limit,
					     RDM_TARGETS_MAX);
	info->tx_attr->msg_order = lower->tx_attr->msg_order & FI_ORDER_SAS;
	info->rx_attr->size = RDM_SIZE;
	info->rx_attr->msg_order = info->tx_attr->msg_order;
	info->rx_attr->total_buffered_recv = RDM_BUFFERED_BYTES;
	info->domain_attr->av_type = FI_AV_TABLE;
	snprintf(name, sizeof(name), "%s;" RDM_LAYER, lower->fabric_attr->prov_name);
	strscpy(info->fabric_attr->prov_name, name, FI_NAME_MAX);
	return info;
}

static int rdm_getinfo(const char *node, const char *service, u64 flags,
		       const struct fi_info *hints, struct fi_info **info)
{
	struct fi_info *lower, *each, **tail = info;
	char provider[FI_NAME_MAX] = "";
	int status;

	/* Also what this layer itself asks: it stands on no layer. */
	if (hints && hints->ep_attr->type && hints->ep_attr->type != FI_EP_RDM)
		return -ENODATA;
	if (hints)
		lower_name(hints->fabric_attr->prov_name, provider);
	status = lower_offers(provider, node, service, flags, hints, &lower);
	if (status)
		return status;
	for (each = lower; each; each = each->next) {
		if ((each->caps & RDM_NEEDS) != RDM_NEEDS)
			continue;
		*tail = offer(each);
		if (!*tail)
			break;
		tail = &(*tail)->next;
	}
	fi_freeinfo(lower);
	return *info ? 0 : -ENODATA;
}

/* --- regions: those of the domain below --- */

static void mr_close(struct fid *fid)
{
	struct rdm_mr *mr = container_of(fid, struct rdm_mr, mr.fid);

	WARN_ON(fi_close(&mr->lower->fid));
	kfree(mr);
}

static const struct fi_ops mr_ops = { .close = mr_close };

static int rdm_mr_regattr(struct fid_domain *domain, const struct fi_mr_attr *attr, u64 flags,
			  struct fid_mr **out)
{
	struct rdm_domain *rdm = to_rdm_domain(domain);
	struct rdm_mr *mr;
	int status;

	if (!(rdm->info->domain_attr->mr_mode & FI_MR_PROV_KEY) &&
	    (attr->requested_key & RDM_KEY_OWN))
		return -FI_ENOKEY;
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return -ENOMEM;
	status = fi_mr_regattr(rdm->lower, attr, flags, &mr->lower);
	if (status) {
		kfree(mr);
		return status;
	}
	mr->mr.fid.ops = &mr_ops;
	mr->mr.desc = mr->lower->desc;
	mr->mr.key = mr->lower->key;
	*out = &mr->mr;
	return 0;
}

/* --- domains --- */

struct rdm_fabric {
	struct fid_fabric	fabric;
	struct fid_fabric	*lower;
};

static void domain_close(struct fid *fid)
{
	struct rdm_domain *domain = container_of(fid, struct rdm_domain, domain.fid);

	WARN_ON(fi_close(&domain->lower->fid));
	fi_freeinfo(domain->info);
	kfree(domain);
}

static const struct fi_ops domain_fid_ops = { .close = domain_close };
static const struct fi_ops_domain domain_ops = { .endpoint = rdm_endpoint,
						 .mr_regattr = rdm_mr_regattr };

static size_t address_len(const struct fi_info *info)
{
	switch (info->addr_format) {
	case FI_SOCKADDR_IN:
		return sizeof(struct sockaddr_in);
	case FI_SOCKADDR_IN6:
		return sizeof(struct sockaddr_in6);
	default:
		return info->src_addrlen ?: info->dest_addrlen ?: sizeof(u64);
	}
}

static int rdm_domain(struct fid_fabric *fabric, const struct fi_info *info,
		      struct fid_domain **out)
{
	struct rdm_domain *domain = kzalloc(sizeof(*domain), GFP_KERNEL);
	char lower[FI_NAME_MAX];
	int status = -EINVAL;

	if (!domain)
		return -ENOMEM;
	domain->domain.addrlen = address_len(info);
	if (domain->domain.addrlen <= RDM_NAME_MAX &&
	    lower_name(info->fabric_attr->prov_name, lower))
		status = lower_offers(lower, NULL, NULL, 0, info, &domain->info);
	if (!status)
		status = fi_domain(container_of(fabric, struct rdm_fabric, fabric)->lower,
				   domain->info, &domain->lower, NULL);
	if (status) {
		fi_freeinfo(domain->info);
		kfree(domain);
		return status;
	}
	domain->domain.fid.ops = &domain_fid_ops;
	domain->domain.ops = &domain_ops;
	*out = &domain->domain;
	return 0;
}

/* --- fabrics --- */

static void fabric_close(struct fid *fid)
{
	struct rdm_fabric *fabric = container_of(fid, struct rdm_fabric, fabric.fid);

	WARN_ON(fi_close(&fabric->lower->fid));
	kfree(fabric);
}

static const struct fi_ops fabric_fid_ops = { .close = fabric_close };
static const struct fi_ops_fabric fabric_ops = { .domain = rdm_domain };

static int rdm_fabric(const struct fi_fabric_attr *attr, struct fid_fabric **out)
{
	struct fi_fabric_attr lower = *attr;
	struct rdm_fabric *fabric;
	int status;

	if (!lower_name(attr->prov_name, lower.prov_name))
		return -EINVAL;
	fabric = kzalloc(sizeof(*fabric), GFP_KERNEL);
	if (!fabric)
		return -ENOMEM;
	status = fi_fabric(&lower, &fabric->lower, NULL);
	if (status) {
		kfree(fabric);
		return status;
	}
	fabric->fabric.fid.ops = &fabric_fid_ops;
	fabric->fabric.ops = &fabric_ops;
	*out = &fabric->fabric;
	return 0;
}

static struct kofi_provider provider = {
	.name = RDM_LAYER, .version = FI_VERSION(1, 0), .owner = THIS_MODULE, .layer = true,
	.getinfo = rdm_getinfo, .fabric = rdm_fabric,
};

static int __init rdm_init(void)
{
	int status;

	rdm_wq = alloc_workqueue(RDM_LAYER, WQ_HIGHPRI | WQ_MEM_RECLAIM | WQ_UNBOUND, 0);
	if (!rdm_wq)
		return -ENOMEM;
	status = kofi_provider_register(KOFI_PROVIDER_VERSION, &provider);
	if (status)
		destroy_workqueue(rdm_wq);
	return status;
}

static void __exit rdm_exit(void)
{
	WARN_ON(kofi_provider_deregister(&provider));
	destroy_workqueue(rdm_wq);
}

module_init(rdm_init);
module_exit(rdm_exit);
MODULE_DESCRIPTION("RDM endpoints over connected ones of any kOFI provider");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION("0.1.0");
