// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What lies between an author's objects and a core, for scripts/check/abi.py: everything that is reachable from here keeps its layout.
#include <weft/plugin.hpp>

extern "C" __attribute__((visibility("default"))) ::fi_provider* weft_core_v1(
    const ::weft::PacketsTable*) noexcept {
  return nullptr;
}
