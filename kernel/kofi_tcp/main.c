// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kofi_tcp: MSG endpoints over the kernel's TCP sockets, peers of user-space
 * programs over Weft's provider tcp (docs/wire/stream.md). Of the first network
 * namespace. What it offers, fabrics, domains.
 */
#include "tcp.h"

#include <linux/inet.h>
#include <linux/slab.h>

struct workqueue_struct *ktcp_wq;

unsigned int ktcp_frame_timeout = KTCP_FRAME_S;
module_param_named(frame_timeout, ktcp_frame_timeout, uint, 0644);
MODULE_PARM_DESC(frame_timeout, "seconds without a byte in the middle of a frame (0: for ever)");

#define KTCP_CAPS (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_RECV | FI_READ | \
		   FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_LOCAL_COMM | FI_REMOTE_COMM)
#define KTCP_ORDER (FI_ORDER_SAS | FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW)

static struct fi_info *offer(u32 format, const void *src, const void *dest)
{
	size_t len = format == FI_SOCKADDR_IN ? sizeof(struct sockaddr_in) :
						sizeof(struct sockaddr_in6);
	struct fi_info *info = kofi_info_new(NULL, src, len, dest, len);

	if (!info)
		return NULL;
	info->caps = KTCP_CAPS;
	info->addr_format = format;
	*info->tx_attr = (struct fi_tx_attr){ .caps = KTCP_CAPS, .msg_order = KTCP_ORDER,
		.inject_size = KTCP_INJECT_MAX, .size = KTCP_SIZE, .iov_limit = SIZE_MAX,
		.rma_iov_limit = KT_TARGETS_MAX };
	*info->rx_attr = (struct fi_rx_attr){ .caps = KTCP_CAPS, .msg_order = KTCP_ORDER,
		.size = KTCP_SIZE, .iov_limit = SIZE_MAX,
		.total_buffered_recv = KTCP_UNEXPECTED_PAUSE };
	*info->ep_attr = (struct fi_ep_attr){ .type = FI_EP_MSG, .protocol = FI_PROTO_SOCK_TCP,
		.protocol_version = 1, .max_msg_size = KTCP_MESSAGE_MAX };
	*info->domain_attr = (struct fi_domain_attr){ .name = "kofi_tcp",
		.threading = FI_THREAD_SAFE, .control_progress = FI_PROGRESS_AUTO,
		.data_progress = FI_PROGRESS_AUTO, .resource_mgmt = FI_RM_ENABLED,
		.av_type = FI_AV_TABLE, .mr_key_size = 8, .cq_data_size = 8 };
	strscpy(info->fabric_attr->name, "kofi_tcp", FI_NAME_MAX);
	return info;
}

static const void *hinted(const void *addr, size_t len, int family)
{
	const struct sockaddr *sa = addr;

	return addr && len >= sizeof(*sa) && sa->sa_family == family &&
	       len == ktcp_addr_len(sa) ? addr : NULL;
}

static int ktcp_getinfo(const char *node, const char *service, u64 flags,
			const struct fi_info *hints, struct fi_info **info)
{
	static const struct { int family; u32 format; const char *any; } families[] = {
		{ AF_INET, FI_SOCKADDR_IN, "0.0.0.0" }, { AF_INET6, FI_SOCKADDR_IN6, "::" } };
	struct fi_info **tail = info;
	int i;

	for (i = 0; i < ARRAY_SIZE(families); i++) {
		int family = families[i].family;
		const void *src = hints ? hinted(hints->src_addr, hints->src_addrlen, family) :
					  NULL;
		const void *dest = hints ? hinted(hints->dest_addr, hints->dest_addrlen, family) :
					   NULL;
		struct sockaddr_storage named = {};

		if (node || service) {
			if (!node && !(flags & FI_SOURCE))
				return -ENODATA;
			if (inet_pton_with_scope(&init_net, family, node ?: families[i].any,
						 service, &named))
				continue;
			if (flags & FI_SOURCE)
				src = &named;
			else
				dest = &named;
		}
		if ((hints && hints->src_addr && !src) || (hints && hints->dest_addr && !dest))
			continue;
		*tail = offer(families[i].format, src, dest);
		if (!*tail)
			return *info ? 0 : -ENOMEM;
		tail = &(*tail)->next;
	}
	return *info ? 0 : -ENODATA;
}

static const struct fi_ops_domain domain_ops = { .endpoint = ktcp_endpoint };
static const struct fi_ops_fabric fabric_ops = { .domain_ops = &domain_ops,
						 .passive_ep = ktcp_passive_ep };

static struct kofi_provider provider = {
	.name = "kofi_tcp", .version = FI_VERSION(1, 0), .owner = THIS_MODULE,
	.getinfo = ktcp_getinfo, .fabric_ops = &fabric_ops,
};

static int __init ktcp_init(void)
{
	int status;

	ktcp_wq = alloc_workqueue("kofi_tcp", WQ_MEM_RECLAIM | WQ_UNBOUND, 0);
	if (!ktcp_wq)
		return -ENOMEM;
	status = kofi_provider_register(KOFI_PROVIDER_VERSION, &provider);
	if (status)
		destroy_workqueue(ktcp_wq);
	return status;
}

static void __exit ktcp_exit(void)
{
	WARN_ON(kofi_provider_deregister(&provider));
	destroy_workqueue(ktcp_wq);
}

module_init(ktcp_init);
module_exit(ktcp_exit);
MODULE_DESCRIPTION("kOFI provider over TCP sockets");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION("0.1.0");
