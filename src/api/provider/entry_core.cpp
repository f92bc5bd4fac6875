// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a plugin made by WEFT_PROVIDER_OVER_PACKETS calls: the rest of its fi_prov_ini (fi_provider(3)), and the engine over its packets. Must not know
// the provider but by its table.
#include <rdma/fabric.h>
#include <rdma/providers/fi_prov.h>
#include <weft/plugin.hpp>

#include <new>
#include <string>

#include "api/libfabric/entry/plugin.hpp"
#include "api/libfabric/entry/provider_of.hpp"
#include "api/libfabric/entry/unload.inc"
#include "api/libfabric/text/log.hpp"
#include "link/kit/tabled.hpp"
#include "providers/packets.hpp"

namespace {

using weft::providers::PacketsProvider;

const weft::fi::Provider* offered = nullptr;

#ifdef WEFT_PROVIDER_NEXT
void log_note() {
  using weft::link::kit::provider_table;
  char text[200];
  if (provider_table.note == nullptr) return;
  const size_t length = std::min(provider_table.note(text, sizeof text), sizeof text);
  weft::fi::log_info(weft::fi::kCore, FI_LOG_CORE, "provider \"%s\": %.*s", provider_table.name,
                     static_cast<int>(length), text);
}
#endif

}  // namespace

namespace weft::fi {

std::span<const Provider* const> providers() {
  return {&offered, offered != nullptr ? size_t{1} : size_t{0}};
}

}  // namespace weft::fi

extern "C" fi_provider* weft_core_v1(const weft::PacketsTable* table) noexcept try {
  if (const std::string fault = weft::link::kit::fault_of_table(*table); !fault.empty()) {
    weft::fi::log_warn(weft::fi::kCore, FI_LOG_CORE, "%s", fault.c_str());
    return nullptr;
  }
  PacketsProvider::use(*table);
  static const weft::fi::Provider provider = weft::fi::describe<PacketsProvider>();
  offered = &provider;
#ifdef WEFT_PROVIDER_NEXT
  log_note();
#endif
  return weft::fi::export_as_plugin(offered, provider.name);
} catch (const std::bad_alloc&) {
  return nullptr;
}
