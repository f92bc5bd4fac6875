// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Address vectors: tables of the bytes of addresses. */
#include "internal.h"

#include <linux/rcupdate.h>
#include <linux/slab.h>

struct av_entry {
	struct rcu_head	rcu;
	u8		bytes[];
};

struct kofi_av {
	struct fid_av	av;
	size_t		addrlen;
	struct xarray	entries;
};

static struct kofi_av *to_av(struct fid_av *av)
{
	return container_of(av, struct kofi_av, av);
}

int fi_av_insert(struct fid_av *fid_av, const void *addr, size_t count, fi_addr_t *fi_addr,
		 u64 flags, void *context)
{
	struct kofi_av *av = to_av(fid_av);
	struct av_entry *entry;
	size_t i;
	int done = 0;
	u32 id;

	might_sleep();
	if (flags & ~FI_MORE)
		return -FI_EBADFLAGS;
	for (i = 0; i < count; i++) {
		bool failed = true;

		entry = kmalloc(struct_size(entry, bytes, av->addrlen), GFP_KERNEL);
		if (entry) {
			memcpy(entry->bytes, addr + i * av->addrlen, av->addrlen);
			failed = xa_alloc(&av->entries, &id, entry, xa_limit_31b, GFP_KERNEL);
			if (failed)
				kfree(entry);
		}
		if (fi_addr)
			fi_addr[i] = failed ? FI_ADDR_NOTAVAIL : id;
		done += !failed;
	}
	return done;
}
EXPORT_SYMBOL_GPL(fi_av_insert);

int fi_av_remove(struct fid_av *fid_av, const fi_addr_t *fi_addr, size_t count, u64 flags)
{
	struct kofi_av *av = to_av(fid_av);
	int status = 0;
	size_t i;

	might_sleep();
	if (flags)
		return -FI_EBADFLAGS;
	for (i = 0; i < count; i++) {
		struct av_entry *entry = xa_erase(&av->entries, fi_addr[i]);

		if (entry)
			kfree_rcu(entry, rcu);
		else
			status = -EINVAL;
	}
	return status;
}
EXPORT_SYMBOL_GPL(fi_av_remove);

const void *kofi_av_get(struct fid_av *av, fi_addr_t addr)
{
	struct av_entry *entry;

	if (!av || addr > ULONG_MAX)
		return NULL;
	entry = xa_load(&to_av(av)->entries, addr);
	return entry ? entry->bytes : NULL;
}
EXPORT_SYMBOL_GPL(kofi_av_get);

int fi_av_lookup(struct fid_av *av, fi_addr_t fi_addr, void *addr, size_t *addrlen)
{
	const void *bytes;
	size_t room = *addrlen;

	rcu_read_lock();
	bytes = kofi_av_get(av, fi_addr);
	if (bytes) {
		*addrlen = to_av(av)->addrlen;
		memcpy(addr, bytes, min(room, *addrlen));
	}
	rcu_read_unlock();
	return bytes ? 0 : -EINVAL;
}
EXPORT_SYMBOL_GPL(fi_av_lookup);

static void av_close(struct fid *fid)
{
	struct kofi_av *av = container_of(fid, struct kofi_av, av.fid);
	struct av_entry *entry;
	unsigned long index;

	xa_for_each(&av->entries, index, entry)
		kfree_rcu(entry, rcu);
	xa_destroy(&av->entries);
	kfree(av);
}

static const struct fi_ops av_ops = { .close = av_close };

int kofi_av_new(struct fid_domain *domain, const struct fi_av_attr *attr, struct fid_av **out)
{
	struct kofi_av *av;

	if (!domain->addrlen)
		return -ENOSYS;
	av = kzalloc(sizeof(*av), GFP_KERNEL);
	if (!av)
		return -ENOMEM;
	av->addrlen = domain->addrlen;
	xa_init_flags(&av->entries, XA_FLAGS_ALLOC);
	av->av.fid.ops = &av_ops;
	*out = &av->av;
	return 0;
}
