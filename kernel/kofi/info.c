// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * fi_info: allocation, copies, and which offer fits which hints
 * (fi_getinfo(3), "hints").
 */
#include "internal.h"

#include <linux/slab.h>

/* One allocation for an fi_info and its attributes. */
struct info_block {
	struct fi_info		info;
	struct fi_tx_attr	tx;
	struct fi_rx_attr	rx;
	struct fi_ep_attr	ep;
	struct fi_domain_attr	domain;
	struct fi_fabric_attr	fabric;
};

static bool copy_address(void **to, const void *from, size_t len)
{
	if (!from || !len)
		return true;
	*to = kmemdup(from, len, GFP_KERNEL);
	return *to;
}

struct fi_info *kofi_info_new(const struct fi_info *model, const void *src, size_t src_len,
			      const void *dest, size_t dest_len)
{
	struct info_block *block = kzalloc(sizeof(*block), GFP_KERNEL);
	struct fi_info *info;

	if (!block)
		return NULL;
	if (model) {
		block->info = *model;
		block->tx = *model->tx_attr;
		block->rx = *model->rx_attr;
		block->ep = *model->ep_attr;
		block->domain = *model->domain_attr;
		block->fabric = *model->fabric_attr;
	}
	info = &block->info;
	info->next = NULL;
	info->src_addr = NULL;
	info->dest_addr = NULL;
	info->src_addrlen = src ? src_len : 0;
	info->dest_addrlen = dest ? dest_len : 0;
	info->tx_attr = &block->tx;
	info->rx_attr = &block->rx;
	info->ep_attr = &block->ep;
	info->domain_attr = &block->domain;
	info->fabric_attr = &block->fabric;
	if (!copy_address(&info->src_addr, src, src_len) ||
	    !copy_address(&info->dest_addr, dest, dest_len)) {
		fi_freeinfo(info);
		return NULL;
	}
	return info;
}
EXPORT_SYMBOL_GPL(kofi_info_new);

struct fi_info *fi_dupinfo(const struct fi_info *info)
{
	might_sleep();
	if (!info)
		return kofi_info_new(NULL, NULL, 0, NULL, 0);
	return kofi_info_new(info, info->src_addr, info->src_addrlen, info->dest_addr,
			     info->dest_addrlen);
}
EXPORT_SYMBOL_GPL(fi_dupinfo);

void fi_freeinfo(struct fi_info *info)
{
	while (info) {
		struct fi_info *next = info->next;

		kfree(info->src_addr);
		kfree(info->dest_addr);
		kfree(container_of(info, struct info_block, info));
		info = next;
	}
}
EXPORT_SYMBOL_GPL(fi_freeinfo);

#define FI_PRIMARY	(FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC)
#define FI_LOCAL_SIDE	(FI_SEND | FI_RECV)
#define FI_RMA_SIDES	(FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)

/* Without modifiers a capability means all of them (fi_getinfo(3), "CAPABILITIES"). */
static u64 with_modifiers(u64 caps)
{
	if ((caps & (FI_MSG | FI_TAGGED)) && !(caps & FI_LOCAL_SIDE))
		caps |= FI_LOCAL_SIDE;
	if ((caps & (FI_RMA | FI_ATOMIC)) && !(caps & FI_RMA_SIDES))
		caps |= FI_RMA_SIDES;
	return caps;
}

static bool named(const char *wanted, const char *offered)
{
	return !*wanted || !strcmp(wanted, offered);
}

static bool sizes_fit(const struct fi_info *offer, const struct fi_info *hints)
{
	const struct fi_tx_attr *tx = offer->tx_attr, *want_tx = hints->tx_attr;
	const struct fi_rx_attr *rx = offer->rx_attr, *want_rx = hints->rx_attr;

	return want_tx->inject_size <= tx->inject_size && want_tx->size <= tx->size &&
	       want_tx->iov_limit <= tx->iov_limit &&
	       want_tx->rma_iov_limit <= tx->rma_iov_limit &&
	       !(want_tx->msg_order & ~tx->msg_order) &&
	       want_rx->size <= rx->size && want_rx->iov_limit <= rx->iov_limit &&
	       want_rx->total_buffered_recv <= rx->total_buffered_recv &&
	       !(want_rx->msg_order & ~rx->msg_order) &&
	       hints->ep_attr->max_msg_size <= offer->ep_attr->max_msg_size;
}

bool kofi_info_fits(struct fi_info *offer, const struct fi_info *hints)
{
	u64 caps;

	if (!hints)
		return true;
	caps = with_modifiers(hints->caps);
	if (caps & ~with_modifiers(offer->caps))
		return false;
	/* What the provider demands of the client, the client has to offer. */
	if (offer->mode & ~hints->mode)
		return false;
	if (hints->domain_attr->mr_mode &&
	    (offer->domain_attr->mr_mode & ~hints->domain_attr->mr_mode))
		return false;
	if (hints->ep_attr->type && hints->ep_attr->type != offer->ep_attr->type)
		return false;
	if (hints->ep_attr->protocol && hints->ep_attr->protocol != offer->ep_attr->protocol)
		return false;
	if (hints->addr_format && hints->addr_format != offer->addr_format &&
	    hints->addr_format != FI_SOCKADDR)
		return false;
	if (hints->domain_attr->threading > offer->domain_attr->threading ||
	    hints->domain_attr->mr_key_size > offer->domain_attr->mr_key_size ||
	    hints->domain_attr->cq_data_size > offer->domain_attr->cq_data_size)
		return false;
	if (!named(hints->fabric_attr->name, offer->fabric_attr->name) ||
	    !named(hints->domain_attr->name, offer->domain_attr->name) ||
	    !sizes_fit(offer, hints))
		return false;
	if (hints->caps)
		offer->caps = caps | (offer->caps & ~(FI_PRIMARY | FI_LOCAL_SIDE | FI_RMA_SIDES |
						      FI_SOURCE | FI_DIRECTED_RECV));
	if (hints->tx_attr->size)
		offer->tx_attr->size = hints->tx_attr->size;
	if (hints->rx_attr->size)
		offer->rx_attr->size = hints->rx_attr->size;
	offer->tx_attr->op_flags = hints->tx_attr->op_flags;
	offer->rx_attr->op_flags = hints->rx_attr->op_flags;
	offer->tx_attr->caps = offer->caps & ~(FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE);
	offer->rx_attr->caps = offer->caps & ~(FI_SEND | FI_READ | FI_WRITE);
	return true;
}
