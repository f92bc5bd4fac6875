// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The one exported symbol of a plugin for another libfabric: fi_prov_ini (fi_provider(3)). Offers the provider
// that the build names, under a name that no built-in has. Must not know anything but the face and the list of
// providers.
#include <rdma/fabric.h>
#include <rdma/providers/fi_prov.h>

#include <cstring>
#include <string>

#include "faces/libfabric/entry/fabric.hpp"
#include "faces/libfabric/entry/plugin.hpp"
#include "faces/libfabric/entry/unload.inc"
#include "faces/libfabric/text/log.hpp"

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

}  // namespace

extern "C" __attribute__((visibility("default"), used)) fi_provider* fi_prov_ini() {
  static std::string name;
  const Provider* const* ours = offered();
  if (ours == nullptr) return nullptr;
  weft::fi::log_name_prefix(weft::fi::kPluginPrefix);
  name = std::string(weft::fi::kPluginPrefix) + (*ours)->name;
  return weft::fi::give_as_plugin(*ours, name.c_str());
}
