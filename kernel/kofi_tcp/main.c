// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * kofi_tcp: MSG endpoints over the kernel's TCP sockets, peers of user-space
 * programs over Weft's provider tcp (docs/wire/stream.md). Of the first network
 * namespace. What it offers, fabrics, domains.
 */
#include "tcp.h"

#include <linux/slab.h>

#define KTCP_CAPS (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_RECV | FI_READ | \
		   FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_LOCAL_COMM | FI_REMOTE_COMM)
#define KTCP_ORDER (FI_ORDER_SAS | FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW)

static const struct kofi_offer offer = {
	.name = "kofi_tcp", .caps = KTCP_CAPS, .order = KTCP_ORDER, .protocol = FI_PROTO_SOCK_TCP,
	.inject_size = KTCP_INJECT_MAX, .size = KTCP_SIZE, .rma_iov_limit = KT_TARGETS_MAX,
	.max_msg_size = KTCP_MESSAGE_MAX, .buffered = KTCP_UNEXPECTED_PAUSE,
};

static int ktcp_getinfo(const char *node, const char *service, u64 flags,
			const struct fi_info *hints, struct fi_info **info)
{
	const struct kofi_ip_query query = { .node = node, .service = service, .flags = flags,
					     .hints = hints };
	struct fi_info **tail = info;
	int status = kofi_ip_offers(&offer, &query, &tail);

	return *info ? 0 : status ?: -ENODATA;
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
