// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Providers of others: plugins that FI_PROVIDER_PATH names (fi_provider(3)), as a stock libfabric takes them. Only the drop-in has them. Must
// not know our providers or links.
#pragma once

#include <rdma/fabric.h>
#include <rdma/providers/fi_prov.h>

#include <deque>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "faces/libfabric/discovery/getinfo.hpp"
#include "faces/libfabric/discovery/info.hpp"
#include "faces/libfabric/discovery/provider.hpp"
#include "faces/libfabric/foreign/foreign_layer.hpp"

namespace weft::fi {

// One plugin that was loaded. Never unloaded: its code must be there as long as the program's objects are.
struct Foreign {
  fi_provider* plugin;  // the plugin's own structure
  std::string path;

  const char* name() const noexcept { return plugin->name; }
};

// What the drop-in has to offer: our providers less those that a plugin of a higher version replaces, and the plugins.
struct Loaded {
  std::deque<Foreign> plugins;
  std::vector<const Provider*> providers;  // layers over plugins come last
  std::vector<LayeredPtr> layers;
};

// Loads the plugins at the first call; reasons of those that could not be used are logged at warn. Any thread; others wait meanwhile. A
// plugin that calls us while it is being loaded sees our providers alone.
const Loaded& loaded();

// fi_cleanup of every plugin, once; what a libfabric does when it goes away.
void clean_up_plugins() noexcept;

// The plugin's answer, with its name filled in; or why there is none. Names have been compared already.
Result<InfoPtr> ask_plugin(const Foreign& foreign, uint32_t version, const char* node, const char* service,
                           uint64_t flags, const fi_info* hints);

// fi_fabric(3) of the plugin.
int open_plugin_fabric(const Foreign& foreign, fi_fabric_attr& attr, fid_fabric** fabric, void* context);

// For tests: loads from these directories, not from FI_PROVIDER_PATH.
void load_plugins(const char* directories, std::span<const Provider* const> ours, Loaded& out);

}  // namespace weft::fi
