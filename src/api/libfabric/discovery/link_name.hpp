// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Addresses of the C ABI as links take them. Must not know which links exist.
#pragma once

#include <rdma/fabric.h>

#include <cstring>
#include <string>
#include <vector>

#include "api/libfabric/discovery/provider.hpp"

namespace weft::fi {

// An address as links take it: a text without its zeros, or all bytes.
inline std::string link_name(uint32_t format, const void* bytes, size_t length) {
  const auto* first = static_cast<const char*>(bytes);
  if (first == nullptr) return {};
  return {first, format == FI_ADDR_STR ? ::strnlen(first, length) : length};
}

// The same for the local side: empty where the library chooses the address (Provider::unnamed).
inline std::string source_name(const Provider& provider, uint32_t format, const void* bytes, size_t length) {
  std::string name = link_name(format, bytes, length);
  const std::vector<std::byte> none = provider.unnamed(format);
  if (name == link_name(format, none.data(), none.size())) name.clear();
  return name;
}

}  // namespace weft::fi
