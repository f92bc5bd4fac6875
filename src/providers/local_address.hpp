// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Addresses of providers that stay on one machine. Must not know links.
#pragma once

#include <rdma/fabric.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace weft::providers {

// Addresses on one machine are text (FI_ADDR_STR), NUL padded to a fixed length:
//   fi_shm://PID:FD:NONCE   chosen by the library
//   fi_shm://               not chosen yet: a source address that fi_getinfo gives unasked
//   fi_ns://NAME            from a service (or a node) that the program names
// A node that is such an address is taken as it is. Other nodes only say that the peer is here and are not part of the name.
Result<std::vector<std::byte>> resolve_local(const char* node, const char* service, bool source,
                                             size_t address_bytes);
std::vector<std::byte> unnamed_local(size_t address_bytes);
std::string local_to_string(const void* bytes, size_t address_bytes);

// The functions about addresses of a provider on one machine over `Link`.
template <class Link>
struct LocalAddresses {
  static constexpr std::array<uint32_t, 1> formats = {FI_ADDR_STR};

  static constexpr size_t addrlen(uint32_t format) noexcept {
    return format == FI_ADDR_STR ? Link::address_length : 0;
  }
  static bool available(uint32_t) noexcept { return true; }
  static Result<std::vector<std::byte>> resolve(uint32_t, const char* node, const char* service,
                                                bool source) {
    return resolve_local(node, service, source, Link::address_length);
  }
  static std::vector<std::byte> unnamed(uint32_t) { return unnamed_local(Link::address_length); }
  static bool normalise(uint32_t, std::byte* bytes) { return !to_string(FI_ADDR_STR, bytes).empty(); }
  static std::string to_string(uint32_t, const void* bytes) {
    return local_to_string(bytes, Link::address_length);
  }
};

}  // namespace weft::providers
