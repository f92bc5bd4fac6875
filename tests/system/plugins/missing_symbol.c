// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A plugin that was linked carelessly: something that it calls exists nowhere.
struct fi_provider;
struct fi_provider* weft_test_exists_nowhere(void);
__attribute__((visibility("default"))) struct fi_provider* fi_prov_ini(void);
struct fi_provider* fi_prov_ini(void) {
  return weft_test_exists_nowhere();
}
