// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Whether the libfabric headers of this machine are those that Weft can be used with, for C99 and C++11 and later. Included by the headers for direct
 * linking and for the multiplexer after each standard one; cmake/libfabric_headers.cmake asks the same when a project is configured.
 *
 * Weft has the binary interfaces of libfabric 1.17 to 2.6. Older headers, and those whose structures have other sizes than these, are refused. Newer ones
 * with the same structures are accepted with a note, which WEFT_ACCEPT_LIBFABRIC_HEADERS leaves out.
 */
#ifndef WEFT_LIBFABRIC_HEADERS_H
#define WEFT_LIBFABRIC_HEADERS_H

#pragma GCC system_header

#ifdef __has_include
#if !__has_include(<rdma/fabric.h>)
#error "libfabric's headers are not there: install libfabric-dev (1.17 to 2.6 are what Weft is tested with)"
#endif
#endif
#include <rdma/fabric.h>

#define WEFT_HEADERS_TEXT_(number) #number
#define WEFT_HEADERS_TEXT(number) WEFT_HEADERS_TEXT_(number)
#define WEFT_HEADERS_FOUND WEFT_HEADERS_TEXT(FI_MAJOR_VERSION) "." WEFT_HEADERS_TEXT(FI_MINOR_VERSION)
/* glibc has a macro of that name for strict C99, which leaves out the text. */
#pragma push_macro("_Static_assert")
#undef _Static_assert
#ifdef __cplusplus
#define WEFT_HEADERS_ASSERT(what, text) static_assert(what, text)
#else
#define WEFT_HEADERS_ASSERT(what, text) _Static_assert(what, text)
#endif

#define WEFT_HEADERS_AT_LEAST(major, minor) \
  (FI_MAJOR_VERSION > (major) || (FI_MAJOR_VERSION == (major) && FI_MINOR_VERSION >= (minor)))
#if !WEFT_HEADERS_AT_LEAST(1, 17)
WEFT_HEADERS_ASSERT(
    0, "libfabric-dev 1.17 to 2.6 are what Weft is made for and tested with; found " WEFT_HEADERS_FOUND
       ", whose binary interface is another: install libfabric-dev 1.17 or newer");
#else
/* fi_domain_attr grew at its end. */
#if WEFT_HEADERS_AT_LEAST(2, 5)
#define WEFT_HEADERS_DOMAIN_ATTR 224
#elif WEFT_HEADERS_AT_LEAST(2, 0)
#define WEFT_HEADERS_DOMAIN_ATTR 208
#elif WEFT_HEADERS_AT_LEAST(1, 20)
#define WEFT_HEADERS_DOMAIN_ATTR 200
#else
#define WEFT_HEADERS_DOMAIN_ATTR 192
#endif
WEFT_HEADERS_ASSERT(
    sizeof(struct fi_info) == 120 && sizeof(struct fi_tx_attr) == 80 && sizeof(struct fi_rx_attr) == 64 &&
        sizeof(struct fi_ep_attr) == 96 && sizeof(struct fi_domain_attr) == WEFT_HEADERS_DOMAIN_ATTR &&
        sizeof(struct fi_fabric_attr) == 32 && sizeof(struct fid) == 24,
    "libfabric-dev 1.17 to 2.6 are what Weft is made for and tested with; found " WEFT_HEADERS_FOUND
    ", whose structures have another size: install libfabric-dev 1.17 to 2.6");
#if WEFT_HEADERS_AT_LEAST(2, 7) && !defined(WEFT_ACCEPT_LIBFABRIC_HEADERS)
#define WEFT_HEADERS_PRAGMA(text) _Pragma(#text)
#define WEFT_HEADERS_NOTE(text) WEFT_HEADERS_PRAGMA(message(text))
WEFT_HEADERS_NOTE("libfabric-dev 1.17 to 2.6 are what Weft is tested with; found " WEFT_HEADERS_FOUND)
#undef WEFT_HEADERS_NOTE
#undef WEFT_HEADERS_PRAGMA
#endif
#undef WEFT_HEADERS_DOMAIN_ATTR
#endif

#undef WEFT_HEADERS_AT_LEAST
#undef WEFT_HEADERS_ASSERT
#pragma pop_macro("_Static_assert")
#undef WEFT_HEADERS_FOUND
#undef WEFT_HEADERS_TEXT
#undef WEFT_HEADERS_TEXT_
#endif
