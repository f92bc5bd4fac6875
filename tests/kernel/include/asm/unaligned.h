// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// For the headers of kernel/ in user space: little-endian numbers at any address.
#pragma once

#include <string.h>

#include <linux/types.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "little-endian machines only"
#endif

#define WEFT_UNALIGNED(bits)                                       \
  static inline u##bits get_unaligned_le##bits(const void* from) { \
    u##bits value;                                                 \
    memcpy(&value, from, sizeof(value));                           \
    return value;                                                  \
  }                                                                \
  static inline void put_unaligned_le##bits(u##bits value, void* to) { memcpy(to, &value, sizeof(value)); }
WEFT_UNALIGNED(16)
WEFT_UNALIGNED(32)
WEFT_UNALIGNED(64)
