// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The address of a composite endpoint: where it is on the network, which host it is on, and its name in shared memory there. Text, so
// that people can read and copy it. Must not know how links use the parts.
//
//   weft://10.1.2.3:40123                  the network address alone
//   weft://10.1.2.3:40123/NEAR             and 28 characters for who shares memory with it
//   weft://[fd00::1]:40123/NEAR
//   weft://~WHERE/NEAR                     an IPv6 address that does not fit in the form above: 24 characters for address and port,
//                                          the scope of a link-local address in bytes 2 to 5 of fe80::/64, big-endian; 0: not stated
//
// NEAR and WHERE are base64url. NEAR holds the host's identity (6 bytes), process (4), descriptor (3) and nonce (8) of the shared memory
// endpoint; numbers are big-endian. An endpoint has one spelling.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "os/socket_address.hpp"
#include "proto/setup.hpp"

namespace weft::link::composite {

// "fi_shm://PID:FD:NONCE" in numbers.
struct LocalName {
  uint64_t host = 0;  // os::sharing_identity(); 0: there is no shared memory endpoint
  uint32_t process = 0;
  uint32_t descriptor = 0;
  uint64_t nonce = 0;
  explicit operator bool() const noexcept { return host != 0; }
  friend bool operator==(const LocalName&, const LocalName&) noexcept = default;
};

struct Address {
  static constexpr size_t text_bytes = 64;  // with the zero at the end

  os::SocketAddress where;
  LocalName local;

  static std::optional<Address> from_text(std::string_view text) noexcept;
  std::string text() const;
};

// What Composite<shm, tcp> asks about addresses.
struct Names {
  static constexpr size_t address_length = Address::text_bytes;
  struct Parts {
    std::array<std::byte, sizeof(sockaddr_in6)> remote{};  // a sockaddr; none: nothing was said
    size_t remote_length = 0;
    std::array<std::byte, 48> local{};  // the shared memory link's own form; none: only by network
    size_t local_length = 0;
    uint64_t host = 0;

    void set_remote(std::span<const std::byte> bytes) noexcept;
    void set_local(std::span<const std::byte> text) noexcept;
    std::span<const std::byte> remote_address() const noexcept {
      return std::span(remote).first(remote_length);
    }
    std::span<const std::byte> local_address() const noexcept { return std::span(local).first(local_length); }
  };
  // False: no address.
  static bool split(std::span<const std::byte> address, Parts& out) noexcept;
  // False: the parts are none of an address.
  static bool join(const Parts& parts, std::array<std::byte, address_length>& out) noexcept;
  static uint64_t host() noexcept;
  // False when FI_WEFT_SHM=0 forbids the way over shared memory.
  static bool local_allowed() noexcept;
  // Tells a network link, before it is opened, which family its address has: the given one's, or that of the way out of this machine.
  template <class Remote>
  static void prepare(Remote& remote, const Parts& parts) noexcept {
    if constexpr (proto::HasAddressFormats<Remote>) remote.set_address_format(format_for(parts));
  }
  static uint32_t format_for(const Parts& parts) noexcept;
};

}  // namespace weft::link::composite
