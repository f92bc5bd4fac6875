// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A plugin that has nothing to offer on this machine.
#include <stddef.h>

struct fi_provider;
__attribute__((visibility("default"))) struct fi_provider* fi_prov_ini(void);
struct fi_provider* fi_prov_ini(void) {
  return NULL;
}
