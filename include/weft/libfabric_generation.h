// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Ties a program to the generation of the libfabric headers that it is compiled with: fi_getinfo and fi_dupinfo read no more of its structures than these
 * headers declare, whatever API version it asks for. Included by the rdma/fabric.h of the multiplexer and of direct linking, after the standard one.
 */
#ifndef WEFT_LIBFABRIC_GENERATION_H
#define WEFT_LIBFABRIC_GENERATION_H

#pragma GCC system_header

#include <rdma/fabric.h>

#define WEFT_GENERATION_AT_LEAST(major, minor) \
  (FI_MAJOR_VERSION > (major) || (FI_MAJOR_VERSION == (major) && FI_MINOR_VERSION >= (minor)))

#ifdef __cplusplus
extern "C" {
#endif
/* Headers before 2.0 do not declare it. */
extern int fi_fabric2(struct fi_info* info, struct fid_fabric** fabric, uint64_t flags, void* context);
#ifdef __cplusplus
}
#endif

#ifdef FABRIC_DIRECT
/* A static library has no versions of a symbol, so each generation has a name of its own. */
#ifdef __cplusplus
extern "C" {
#endif
#if WEFT_GENERATION_AT_LEAST(2, 5)
#define WEFT_GENERATION_DOMAIN_ATTR 224
#elif WEFT_GENERATION_AT_LEAST(2, 0)
#define WEFT_GENERATION_DOMAIN_ATTR 208
extern __typeof__(fi_getinfo) weft_getinfo_1_8;
extern __typeof__(fi_dupinfo) weft_dupinfo_1_8;
#define fi_getinfo weft_getinfo_1_8
#define fi_dupinfo weft_dupinfo_1_8
#elif WEFT_GENERATION_AT_LEAST(1, 20)
#define WEFT_GENERATION_DOMAIN_ATTR 200
extern __typeof__(fi_getinfo) weft_getinfo_1_7;
extern __typeof__(fi_dupinfo) weft_dupinfo_1_7;
#define fi_getinfo weft_getinfo_1_7
#define fi_dupinfo weft_dupinfo_1_7
#else
#define WEFT_GENERATION_DOMAIN_ATTR 192
extern __typeof__(fi_getinfo) weft_getinfo_1_3;
extern __typeof__(fi_dupinfo) weft_dupinfo_1_3;
#define fi_getinfo weft_getinfo_1_3
#define fi_dupinfo weft_dupinfo_1_3
#endif
#ifdef __cplusplus
}
#endif
/* Objects of the archive hold a copy of fi_domain_attr: with another size of it their members are elsewhere, and the archive's functions are called. */
#if WEFT_GENERATION_DOMAIN_ATTR != WEFT_DIRECT_DOMAIN_ATTR
#undef WEFT_DIRECT_INLINE
#define WEFT_DIRECT_OTHER_HEADERS
#endif
#undef WEFT_GENERATION_DOMAIN_ATTR
#elif !defined(WEFT_MUX_LIBRARY)
/* The linker binds a symbol without a version to the newest node of libweft.so: 2.5 to 2.6. */
#if WEFT_GENERATION_AT_LEAST(2, 5)
#elif WEFT_GENERATION_AT_LEAST(2, 0)
__asm__(".symver fi_getinfo,fi_getinfo@WEFT_1.2");
__asm__(".symver fi_freeinfo,fi_freeinfo@WEFT_1.2");
__asm__(".symver fi_dupinfo,fi_dupinfo@WEFT_1.2");
#elif WEFT_GENERATION_AT_LEAST(1, 20)
__asm__(".symver fi_getinfo,fi_getinfo@WEFT_1.1");
__asm__(".symver fi_freeinfo,fi_freeinfo@WEFT_1.1");
__asm__(".symver fi_dupinfo,fi_dupinfo@WEFT_1.1");
#else
__asm__(".symver fi_getinfo,fi_getinfo@WEFT_1.0");
__asm__(".symver fi_freeinfo,fi_freeinfo@WEFT_1.0");
__asm__(".symver fi_dupinfo,fi_dupinfo@WEFT_1.0");
#endif
#endif

#undef WEFT_GENERATION_AT_LEAST
#endif
