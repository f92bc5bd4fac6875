// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A provider that was loaded from a plugin file (fi_provider(3)): what fi_getinfo and fi_fabric call. Must not know how it was loaded.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>

#include "api/libfabric/discovery/info.hpp"
#include "base/result.hpp"

namespace weft::fi {

class PluginProvider {
 public:
  virtual const char* name() const noexcept = 0;
  virtual uint32_t version() const noexcept = 0;      // of the provider, as FI_VERSION makes it
  virtual uint32_t api_version() const noexcept = 0;  // the latest that it answers
  // fi_getinfo(3) of the plugin with its name filled in, or why there is no answer. Names have been compared already.
  virtual Result<InfoPtr> ask(uint32_t api_version, const char* node, const char* service, uint64_t flags,
                              const fi_info* hints) const = 0;
  // fi_fabric(3) of the plugin. 0 or -FI_E*.
  virtual int open_fabric(fi_fabric_attr& attr, fid_fabric** fabric, void* context) const = 0;

 protected:
  ~PluginProvider() = default;
};

}  // namespace weft::fi
