// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An address of IP in the format that a domain has (FI_SOCKADDR_IN, FI_SOCKADDR_IN6, FI_ADDR_STR). Must not know sockets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "os/socket_address.hpp"

namespace weft::link::tcp {

class FormedAddress {
 public:
  FormedAddress() = default;
  FormedAddress(uint32_t format, const os::SocketAddress& address);

  std::span<const std::byte> bytes() const noexcept { return std::span(bytes_).first(count_); }
  static std::optional<os::SocketAddress> parse(uint32_t format, std::string_view name) noexcept;
  static int family(uint32_t format) noexcept;

 private:
  std::array<std::byte, os::SocketAddress::text_bytes> bytes_{};
  size_t count_ = 0;
};

}  // namespace weft::link::tcp
