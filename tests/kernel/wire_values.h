// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the C sources of this test give to wire_test.cpp: numbers of the wire by their names in kernel/, and the functions of
// kernel/kofi_tcp/wire.h.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct wire_value {
  const char* name;
  uint64_t value;
};

// Ends with a name of NULL, as the next one.
extern const struct wire_value kernel_values[];
extern const struct wire_value block_target_values[];  // of examples/block_target, by the kernel's names

struct kernel_head {
  uint8_t kind, flags, context;
  uint32_t length;
  uint64_t a, b;
};

size_t kernel_pack_head(uint8_t* out, const struct kernel_head* head);
int kernel_unpack_head(const uint8_t* at, size_t left, struct kernel_head* head);
// `target`: a sockaddr_in or sockaddr_in6, or NULL.
size_t kernel_pack_shake(uint8_t* out, uint8_t type, uint16_t reason, const void* target, const void* data,
                         size_t bytes);
int kernel_shake_missing(const uint8_t* bytes, size_t got);

#ifdef __cplusplus
}
#endif
