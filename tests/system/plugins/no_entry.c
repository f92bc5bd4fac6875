// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A library that is no plugin: it has no fi_prov_ini().
int weft_test_nothing(void);
int weft_test_nothing(void) { return 0; }
