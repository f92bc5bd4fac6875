// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_getinfo(3) over a list of providers. Must not know which providers there are, nor how it was called
// (drop-in, plugin, old ABI).
#pragma once

#include <rdma/fabric.h>

#include <cstdint>
#include <span>

#include "api/libfabric/discovery/info.hpp"
#include "api/libfabric/discovery/plugin_provider.hpp"
#include "api/libfabric/discovery/provider.hpp"

namespace weft::fi {

// The version of the interface that we are, whichever headers are installed.
inline constexpr uint32_t kApiVersion = FI_VERSION(2, 6);

// A provider "x" of ours is called "weft_x" inside another libfabric, whose own providers have the plain
// names. One of somebody else over our layers has the name that it gave itself.
inline constexpr const char* kPluginPrefix = "weft_";

struct Catalogue {
  std::span<const Provider* const> providers;
  // Loaded by another libfabric: that one filters by provider name and fills prov_name in, and passes private
  // flags.
  bool plugin = false;
  // Plugins that we have loaded ourselves; they answer after our own.
  std::span<const PluginProvider* const> plugins = {};
  // What stands before the names of a plugin's providers outside of it.
  const char* prefix = kPluginPrefix;
};

// fi_getinfo(3). 0 and a list in *info (freed by free_info), or a negative FI_E* value and null: -FI_ENODATA
// nothing matches, and each provider's reason is logged at info (refusals.hpp); -FI_ENOSYS a newer API is
// asked for; -FI_EINVAL; -FI_ENOMEM. `abi` is what the caller was linked with. Any thread.
int get_info(const Catalogue& catalogue, uint32_t version, const char* node, const char* service,
             uint64_t flags, const fi_info* hints, fi_info** info, Abi abi = layout::compiled) noexcept;

}  // namespace weft::fi
