// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Who provides: registration, the list of providers, fi_getinfo() over all of
 * them. Must not know what providers offer.
 *
 * kofi_registry_lock is held over a few loads and stores only, never over a
 * call down: a provider that sleeps stops nobody else.
 */
#include "internal.h"

#include <linux/slab.h>

static DEFINE_SPINLOCK(kofi_registry_lock);
static LIST_HEAD(kofi_registry);
static unsigned int kofi_registry_count;
static DECLARE_WAIT_QUEUE_HEAD(kofi_registry_wait);

/* Of "LOWER;LAYER", the layer is asked. */
static const char *last_component(const char *name)
{
	const char *end = strrchr(name, ';');

	return end ? end + 1 : name;
}

static struct kofi_registration *registration_named(const char *name)
{
	struct kofi_registration *reg;

	list_for_each_entry(reg, &kofi_registry, node)
		if (!strcmp(reg->provider->name, name))
			return reg;
	return NULL;
}

int kofi_provider_register(u32 version, struct kofi_provider *provider)
{
	struct kofi_registration *reg;
	int status = 0;

	might_sleep();
	if (FI_MAJOR(version) != FI_MAJOR(KOFI_PROVIDER_VERSION) ||
	    FI_MINOR(version) > FI_MINOR(KOFI_PROVIDER_VERSION))
		return -EPROTO;
	if (!provider || !provider->name || !*provider->name || !provider->getinfo ||
	    (!provider->fabric && !provider->fabric_ops) || strlen(provider->name) >= FI_NAME_MAX ||
	    strchr(provider->name, ';'))
		return -EINVAL;
	reg = kzalloc(sizeof(*reg), GFP_KERNEL);
	if (!reg)
		return -ENOMEM;
	reg->provider = provider;
	spin_lock(&kofi_registry_lock);
	if (registration_named(provider->name))
		status = -EEXIST;
	else if (kofi_registry_count == KOFI_PROVIDERS_MAX)
		status = -ENOSPC;
	if (!status) {
		list_add_tail(&reg->node, &kofi_registry);
		kofi_registry_count++;
	}
	spin_unlock(&kofi_registry_lock);
	if (status)
		kfree(reg);
	return status;
}
EXPORT_SYMBOL_GPL(kofi_provider_register);

int kofi_provider_deregister(struct kofi_provider *provider)
{
	struct kofi_registration *reg, *found = NULL;
	int status = -ENOENT;

	might_sleep();
	spin_lock(&kofi_registry_lock);
	list_for_each_entry(reg, &kofi_registry, node)
		if (reg->provider == provider)
			found = reg;
	if (found) {
		status = found->objects ? -EBUSY : 0;
		if (!status) {
			list_del(&found->node);
			kofi_registry_count--;
		}
	}
	spin_unlock(&kofi_registry_lock);
	if (status)
		return status;
	/* Nobody finds it any more; calls that had found it end. */
	wait_event(kofi_registry_wait, !READ_ONCE(found->calls));
	spin_lock(&kofi_registry_lock);	/* the last call has let go of the lock */
	spin_unlock(&kofi_registry_lock);
	kfree(found);
	return 0;
}
EXPORT_SYMBOL_GPL(kofi_provider_deregister);

struct kofi_registration *kofi_registration_find(const char *name)
{
	struct kofi_registration *reg;

	spin_lock(&kofi_registry_lock);
	reg = registration_named(last_component(name));
	if (reg && !try_module_get(reg->provider->owner))
		reg = NULL;
	if (reg) {
		reg->objects++;
		reg->opened++;
	}
	spin_unlock(&kofi_registry_lock);
	return reg;
}

void kofi_registration_hold(struct kofi_registration *reg)
{
	__module_get(reg->provider->owner);
	spin_lock(&kofi_registry_lock);
	reg->objects++;
	reg->opened++;
	spin_unlock(&kofi_registry_lock);
}

void kofi_registration_put(struct kofi_registration *reg)
{
	struct module *owner = reg->provider->owner;

	spin_lock(&kofi_registry_lock);
	reg->objects--;
	spin_unlock(&kofi_registry_lock);
	module_put(owner);
}

/* Appends the offers that fit; frees the others. */
static void take_offers(const struct kofi_provider *provider, struct fi_info *offers,
			const struct fi_info *hints, struct fi_info ***tail)
{
	while (offers) {
		struct fi_info *offer = offers;

		offers = offer->next;
		offer->next = NULL;
		if (kofi_info_fits(offer, hints)) {
			if (!provider->layer)
				strscpy(offer->fabric_attr->prov_name, provider->name,
					FI_NAME_MAX);
			offer->fabric_attr->prov_version = provider->version;
			offer->fabric_attr->api_version = FI_VERSION(FI_MAJOR_VERSION,
								     FI_MINOR_VERSION);
			**tail = offer;
			*tail = &offer->next;
		} else {
			fi_freeinfo(offer);
		}
	}
}

int fi_getinfo(u32 version, const char *node, const char *service, u64 flags,
	       const struct fi_info *hints, struct fi_info **info)
{
	struct kofi_registration *asked[KOFI_PROVIDERS_MAX], *reg;
	struct fi_info **tail = info;
	unsigned int count = 0, i;
	int status = -ENODATA;

	might_sleep();
	*info = NULL;
	if (FI_MAJOR(version) != FI_MAJOR_VERSION)
		return -ENOSYS;
	if (flags & ~(FI_SOURCE | FI_NUMERICHOST))
		return -FI_EBADFLAGS;
	if ((flags & FI_SOURCE) && !node && !service)
		return -ENODATA;
	spin_lock(&kofi_registry_lock);
	list_for_each_entry(reg, &kofi_registry, node) {
		const char *wanted = last_component(hints ? hints->fabric_attr->prov_name : "");

		if (*wanted && strcmp(wanted, reg->provider->name))
			continue;
		reg->calls++;
		asked[count++] = reg;
	}
	spin_unlock(&kofi_registry_lock);
	for (i = 0; i < count; i++) {
		struct fi_info *offers = NULL;
		int answer;

		reg = asked[i];
		answer = reg->provider->getinfo(node, service, flags, hints, &offers);
		if (!answer)
			take_offers(reg->provider, offers, hints, &tail);
		else if (answer != -ENODATA && status == -ENODATA)
			status = answer;
		spin_lock(&kofi_registry_lock);
		if (!--reg->calls)
			wake_up_all(&kofi_registry_wait);
		spin_unlock(&kofi_registry_lock);
	}
	return *info ? 0 : status;
}
EXPORT_SYMBOL_GPL(fi_getinfo);

void kofi_registry_show(struct seq_file *seq)
{
	struct kofi_registration *reg;

	seq_puts(seq, "name version objects opened\n");
	spin_lock(&kofi_registry_lock);
	list_for_each_entry(reg, &kofi_registry, node)
		seq_printf(seq, "%s %u.%u %u %llu\n", reg->provider->name,
			   FI_MAJOR(reg->provider->version), FI_MINOR(reg->provider->version),
			   reg->objects, reg->opened);
	spin_unlock(&kofi_registry_lock);
}
