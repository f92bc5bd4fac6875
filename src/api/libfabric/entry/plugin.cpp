// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a libfabric calls in a plugin. Must not know which provider it is.
#include "api/libfabric/entry/plugin.hpp"

#include "api/libfabric/discovery/getinfo.hpp"
#include "api/libfabric/entry/fabric.hpp"

namespace weft::fi {
namespace {

const Provider* const* given = nullptr;

Catalogue catalogue() { return {{given, size_t{1}}, true, {}, ""}; }

int plugin_getinfo(uint32_t version, const char* node, const char* service, uint64_t flags,
                   const fi_info* hints, fi_info** info) {
  // A libfabric hands on what it has copied into its own structures, those of the version that is asked at least.
  return get_info(catalogue(), version, node, service, flags, hints, info, Abi::v1_9);
}

int plugin_fabric(fi_fabric_attr* attr, fid_fabric** fabric, void* context) {
  return find_and_open_fabric(catalogue(), attr, fabric, context);
}

// Nothing of ours outlives the objects of the program.
void plugin_cleanup() {}

}  // namespace

fi_provider* export_as_plugin(const Provider* const& provider, const char* name) noexcept {
  // Writable: the libfabric that loads it keeps its own state in `context`.
  static fi_provider made;
  given = &provider;
  made.version = provider->version;
  made.fi_version = kApiVersion;
  made.name = name;
  made.getinfo = plugin_getinfo;
  made.fabric = plugin_fabric;
  made.cleanup = plugin_cleanup;
  return &made;
}

}  // namespace weft::fi
