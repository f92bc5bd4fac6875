// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* What programs and libraries pass each other by weft/extensions.h, for scripts/check/abi.py: the table leads to all of it. */
#include <weft/extensions.h>

__attribute__((visibility("default"))) size_t weft_shm_table_size(const struct weft_shm_ops* ops) {
  return ops->size;
}

__attribute__((visibility("default"))) size_t weft_reliable_table_size(const struct weft_reliable_ops* ops) {
  return ops->size;
}
