// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How the entries of libibverbs.so.1 export symbols. Knows none of them.
#pragma once

#define WEFT_EXPORT __attribute__((visibility("default"), used))

// Functions of one version carry their plain name and get the version from the map. A function of an older version, or of several, is defined under
// a local name, and this gives it the versioned one.
#if defined(__has_attribute) && __has_attribute(symver)
#define WEFT_VERSIONED(function, versioned) \
  extern __attribute__((symver(versioned))) decltype(function) function
#else
#define WEFT_VERSIONED(function, versioned) __asm__(".symver " #function "," versioned)
#endif
