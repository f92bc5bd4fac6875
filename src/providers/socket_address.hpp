// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Addresses of providers over IP: FI_SOCKADDR_IN, FI_SOCKADDR_IN6 and the text form FI_ADDR_STR. Must not know links.
#pragma once

#include <rdma/fabric.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "os/socket_address.hpp"
#include "providers/interface_domains.hpp"

namespace weft::providers {

// A provider over IP has these three formats; it derives from this to have their functions.
struct SocketAddresses {
  static constexpr std::array<uint32_t, 3> formats = {FI_SOCKADDR_IN, FI_SOCKADDR_IN6, FI_ADDR_STR};

  static constexpr size_t addrlen(uint32_t format) noexcept {
    return format == FI_SOCKADDR_IN    ? sizeof(sockaddr_in)
           : format == FI_SOCKADDR_IN6 ? sizeof(sockaddr_in6)
           : format == FI_ADDR_STR     ? os::SocketAddress::text_bytes
                                       : 0;
  }
  // Whether this machine has what the format needs.
  static bool available(uint32_t format) noexcept;
  // node: a host name, a number, or a text address; service: a port or its name. A missing node is this machine: every address of it with
  // `source`, the loopback address without.
  static Result<std::vector<std::byte>> resolve(uint32_t format, const char* node, const char* service,
                                                bool source);
  // The wildcard address and port; IPv4 in the text form.
  static std::vector<std::byte> unnamed(uint32_t format);
  static bool normalise(uint32_t format, std::byte* bytes) noexcept;
  static std::string to_string(uint32_t format, const void* bytes);

  // `bytes` holds addrlen() bytes; nothing: they are no address of the format.
  static std::optional<os::SocketAddress> parse(uint32_t format, const void* bytes) noexcept;
  static std::vector<std::byte> form(uint32_t format, const os::SocketAddress& address);
  // place.hpp; a provider that offers a domain for each interface calls it with the name of its setting.
  static std::vector<InterfaceDomain> domains_with_setting(uint32_t format, const char* setting,
                                                           std::span<const std::byte> source,
                                                           std::span<const std::byte> destination);
};

}  // namespace weft::providers
