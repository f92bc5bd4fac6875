// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Addresses of the Internet for providers that have such: their lengths and
 * names, and the offers of fi_getinfo() for both families.
 */
#include "internal.h"

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/inet.h>
#include <net/net_namespace.h>

size_t kofi_ip_len(const void *addr)
{
	switch (((const struct sockaddr *)addr)->sa_family) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	default:
		return 0;
	}
}
EXPORT_SYMBOL_GPL(kofi_ip_len);

int kofi_give_ip_name(const void *name, void *addr, size_t *len)
{
	return kofi_give_name(name, kofi_ip_len(name), addr, len);
}
EXPORT_SYMBOL_GPL(kofi_give_ip_name);

/* An address of the hints, if it is one of the family. */
static const void *hinted(const void *addr, size_t len, int family)
{
	const struct sockaddr *sa = addr;

	return addr && len >= sizeof(*sa) && sa->sa_family == family &&
	       len == kofi_ip_len(sa) ? addr : NULL;
}

int kofi_ip_offers(const struct kofi_offer *offer, const struct kofi_ip_query *query,
		   struct fi_info ***tail)
{
	static const struct { int family; u32 format; size_t len; const char *any; } families[] = {
		{ AF_INET, FI_SOCKADDR_IN, sizeof(struct sockaddr_in), "0.0.0.0" },
		{ AF_INET6, FI_SOCKADDR_IN6, sizeof(struct sockaddr_in6), "::" } };
	const struct fi_info *hints = query->hints;
	const char *node = query->node;
	int i;

	if ((node || query->service) && !node && !(query->flags & FI_SOURCE))
		return -ENODATA;
	for (i = 0; i < ARRAY_SIZE(families); i++) {
		int family = families[i].family;
		const void *src = hints ? hinted(hints->src_addr, hints->src_addrlen, family) :
					  NULL;
		const void *dest = hints ? hinted(hints->dest_addr, hints->dest_addrlen, family) :
					   NULL;
		struct kofi_offer mine = *offer;
		struct sockaddr_storage named = {};

		if (node || query->service) {
			if (inet_pton_with_scope(&init_net, family, node ?: families[i].any,
						 query->service, &named))
				continue;
			if (query->flags & FI_SOURCE)
				src = &named;
			else
				dest = &named;
		}
		if ((hints && hints->src_addr && !src) || (hints && hints->dest_addr && !dest))
			continue;
		if (src && query->serves && !query->serves(query->of, src))
			continue;
		mine.addr_format = families[i].format;
		mine.addrlen = families[i].len;
		**tail = kofi_offer_new(&mine, FI_EP_MSG, src, dest);
		if (!**tail)
			return -ENOMEM;
		*tail = &(**tail)->next;
	}
	return 0;
}
EXPORT_SYMBOL_GPL(kofi_ip_offers);
