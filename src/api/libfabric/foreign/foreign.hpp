// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Providers of others: plugins that FI_PROVIDER_PATH names (fi_provider(3)), as a stock libfabric takes them. Only the drop-in has them. Must
// not know our providers or links.
#pragma once

#include <rdma/fabric.h>
#include <rdma/providers/fi_prov.h>

#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/libfabric/discovery/info.hpp"
#include "api/libfabric/discovery/plugin_provider.hpp"
#include "api/libfabric/discovery/provider.hpp"
#include "api/libfabric/foreign/foreign_layer.hpp"
#include "base/result.hpp"

namespace weft::fi {

// One plugin that was loaded. Never unloaded: its code must be there as long as the program's objects are.
struct Foreign final : PluginProvider {
  Foreign(fi_provider* structure, std::string file, bool chosen)
      : plugin(structure), path(std::move(file)), preferred(chosen) {}

  fi_provider* plugin;  // the plugin's own structure
  std::string path;
  bool preferred;  // named by its file: not replaced

  const char* name() const noexcept override { return plugin->name; }
  uint32_t version() const noexcept override { return plugin->version; }
  uint32_t api_version() const noexcept override { return plugin->fi_version; }
  Result<InfoPtr> ask(uint32_t api_version, const char* node, const char* service, uint64_t flags,
                      const fi_info* hints) const override;
  int open_fabric(fi_fabric_attr& attr, fid_fabric** fabric, void* context) const override;
};

// What the drop-in has to offer: our providers less those that a plugin of a higher version replaces, and the plugins.
struct Loaded {
  std::deque<Foreign> plugins;
  std::vector<const Provider*> providers;  // layers over plugins come last
  std::vector<LayeredPtr> layers;
  std::vector<const PluginProvider*> plugin_list;  // of plugins, for a Catalogue
};

// Loads the plugins at the first call; reasons of those that could not be used are logged at warn. Any thread; others wait meanwhile. A
// plugin that calls us while it is being loaded sees our providers alone.
const Loaded& loaded();

// fi_cleanup of every plugin, once; what a libfabric does when it goes away.
void clean_up_plugins() noexcept;

// For tests: loads from these directories, not from FI_PROVIDER_PATH.
void load_plugins(const char* directories, std::span<const Provider* const> ours, Loaded& out);

}  // namespace weft::fi
