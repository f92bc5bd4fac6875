// The one exported symbol of a plugin for another libfabric: fi_prov_ini (fi_provider(3)). Offers the provider
// that the build names, under a name that no built-in has. Must not know anything but the face and the list of
// providers.
#include <rdma/fabric.h>
#include <rdma/providers/fi_prov.h>

#include <cstring>
#include <string>

#include "faces/libfabric/fabric.hpp"
#include "faces/libfabric/getinfo.hpp"
#include "faces/libfabric/log.hpp"

namespace {

using weft::fi::Provider;

// One plugin has one name, so it offers one provider; the others work only within a process or come as
// plugins of their own.
#ifndef WEFT_PLUGIN_PROVIDER
#define WEFT_PLUGIN_PROVIDER "shm"
#endif
constexpr const char* kOffered = WEFT_PLUGIN_PROVIDER;

const Provider* const* offered() {
  for (const Provider* const& provider : weft::fi::providers()) {
    if (strcmp(provider->name, kOffered) == 0) return &provider;
  }
  return nullptr;
}

weft::fi::Catalogue catalogue() {
  const Provider* const* provider = offered();
  return {{provider, provider != nullptr ? size_t{1} : size_t{0}}, true};
}

int plugin_getinfo(uint32_t version, const char* node, const char* service, uint64_t flags,
                   const fi_info* hints, fi_info** info) {
  return weft::fi::get_info(catalogue(), version, node, service, flags, hints, info);
}

int plugin_fabric(fi_fabric_attr* attr, fid_fabric** fabric, void* context) {
  return weft::fi::find_and_open_fabric(catalogue(), attr, fabric, context);
}

// Nothing of ours outlives the objects of the program.
void plugin_cleanup() {}

}  // namespace

extern "C" __attribute__((visibility("default"), used)) fi_provider* fi_prov_ini() {
  // Writable: the libfabric that loads it keeps its own state in `context`.
  static fi_provider provider;
  static std::string name;
  const Provider* const* ours = offered();
  if (ours == nullptr) return nullptr;
  weft::fi::log_name_prefix(weft::fi::kPluginPrefix);
  name = std::string(weft::fi::kPluginPrefix) + (*ours)->name;
  provider.version = (*ours)->version;
  provider.fi_version = weft::fi::kApiVersion;
  provider.name = name.c_str();
  provider.getinfo = plugin_getinfo;
  provider.fabric = plugin_fabric;
  provider.cleanup = plugin_cleanup;
  return &provider;
}
