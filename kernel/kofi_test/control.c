// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Cases of the control calls: offers, providers, objects, connections. */
#include "test.h"

#include <linux/slab.h>

static int walk(struct target *target, struct fi_info *hints)
{
	struct fi_info *info, *each, *copy;
	unsigned int offers = 0;

	TRY(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, NULL, &info));
	for (each = info; each; each = each->next) {
		offers++;
		CHECK(*each->fabric_attr->prov_name && *each->domain_attr->name);
		CHECK(each->caps & (FI_MSG | FI_TAGGED | FI_RMA));
	}
	fi_freeinfo(info);
	strscpy(hints->fabric_attr->prov_name, target->provider, FI_NAME_MAX);
	TRY(fi_getinfo(FI_VERSION(1, 0), NULL, NULL, 0, hints, &info));
	for (each = info; each; each = each->next)
		CHECK(!strcmp(each->fabric_attr->prov_name, target->provider));
	copy = fi_dupinfo(info);
	fi_freeinfo(info);
	CHECK(copy && !copy->next && copy->tx_attr->size);
	snprintf(target->note, sizeof(target->note), "%u offers", offers);
	/* Asked for, granted, and no more than that. */
	hints->caps = FI_MSG | FI_SEND;
	hints->tx_attr->size = 16;
	info = NULL;
	TRY(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	CHECK((info->caps & (FI_MSG | FI_SEND | FI_RECV | FI_RMA)) == (FI_MSG | FI_SEND));
	CHECK(info->tx_attr->size == 16);
	fi_freeinfo(info);
	fi_freeinfo(copy);
	return 0;
}

static int refuse(struct fi_info *hints)
{
	struct fi_info *info = ERR_PTR(-1), plain = *hints;

#define NONE() \
	CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info) == -ENODATA && !info)
	hints->caps = BIT_ULL(60);
	NONE();
	hints->caps = plain.caps;
	hints->tx_attr->inject_size = SIZE_MAX;
	NONE();
	hints->tx_attr->inject_size = 0;
	hints->ep_attr->type = FI_EP_DGRAM;
	NONE();
	hints->ep_attr->type = FI_EP_UNSPEC;
	strscpy(hints->domain_attr->name, "no such domain", FI_NAME_MAX);
	NONE();
	*hints->domain_attr->name = 0;
	strscpy(hints->fabric_attr->prov_name, "no_such_provider", FI_NAME_MAX);
	NONE();
#undef NONE
	CHECK(fi_getinfo(FI_VERSION(2, 0), NULL, NULL, 0, NULL, &info) == -ENOSYS);
	CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, BIT_ULL(0), NULL, &info) ==
	      -FI_EBADFLAGS);
	CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, FI_SOURCE, NULL, &info) == -ENODATA);
	return 0;
}

int case_getinfo(struct target *target)
{
	struct fi_info *hints = fi_allocinfo();
	int status;

	CHECK(hints);
	status = walk(target, hints) ?: refuse(hints);
	fi_freeinfo(hints);
	return status;
}

/* --- a provider of its own --- */

static void toy_close(struct fid *fid)
{
	kfree(container_of(fid, struct fid_fabric, fid));
}

static const struct fi_ops toy_fid = { .close = toy_close };

static int toy_domain(struct fid_fabric *fabric, const struct fi_info *info,
		      struct fid_domain **domain)
{
	return -ENOSPC;
}

static const struct fi_ops_fabric toy_fabric_ops = { .domain = toy_domain };

static int toy_fabric(const struct fi_fabric_attr *attr, struct fid_fabric **fabric)
{
	*fabric = kzalloc(sizeof(**fabric), GFP_KERNEL);
	if (!*fabric)
		return -ENOMEM;
	(*fabric)->fid.ops = &toy_fid;
	(*fabric)->ops = &toy_fabric_ops;
	return 0;
}

static int toy_getinfo(const char *node, const char *service, u64 flags,
		       const struct fi_info *hints, struct fi_info **info)
{
	return -ENODATA;
}

static struct kofi_provider toy = { .name = "kofi_toy", .owner = THIS_MODULE,
				    .getinfo = toy_getinfo, .fabric = toy_fabric };

int case_provider(struct target *target)
{
	struct kofi_provider twin = toy, nameless = toy;
	struct fi_info *info = fi_allocinfo(), *none;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_pep *pep;
	int i;

	CHECK(info);
	nameless.name = "";
	CHECK(kofi_provider_register(FI_VERSION(2, 0), &toy) == -EPROTO);
	CHECK(kofi_provider_register(FI_VERSION(1, 1), &toy) == -EPROTO);
	CHECK(kofi_provider_register(KOFI_PROVIDER_VERSION, &nameless) == -EINVAL);
	CHECK(kofi_provider_deregister(&toy) == -ENOENT);
	strscpy(info->fabric_attr->prov_name, toy.name, FI_NAME_MAX);
	for (i = 0; i < 100; i++) {
		TRY(kofi_provider_register(KOFI_PROVIDER_VERSION, &toy));
		CHECK(kofi_provider_register(KOFI_PROVIDER_VERSION, &twin) == -EEXIST);
		CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, info, &none) == -ENODATA);
		TRY(fi_fabric(info->fabric_attr, &fabric, NULL));
		CHECK(fi_domain(fabric, info, &domain, NULL) == -ENOSPC);
		CHECK(fi_passive_ep(fabric, info, &pep, NULL) == -ENOSYS);
		CHECK(kofi_provider_deregister(&toy) == -EBUSY);
		TRY(fi_close(&fabric->fid));
		TRY(kofi_provider_deregister(&toy));
		CHECK(fi_fabric(info->fabric_attr, &fabric, NULL) == -ENODATA);
	}
	fi_freeinfo(info);
	return 0;
}

/* --- objects --- */

static int check_data_calls(struct fid_ep *ep, u8 *buf, ssize_t answer)
{
	struct fi_msg_atomic atomic = { .datatype = FI_UINT64, .op = FI_SUM };

	CHECK(fi_send(ep, buf, 1, NULL, 0, NULL) == answer);
	CHECK(fi_recv(ep, buf, 1, NULL, 0, NULL) == answer);
	CHECK(fi_inject(ep, buf, 1, 0) == answer);
	CHECK(fi_tsend(ep, buf, 1, NULL, 0, 1, NULL) == answer);
	CHECK(fi_trecv(ep, buf, 1, NULL, 0, 1, 0, NULL) == answer);
	CHECK(fi_read(ep, buf, 1, NULL, 0, 0, 0, NULL) == answer);
	CHECK(fi_write(ep, buf, 1, NULL, 0, 0, 0, NULL) == answer);
	CHECK(fi_atomicmsg(ep, &atomic, 0) == answer);
	return 0;
}

static int check_binds(struct pair *pair)
{
	struct fid_cntr *cntr;
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct fid_eq *eq;

	TRY(fi_endpoint(pair->domain, pair->info, &ep, NULL));
	CHECK(fi_enable(ep) == -FI_ENOEQ);
	TRY(fi_eq_open(pair->fabric, NULL, &eq, NULL));
	TRY(fi_ep_bind(ep, &eq->fid, 0));
	CHECK(fi_ep_bind(ep, &eq->fid, 0) == -EINVAL);
	CHECK(fi_enable(ep) == -FI_ENOCQ);
	TRY(fi_cq_open(pair->other_domain, NULL, &cq, NULL));
	CHECK(fi_ep_bind(ep, &cq->fid, FI_RECV) == -FI_EDOMAIN);
	TRY(fi_close(&cq->fid));
	TRY(fi_cq_open(pair->domain, NULL, &cq, NULL));
	CHECK(fi_ep_bind(ep, &cq->fid, 0) == -EINVAL);
	CHECK(fi_ep_bind(ep, &cq->fid, FI_READ) == -FI_EBADFLAGS);
	TRY(fi_ep_bind(ep, &cq->fid, FI_RECV | FI_TRANSMIT));
	CHECK(fi_ep_bind(ep, &cq->fid, FI_RECV) == -EINVAL);
	TRY(fi_cntr_open(pair->domain, NULL, &cntr, NULL));
	CHECK(fi_ep_bind(ep, &cntr->fid, 0) == -FI_EBADFLAGS);
	TRY(fi_ep_bind(ep, &cntr->fid, FI_SEND | FI_RECV));
	CHECK(fi_ep_bind(ep, &cntr->fid, FI_SEND) == -EINVAL);
	/* What is bound cannot go, nor can what others stand on. */
	CHECK(fi_close(&cq->fid) == -EBUSY && fi_close(&cntr->fid) == -EBUSY);
	CHECK(fi_close(&eq->fid) == -EBUSY && fi_close(&pair->domain->fid) == -EBUSY);
	CHECK(fi_close(&pair->fabric->fid) == -EBUSY);
	TRY(check_data_calls(ep, pair->a.buf, -FI_EOPBADSTATE));
	TRY(fi_enable(ep));
	CHECK(fi_enable(ep) == -FI_EOPBADSTATE);
	CHECK(fi_ep_bind(ep, &cq->fid, FI_RECV) == -FI_EOPBADSTATE);
	CHECK(fi_send(ep, pair->a.buf, 1, NULL, 0, NULL) == -ENOTCONN);
	TRY(fi_close(&ep->fid));
	TRY(fi_close(&cntr->fid));
	TRY(fi_close(&cq->fid));
	TRY(fi_close(&eq->fid));
	return 0;
}

static int check_regions(struct pair *pair)
{
	struct fi_mr_attr attr = { .vec = { .type = KOFI_KVEC, .len = 8 } };
	struct fid_mr *mr;

	if (!pair->a.brittle)
		CHECK(fi_mr_reg(pair->domain, pair->a.buf, 8, FI_REMOTE_READ, 0, PAIR_KEY, 0, &mr,
				NULL) == -FI_ENOKEY);
	CHECK(fi_mr_reg(pair->domain, pair->a.buf, 8, FI_REMOTE_READ, 1, 8, 0, &mr, NULL) ==
	      -EINVAL);
	CHECK(fi_mr_reg(pair->domain, pair->a.buf, 8, BIT_ULL(50), 0, 8, 0, &mr, NULL) ==
	      -EINVAL);
	CHECK(fi_mr_reg(pair->domain, pair->a.buf, 8, 0, 0, 8, 1, &mr, NULL) == -FI_EBADFLAGS);
	/* An array that is shorter than its length says. */
	CHECK(fi_mr_regattr(pair->domain, &attr, 0, &mr) == -EINVAL);
	TRY(fi_mr_reg(pair->domain, pair->a.buf, 8, FI_REMOTE_READ, 0, 8, 0, &mr, NULL));
	CHECK(pair->a.brittle || fi_mr_key(mr) == 8);
	TRY(fi_close(&mr->fid));
	return 0;
}

static int check_words(struct pair *pair)
{
	char text[64];
	int i;

	for (i = 0; i < KOFI_PE_COUNT; i++)
		CHECK(*fi_cq_strerror(pair->a.cq, i, NULL, text, sizeof(text)) && *text);
	CHECK(fi_cq_strerror(pair->a.cq, -1, NULL, NULL, 0));
	for (i = 0; i < 270; i++)
		CHECK(*fi_strerror(-i));
	return 0;
}

/* Of a capability that was not asked for there are no calls. */
static int check_missing(struct pair *pair)
{
	struct fi_info *info = fi_dupinfo(pair->info);
	struct fid_ep *ep;
	struct fid_cq *cq;
	size_t count;

	CHECK(info);
	info->caps = 0;
	TRY(fi_endpoint(pair->domain, info, &ep, NULL));
	TRY(fi_cq_open(pair->domain, NULL, &cq, NULL));
	TRY(fi_ep_bind(ep, &cq->fid, FI_RECV | FI_TRANSMIT));
	TRY(fi_ep_bind(ep, &pair->eq->fid, 0));
	TRY(fi_enable(ep));
	TRY(check_data_calls(ep, pair->a.buf, -ENOSYS));
	CHECK(fi_atomicvalid(ep, FI_UINT64, FI_SUM, &count) == -EOPNOTSUPP);
	TRY(fi_close(&ep->fid));
	TRY(fi_close(&cq->fid));
	fi_freeinfo(info);
	return 0;
}

int case_objects(struct target *target)
{
	struct pair_options options = { .no_pair = true };
	struct pair pair;
	int status;

	if (!has_messages(target))
		return SKIPPED;
	status = pair_open(target, &pair, &options);
	if (status)
		return status;
	status = check_binds(&pair) ?: check_regions(&pair) ?: check_missing(&pair) ?:
		 check_words(&pair);
	pair_close(&pair);
	return status;
}

/* --- connections --- */

static int check_refused(struct target *target, struct pair *pair)
{
	u8 name[64];
	size_t len = sizeof(name), short_len = 1;
	struct fi_info *request;
	struct side c = {};

	/* A port where nobody listens any more. */
	TRY(fi_getname(&pair->pep->fid, name, &len));
	CHECK(fi_getname(&pair->pep->fid, name, &short_len) == -FI_ETOOSMALL && short_len == len);
	len = sizeof(name);
	CHECK(fi_getpeer(pair->a.ep, name, &len) == -ENOTCONN);
	CHECK(fi_shutdown(pair->a.ep, 0) == -ENOTCONN);
	CHECK(fi_connect(pair->a.ep, NULL, NULL, 0) == -EINVAL);
	CHECK(fi_accept(pair->a.ep, NULL, 0) == -EINVAL);
	CHECK(fi_reject(pair->pep, &pair->a.ep->fid, NULL, 0) == -EINVAL);
	/* Rejected with words; asked with words. */
	TRY(pair_connect(pair, &pair->a, &request, "please", 6));
	CHECK(fi_connect(pair->a.ep, name, NULL, 0) == -EISCONN);
	TRY(fi_reject(pair->pep, request->handle, "never", 5));
	CHECK(fi_reject(pair->pep, request->handle, "again", 5) == -EINVAL);
	fi_freeinfo(request);
	len = sizeof(name);
	CHECK(next_event_error(pair, &pair->a.ep->fid, ECONNREFUSED, name, &len));
	CHECK(len == 5 && !memcmp(name, "never", 5));
	/* The side that asked goes while it is asked. */
	side_close(&pair->a);
	TRY(side_open(pair, pair->domain, &pair->a, pair->info, NULL));
	TRY(pair_connect(pair, &pair->a, &request, NULL, 0));
	side_close(&pair->a);
	TRY(side_open(pair, pair->other_domain, &c, request, NULL));
	fi_freeinfo(request);
	if (fi_accept(c.ep, NULL, 0) == 0 && !c.brittle)	/* a network may notice later */
		CHECK(next_event(pair, FI_CONNECTED, &c.ep->fid) &&
		      next_event(pair, FI_SHUTDOWN, &c.ep->fid));
	side_close(&c);
	/* The listener goes with a request that nobody answered. */
	TRY(side_open(pair, pair->domain, &pair->a, pair->info, NULL));
	len = sizeof(name);
	TRY(fi_getname(&pair->pep->fid, name, &len));
	TRY(pair_connect(pair, &pair->a, &request, NULL, 0));
	fi_freeinfo(request);
	TRY(fi_close(&pair->pep->fid));
	pair->pep = NULL;
	CHECK(next_event_error(pair, &pair->a.ep->fid, ECONNREFUSED, NULL, NULL));
	side_close(&pair->a);
	TRY(side_open(pair, pair->domain, &pair->a, pair->info, NULL));
	TRY(fi_connect(pair->a.ep, name, NULL, 0));
	CHECK(next_event_error(pair, &pair->a.ep->fid, ECONNREFUSED, NULL, NULL));
	return 0;
}

int case_connect(struct target *target)
{
	struct pair_options options = { .no_pair = true };
	struct pair pair;
	u8 name[2][64];
	size_t len[2] = { 64, 64 };
	int status;

	if (!has_messages(target))
		return SKIPPED;
	status = pair_open(target, &pair, &options);
	if (status)
		return status;
	status = check_refused(target, &pair);
	pair_close(&pair);
	if (status)
		return status;
	TRY(pair_open(target, &pair, NULL));
	TRY(fi_getname(&pair.a.ep->fid, name[0], &len[0]));
	TRY(fi_getpeer(pair.b.ep, name[1], &len[1]));
	CHECK(len[0] == len[1] && !memcmp(name[0], name[1], len[0]));
	pair_close(&pair);
	return 0;
}

int case_shutdown(struct target *target)
{
	struct fi_cq_err_entry error;
	struct pair pair;

	if (!has_messages(target))
		return SKIPPED;
	TRY(pair_open(target, &pair, NULL));
	TRY(fi_recv(pair.a.ep, pair.a.buf, 8, NULL, 0, &pair.a));
	TRY(fi_recv(pair.b.ep, pair.b.buf, 8, NULL, 0, &pair.b));
	TRY(fi_shutdown(pair.a.ep, 0));
	CHECK(next_error(pair.a.cq, &error) && error.op_context == &pair.a && error.err);
	CHECK(next_error(pair.b.cq, &error) && error.op_context == &pair.b && error.err);
	CHECK(next_event(&pair, FI_SHUTDOWN, NULL));
	CHECK(next_event(&pair, FI_SHUTDOWN, NULL));
	CHECK(fi_send(pair.a.ep, pair.a.buf, 1, NULL, 0, NULL) == -ENOTCONN);
	CHECK(fi_send(pair.b.ep, pair.b.buf, 1, NULL, 0, NULL) == -ENOTCONN);
	CHECK(fi_shutdown(pair.a.ep, 0) == -ENOTCONN);
	pair_close(&pair);
	return 0;
}
