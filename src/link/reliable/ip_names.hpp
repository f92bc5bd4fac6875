// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How addresses of a program and those of a packet link over IP become each other: the same bytes, or a text. Must not know packets.
#pragma once

#include <rdma/fabric.h>

#include <array>
#include <cstring>
#include <optional>
#include <string>

#include "os/link_local.hpp"
#include "os/socket_address.hpp"

namespace weft::link::reliable {

class IpNames {
 public:
  static constexpr size_t address_length = os::SocketAddress::text_bytes;

  struct Name {
    std::array<std::byte, address_length> bytes{};
    size_t length = 0;
    std::span<const std::byte> span() const noexcept { return {bytes.data(), length}; }
  };

  static std::string text_of(const os::SocketAddress& address) { return address.text(); }
  // As the packet link has it.
  static std::optional<os::SocketAddress> from(std::span<const std::byte> bytes) noexcept {
    return os::SocketAddress::from(bytes.data(), bytes.size());
  }
  // FI_SOCKADDR_IN, FI_SOCKADDR_IN6 or FI_ADDR_STR.
  void set_format(uint32_t format) noexcept { format_ = format; }
  // What an endpoint without an address is opened at.
  os::SocketAddress anywhere() const noexcept {
    const int family = format_ == FI_SOCKADDR_IN6 ? AF_INET6 : AF_INET;
    return os::SocketAddress::any(family);
  }
  std::optional<os::SocketAddress> read(std::span<const std::byte> name) const noexcept {
    if (format_ != FI_ADDR_STR) return os::SocketAddress::from(name.data(), name.size());
    const auto* text = reinterpret_cast<const char*>(name.data());
    return os::SocketAddress::from_text({text, ::strnlen(text, name.size())});
  }
  static bool is_destination(const os::SocketAddress& address) noexcept {
    return !address.is_any() && address.port() != 0;
  }
  // A link-local address is meant on the interface that the packet came by (HasScopedAddresses).
  static std::optional<os::SocketAddress> in_scope_of(std::span<const std::byte> address,
                                                      std::span<const std::byte> source) noexcept {
    auto named = from(address);
    const auto by = from(source);
    if (!named || !by || !named->is_link_local()) return {};
    named->set_scope(by->scope());
    return named;
  }
  // The same, for an endpoint at `own`: on its interface, if that is a link-local address too, since its socket reaches no other; else os::on_this_host.
  static std::optional<os::SocketAddress> on_link_of(std::span<const std::byte> address,
                                                     std::span<const std::byte> own) noexcept {
    const auto here = from(own);
    if (here && here->is_link_local()) return in_scope_of(address, own);
    const auto named = from(address);
    if (!named || !named->is_link_local()) return {};
    return os::on_this_host(*named, {});
  }
  // As the program's address vector has it.
  Name write(const os::SocketAddress& address) const {
    Name name;
    if (format_ == FI_ADDR_STR) {
      const std::string text = address.text();
      name.length = address_length;
      std::memcpy(name.bytes.data(), text.data(), std::min(text.size(), address_length - 1));
    } else {
      name.length = address.size();
      std::memcpy(name.bytes.data(), address.bytes().data(), name.length);
    }
    return name;
  }

 private:
  uint32_t format_ = FI_SOCKADDR_IN;
};

}  // namespace weft::link::reliable
