/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Between the files of kofi.ko. */
#ifndef _KOFI_INTERNAL_H
#define _KOFI_INTERNAL_H

#include <kofi/provider.h>
#include <linux/refcount.h>
#include <linux/seq_file.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#define KOFI_PROVIDERS_MAX 32

/*
 * A registered provider. @objects and @calls are of kofi_registry_lock; the
 * registration lives as long as either is not zero or it is in the list.
 */
struct kofi_registration {
	struct list_head	node;
	struct kofi_provider	*provider;
	unsigned int		objects;	/* open ones: fi_fabric() counts, too */
	unsigned int		calls;		/* of getinfo that run */
	u64			opened;		/* objects since registration */
};

extern struct workqueue_struct *kofi_wq;

/* registry.c. One reference of the provider and its module. */
struct kofi_registration *kofi_registration_find(const char *name);
void kofi_registration_hold(struct kofi_registration *reg);
void kofi_registration_put(struct kofi_registration *reg);
void kofi_registry_show(struct seq_file *seq);

/* objects.c */
void kofi_objects_show(struct seq_file *seq, bool counters);

/* share.c: what is nothing but its operations */
int kofi_fabric_new(const struct fi_ops_fabric *ops, struct fid_fabric **fabric);
int kofi_domain_new(const struct fi_ops_fabric *ops, struct fid_domain **domain);

/* info.c: whether an offer fits; what hints ask for is then set in it. */
bool kofi_info_fits(struct fi_info *offer, const struct fi_info *hints);

/* queue.c, av.c, memory.c: objects that the core has for providers. */
int kofi_cq_new(const struct fi_cq_attr *attr, struct fid_cq **cq);
int kofi_eq_new(const struct fi_eq_attr *attr, struct fid_eq **eq);
int kofi_cntr_new(const struct fi_cntr_attr *attr, struct fid_cntr **cntr);
int kofi_av_new(struct fid_domain *domain, const struct fi_av_attr *attr, struct fid_av **av);
int kofi_mr_new(struct fid_domain *domain, const struct fi_mr_attr *attr, struct fid_mr **mr);
void kofi_cq_show(struct seq_file *seq, struct fid_cq *cq);
void kofi_cntr_show(struct seq_file *seq, struct fid_cntr *cntr);
void kofi_eq_forget(struct fid_eq *eq, struct fid *fid);

struct kofi_mr_table {
	struct xarray	regions;
};

int kofi_mr_table_new(struct kofi_mr_table **table);

#endif
