// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The smallest client of kOFI, both ends of a connection in one module: loading it connects an
 * endpoint to a listener, sends a line, and prints what has arrived (docs/kofi.md, "A client").
 * The provider has to be loaded.
 *
 *   insmod kofi_hello.ko                                    over kofi_loop
 *   insmod kofi_hello.ko provider=kofi_tcp node=127.0.0.1   over any that has connected endpoints
 */
#include <linux/module.h>
#include <linux/slab.h>
#include <kofi/data.h>

#define WAIT_MS 20000
#define LINE_BYTES 64

static char *provider = "kofi_loop";
module_param(provider, charp, 0444);
MODULE_PARM_DESC(provider, "name of the provider, as /sys/kernel/debug/kofi/providers has it");
static char *node;
module_param(node, charp, 0444);
MODULE_PARM_DESC(node, "a numeric address of this machine; kofi_loop needs none");
static char *service = "4711";
module_param(service, charp, 0444);
MODULE_PARM_DESC(service, "a number: the port");

/* All that is open; a client closes it in the opposite order. */
struct hello {
	struct fi_info *listen_info, *connect_info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_pep *listener;
	struct fid_ep *active, *passive;
	char *sent, *received;
};

/* What the provider offers for connected endpoints: to listen (FI_SOURCE), or to connect. */
static int offer(u64 flags, struct fi_info **info)
{
	struct fi_info *hints = fi_allocinfo();
	int err;

	if (!hints)
		return -ENOMEM;
	hints->ep_attr->type = FI_EP_MSG;
	hints->caps = FI_MSG;
	strscpy(hints->fabric_attr->prov_name, provider, FI_NAME_MAX);
	err = fi_getinfo(FI_VERSION(1, 17), node, service, flags, hints, info);
	fi_freeinfo(hints);
	if (err == -ENODATA)
		pr_err("kofi_hello: no provider %s is loaded that offers this for %s\n", provider,
		       node ?: "no address");
	return err;
}

/* An endpoint needs its queues before it is enabled, and its receives before the peer may send. */
static int open_endpoint(struct hello *h, struct fi_info *info, struct fid_ep **ep)
{
	int err = fi_endpoint(h->domain, info, ep, NULL);

	if (!err)
		err = fi_ep_bind(*ep, &h->eq->fid, 0);
	if (!err)
		err = fi_ep_bind(*ep, &h->cq->fid, FI_TRANSMIT | FI_RECV);
	if (!err)
		err = fi_enable(*ep);
	return err;
}

/* The next event; a refused or failed connection is an entry of fi_eq_readerr(). */
static int expect_event(struct hello *h, u32 wanted, struct fi_eq_cm_entry *entry)
{
	struct fi_eq_err_entry error = {};
	u32 event;
	ssize_t len = fi_eq_sread(h->eq, &event, entry, sizeof(*entry), WAIT_MS, 0);

	if (len == -FI_EAVAIL)
		return fi_eq_readerr(h->eq, &error, 0) > 0 ? -error.err : -EIO;
	if (len < 0)
		return len == -EAGAIN ? -ETIMEDOUT : len;
	if (event == wanted)
		return 0;
	if (event == FI_CONNREQ)
		fi_freeinfo(entry->info);	/* somebody else's request */
	return -EPROTO;
}

static int open_all(struct hello *h)
{
	int err = offer(FI_SOURCE, &h->listen_info);

	if (!err)
		err = offer(0, &h->connect_info);
	if (!err)
		err = fi_fabric(h->listen_info->fabric_attr, &h->fabric, NULL);
	if (!err)
		err = fi_eq_open(h->fabric, NULL, &h->eq, NULL);
	if (!err)
		err = fi_domain(h->fabric, h->listen_info, &h->domain, NULL);
	if (!err)
		err = fi_cq_open(h->domain, NULL, &h->cq, NULL);
	if (!err)
		err = fi_passive_ep(h->fabric, h->listen_info, &h->listener, NULL);
	if (!err)
		err = fi_pep_bind(h->listener, &h->eq->fid, 0);
	if (!err)
		err = fi_listen(h->listener);
	return err;
}

static int connect_both(struct hello *h)
{
	struct fi_eq_cm_entry entry = {};
	int err = open_endpoint(h, h->connect_info, &h->active);

	if (!err)
		err = fi_connect(h->active, h->connect_info->dest_addr, NULL, 0);
	if (!err)
		err = expect_event(h, FI_CONNREQ, &entry);
	if (err)
		return err;
	err = open_endpoint(h, entry.info, &h->passive);
	fi_freeinfo(entry.info);	/* the event's reader owns it */
	if (!err)
		err = fi_recv(h->passive, h->received, LINE_BYTES, NULL, FI_ADDR_UNSPEC, h->received);
	if (!err)
		err = fi_accept(h->passive, NULL, 0);
	if (!err)
		err = expect_event(h, FI_CONNECTED, &entry);	/* one for each end */
	if (!err)
		err = expect_event(h, FI_CONNECTED, &entry);
	return err;
}

static int exchange(struct hello *h)
{
	struct fi_cq_tagged_entry done;
	struct fi_cq_err_entry error = {};
	ssize_t ret;
	int left;

	strscpy(h->sent, "hello, fabric", LINE_BYTES);
	ret = fi_send(h->active, h->sent, LINE_BYTES, NULL, FI_ADDR_UNSPEC, h->sent);
	for (left = 2; !ret && left > 0; left--) {	/* send and receive, in any order */
		ret = fi_cq_sread(h->cq, &done, 1, NULL, WAIT_MS);
		if (ret == -FI_EAVAIL)
			ret = fi_cq_readerr(h->cq, &error, 0) > 0 ? -error.err : -EIO;
		else if (ret == 1)
			ret = 0;
	}
	if (!ret)
		pr_info("kofi_hello: '%.*s' has arrived over %s\n", LINE_BYTES, h->received, provider);
	return ret == -EAGAIN ? -ETIMEDOUT : ret;
}

/* Objects hold those below them: endpoints go first, the fabric last. */
static void close_all(struct hello *h)
{
	if (h->active)
		fi_close(&h->active->fid);
	if (h->passive)
		fi_close(&h->passive->fid);
	if (h->listener)
		fi_close(&h->listener->fid);
	if (h->cq)
		fi_close(&h->cq->fid);
	if (h->domain)
		fi_close(&h->domain->fid);
	if (h->eq)
		fi_close(&h->eq->fid);
	if (h->fabric)
		fi_close(&h->fabric->fid);
	fi_freeinfo(h->connect_info);
	fi_freeinfo(h->listen_info);
	kfree(h->sent);		/* buffers last: closing an endpoint ends what was posted */
	kfree(h->received);
}

static int __init hello_init(void)
{
	struct hello h = {
		.sent = kzalloc(LINE_BYTES, GFP_KERNEL),
		.received = kzalloc(LINE_BYTES, GFP_KERNEL),
	};
	int err = h.sent && h.received ? open_all(&h) : -ENOMEM;

	if (!err)
		err = connect_both(&h);
	if (!err)
		err = exchange(&h);
	close_all(&h);
	return err;
}

static void __exit hello_exit(void)
{
}

module_init(hello_init);
module_exit(hello_exit);
MODULE_LICENSE("Dual BSD/GPL");		/* kOFI exports to modules that may call GPL symbols */
MODULE_DESCRIPTION("The smallest client of kOFI: one line over one connection");
