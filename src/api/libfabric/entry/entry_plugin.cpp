// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The one exported symbol of a plugin for another libfabric: fi_prov_ini (fi_provider(3)). Offers the provider WEFT_PLUGIN_PROVIDER, which is all that
// the library holds, under a name that no built-in has. Must not know another.
#include <rdma/fabric.h>
#include <rdma/providers/fi_prov.h>

#include <array>
#include <span>
#include <string>

#include "api/libfabric/entry/fabric.hpp"
#include "api/libfabric/entry/plugin.hpp"
#include "api/libfabric/entry/providers.hpp"
#include "api/libfabric/entry/unload.inc"
#include "api/libfabric/text/log.hpp"

namespace weft::fi {

// One plugin has one name, so it has one provider.
std::span<const Provider* const> providers() {
  static constexpr std::array<const Provider*, 1> all = {&provider_of<providers::WEFT_PLUGIN_PROVIDER>};
  return all;
}

}  // namespace weft::fi

extern "C" __attribute__((visibility("default"), used)) fi_provider* fi_prov_ini() {
  static std::string name;
  const weft::fi::Provider* const& ours = weft::fi::providers().front();
  weft::fi::log_name_prefix(weft::fi::kPluginPrefix);
  name = std::string(weft::fi::kPluginPrefix) + ours->name;
  return weft::fi::export_as_plugin(ours, name.c_str());
}
