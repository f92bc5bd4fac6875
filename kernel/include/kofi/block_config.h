/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the configfs folders of kofi_blk and kofi_blk_target share: provider,
 * address and service, files of text, and what is asked of the provider.
 */
#ifndef _KOFI_BLOCK_CONFIG_H
#define _KOFI_BLOCK_CONFIG_H

#include <kofi/block.h>
#include <kofi/fabric.h>
#include <linux/configfs.h>
#include <linux/mutex.h>
#include <linux/string.h>

struct kofi_block_config {
	struct config_item	item;
	struct mutex		lock;
	bool			in_use;		/* nothing can be changed */
	char			provider[FI_NAME_MAX];
	char			address[64];
	char			service[16];
};

static inline struct kofi_block_config *kofi_block_config_of(struct config_item *item)
{
	return container_of(item, struct kofi_block_config, item);
}

static inline void kofi_block_config_init(struct kofi_block_config *config, const char *name,
					  const struct config_item_type *type)
{
	mutex_init(&config->lock);
	strscpy(config->provider, "kofi_tcp", sizeof(config->provider));
	strscpy(config->service, "4710", sizeof(config->service));
	config_item_init_type_name(&config->item, name, type);
}

static inline int kofi_block_config_register(struct configfs_subsystem *subsystem)
{
	config_group_init(&subsystem->su_group);
	mutex_init(&subsystem->su_mutex);
	return configfs_register_subsystem(subsystem);
}

/* One line into an array of @room bytes. */
static inline ssize_t kofi_block_store_text(struct config_item *item, char *to, size_t room,
					    const char *page, size_t len)
{
	struct kofi_block_config *config = kofi_block_config_of(item);
	size_t bytes = len && page[len - 1] == '\n' ? len - 1 : len;
	ssize_t status = len;

	if (bytes >= room)
		return -ENAMETOOLONG;
	mutex_lock(&config->lock);
	if (config->in_use) {
		status = -EBUSY;
	} else {
		memset(to, 0, room);
		memcpy(to, page, bytes);
	}
	mutex_unlock(&config->lock);
	return status;
}

/* The attribute @prefix@name; @text: an array, by @item. */
#define KOFI_BLOCK_TEXT(prefix, name, text)						\
static ssize_t prefix##name##_show(struct config_item *item, char *page)		\
{											\
	return sprintf(page, "%s\n", text);						\
}											\
static ssize_t prefix##name##_store(struct config_item *item, const char *page, size_t len)	\
{											\
	return kofi_block_store_text(item, text, sizeof(text), page, len);		\
}											\
CONFIGFS_ATTR(prefix, name)

/* Those of the members of struct kofi_block_config. */
#define KOFI_BLOCK_TEXTS(prefix)							\
	KOFI_BLOCK_TEXT(prefix, provider, kofi_block_config_of(item)->provider);	\
	KOFI_BLOCK_TEXT(prefix, address, kofi_block_config_of(item)->address);		\
	KOFI_BLOCK_TEXT(prefix, service, kofi_block_config_of(item)->service)

/*
 * The errno that a store returns for an error of the fabric: a program that writes the file does
 * not know FI_E*.
 */
static inline ssize_t kofi_block_stored(int status, size_t len)
{
	return status <= -FI_EOTHER && status >= -FI_EOVERRUN ? -EIO : status ?: len;
}

/* The offers for block devices; @flags of fi_getinfo(): FI_SOURCE of a target. */
static inline int kofi_block_getinfo(const struct kofi_block_config *config, u64 flags,
				     size_t inject_size, struct fi_info **info)
{
	struct fi_info *hints = fi_allocinfo();
	int status;

	if (!hints)
		return -ENOMEM;
	strscpy(hints->fabric_attr->prov_name, config->provider, FI_NAME_MAX);
	hints->ep_attr->type = FI_EP_MSG;
	hints->caps = FI_MSG | FI_RMA;
	hints->tx_attr->inject_size = inject_size;
	hints->domain_attr->cq_data_size = 4;
	hints->ep_attr->max_msg_size = KBLK_IO_MAX;
	status = fi_getinfo(FI_VERSION(1, 17), *config->address ? config->address : NULL,
			    config->service, flags, hints, info);
	fi_freeinfo(hints);
	return status;
}

#endif
