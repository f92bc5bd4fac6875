// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Pairs of connected endpoints, and waiting for what they report. */
#include "test.h"

#include <linux/mm.h>
#include <linux/slab.h>

bool has_messages(const struct target *target)
{
	struct fi_info *info = test_info(target, FI_EP_MSG, false);

	fi_freeinfo(info);
	return info;
}

struct fi_info *test_info(const struct target *target, enum fi_ep_type type, bool source)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;

	if (!hints)
		return NULL;
	strscpy(hints->fabric_attr->prov_name, target->provider, FI_NAME_MAX);
	hints->ep_attr->type = type;
	if (fi_getinfo(FI_VERSION(1, 17), *target->node ? target->node : NULL, NULL,
		       source && *target->node ? FI_SOURCE : 0, hints, &info))
		info = NULL;
	fi_freeinfo(hints);
	return info;
}

int side_open(struct pair *pair, struct fid_domain *domain, struct side *side,
	      struct fi_info *info, const struct pair_options *options)
{
	if (options && options->tx_size)
		info->tx_attr->size = options->tx_size;
	if (options && options->rx_size)
		info->rx_attr->size = options->rx_size;
	side->data_mask = info->domain_attr->cq_data_size < 8 ? U32_MAX : U64_MAX;
	side->brittle = info->domain_attr->mr_mode & FI_MR_PROV_KEY;
	side->buf = kvzalloc(PAIR_BYTES, GFP_KERNEL);
	CHECK(side->buf);
	TRY(fi_endpoint(domain, info, &side->ep, side));
	TRY(fi_cq_open(domain, options ? &options->cq : NULL, &side->cq, side));
	TRY(fi_ep_bind(side->ep, &side->cq->fid, FI_TRANSMIT | FI_RECV |
		       (options ? options->bind_flags : 0)));
	if (info->ep_attr->type == FI_EP_MSG)
		TRY(fi_ep_bind(side->ep, &pair->eq->fid, 0));
	return 0;
}

void side_close(struct side *side)
{
	if (side->ep)
		fi_close(&side->ep->fid);
	if (side->av)
		fi_close(&side->av->fid);
	if (side->mr)
		fi_close(&side->mr->fid);
	if (side->cq)
		fi_close(&side->cq->fid);
	kvfree(side->buf);
	memset(side, 0, sizeof(*side));
}

bool next_event(struct pair *pair, u32 event, struct fid *fid)
{
	struct fi_eq_cm_entry entry;
	u32 got = ~0;
	ssize_t len = fi_eq_sread(pair->eq, &got, &entry, sizeof(entry), WAIT_MS, 0);

	return len >= (ssize_t)sizeof(entry) && got == event && (!fid || entry.fid == fid);
}

bool next_event_error(struct pair *pair, struct fid *fid, int err, void *data, size_t *len)
{
	struct fi_eq_err_entry error = { .err_data = data, .err_data_size = len ? *len : 0 };
	struct fi_eq_cm_entry entry;
	u32 got;

	if (fi_eq_sread(pair->eq, &got, &entry, sizeof(entry), WAIT_MS, 0) != -FI_EAVAIL ||
	    fi_eq_readerr(pair->eq, &error, 0) != sizeof(error))
		return false;
	if (len)
		*len = error.err_data_size;
	return error.fid == fid && error.err == err;
}

/* From fi_connect() to the request at the other side. */
int pair_connect(struct pair *pair, struct side *from, struct fi_info **request,
		 const void *param, size_t len)
{
	struct {
		struct fi_eq_cm_entry	entry;
		u8			data[64];
	} event;
	u8 name[64];
	size_t name_len = sizeof(name);
	u32 got = ~0;

	TRY(fi_getname(&pair->pep->fid, name, &name_len));
	TRY(fi_connect(from->ep, name, param, len));
	CHECK(fi_eq_sread(pair->eq, &got, &event, sizeof(event), WAIT_MS, 0) ==
	      (ssize_t)(sizeof(event.entry) + len));
	CHECK(got == FI_CONNREQ && event.entry.fid == &pair->pep->fid && event.entry.info);
	*request = event.entry.info;
	CHECK(!len || !memcmp(event.entry.data, param, len));
	return 0;
}

static int register_side(struct fid_domain *domain, struct side *side)
{
	TRY(fi_mr_reg(domain, side->buf, PAIR_BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
		      PAIR_KEY, 0, &side->mr, NULL));
	return 0;
}

/* Each side has an address vector with one address, the other's: number 0, that cases name. */
static int join_rdm(struct side *side)
{
	TRY(fi_av_open(container_of(side->ep->fid.parent, struct fid_domain, fid), NULL, &side->av,
		       NULL));
	TRY(fi_ep_bind(side->ep, &side->av->fid, 0));
	return fi_enable(side->ep);
}

static int know_rdm(struct side *side, struct side *other)
{
	u8 name[64];
	size_t len = sizeof(name);
	fi_addr_t addr = FI_ADDR_NOTAVAIL;

	TRY(fi_getname(&other->ep->fid, name, &len));
	CHECK(fi_av_insert(side->av, name, 1, &addr, 0, NULL) == 1 && addr == 0);
	return 0;
}

static int open_rdm(const struct target *target, struct pair *pair,
		    const struct pair_options *options)
{
	pair->info = test_info(target, FI_EP_RDM, true);
	CHECK(pair->info);
	TRY(fi_fabric(pair->info->fabric_attr, &pair->fabric, NULL));
	TRY(fi_domain(pair->fabric, pair->info, &pair->domain, NULL));
	TRY(fi_domain(pair->fabric, pair->info, &pair->other_domain, NULL));
	TRY(side_open(pair, pair->domain, &pair->a, pair->info, options));
	TRY(register_side(pair->domain, &pair->a));
	if (options && options->no_pair)
		return 0;
	TRY(side_open(pair, pair->other_domain, &pair->b, pair->info, options));
	TRY(register_side(pair->other_domain, &pair->b));
	TRY(join_rdm(&pair->a));
	TRY(join_rdm(&pair->b));
	TRY(know_rdm(&pair->a, &pair->b));
	return know_rdm(&pair->b, &pair->a);
}

static int open_all(const struct target *target, struct pair *pair,
		    const struct pair_options *options)
{
	struct fi_info *request = NULL, *source;
	int status;

	pair->info = test_info(target, FI_EP_MSG, false);
	if (!pair->info)	/* a layer */
		return open_rdm(target, pair, options);
	TRY(fi_fabric(pair->info->fabric_attr, &pair->fabric, NULL));
	TRY(fi_eq_open(pair->fabric, NULL, &pair->eq, NULL));
	TRY(fi_domain(pair->fabric, pair->info, &pair->domain, NULL));
	source = test_info(target, FI_EP_MSG, true);
	CHECK(source);
	status = fi_passive_ep(pair->fabric, source, &pair->pep, NULL);
	fi_freeinfo(source);
	TRY(status);
	TRY(fi_pep_bind(pair->pep, &pair->eq->fid, 0));
	TRY(fi_listen(pair->pep));
	TRY(side_open(pair, pair->domain, &pair->a, pair->info, options));
	TRY(register_side(pair->domain, &pair->a));
	if (options && options->no_pair)
		return fi_domain(pair->fabric, pair->info, &pair->other_domain, NULL);
	TRY(pair_connect(pair, &pair->a, &request, NULL, 0));
	/* Where there are several devices, the request may have come by another one. */
	status = fi_domain(pair->fabric, request, &pair->other_domain, NULL);
	if (!status)
		status = side_open(pair, pair->other_domain, &pair->b, request, options);
	fi_freeinfo(request);
	if (status)
		return status;
	TRY(register_side(pair->other_domain, &pair->b));
	TRY(fi_accept(pair->b.ep, NULL, 0));
	CHECK(next_event(pair, FI_CONNECTED, NULL));
	CHECK(next_event(pair, FI_CONNECTED, NULL));
	return 0;
}

int pair_open(const struct target *target, struct pair *pair, const struct pair_options *options)
{
	int status;

	memset(pair, 0, sizeof(*pair));
	status = open_all(target, pair, options);
	if (status)
		pair_close(pair);
	return status;
}

void pair_close(struct pair *pair)
{
	side_close(&pair->a);
	side_close(&pair->b);
	if (pair->pep)
		fi_close(&pair->pep->fid);
	if (pair->other_domain)
		fi_close(&pair->other_domain->fid);
	if (pair->domain)
		fi_close(&pair->domain->fid);
	if (pair->eq)
		fi_close(&pair->eq->fid);
	if (pair->fabric)
		WARN_ON(fi_close(&pair->fabric->fid));
	fi_freeinfo(pair->info);
	memset(pair, 0, sizeof(*pair));
}

bool next_completion(struct fid_cq *cq, struct fi_cq_tagged_entry *entry)
{
	struct fi_cq_tagged_entry dropped;
	struct fi_cq_err_entry error;
	ssize_t got = fi_cq_sread(cq, entry ?: &dropped, 1, NULL, WAIT_MS);

	if (got == -FI_EAVAIL && fi_cq_readerr(cq, &error, 0) == 1)
		pr_err("kofi_test: completion with error %d, reason %d\n", error.err,
		       error.prov_errno);
	return got == 1;
}

bool next_error(struct fid_cq *cq, struct fi_cq_err_entry *error)
{
	struct fi_cq_tagged_entry entry;

	return fi_cq_sread(cq, &entry, 1, NULL, WAIT_MS) == -FI_EAVAIL &&
	       fi_cq_readerr(cq, error, 0) == 1;
}

void fill(u8 *buf, size_t len, u32 seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		buf[i] = (u8)(seed + i + (i >> 8));
}

bool filled(const u8 *buf, size_t len, u32 seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (buf[i] != (u8)(seed + i + (i >> 8)))
			return false;
	return true;
}
