// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An address of IP: a sockaddr_in or sockaddr_in6 in its one form (same place, same bytes), and as text. Must not know protocols or names of
// hosts.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace weft::os {

class SocketAddress {
 public:
  // The longest text: "fi_sockaddr://[39 characters]:65535" and its zero.
  static constexpr size_t text_bytes = 64;

  SocketAddress() noexcept = default;  // no address, family AF_UNSPEC
  // The family's wildcard address with a port.
  static SocketAddress any(int family, uint16_t port = 0) noexcept;
  static SocketAddress loopback(int family, uint16_t port = 0) noexcept;
  // From a sockaddr of at least its family's length. Nothing when it is neither IPv4 nor IPv6, or too short.
  static std::optional<SocketAddress> from(const void* bytes, size_t length) noexcept;
  // From "1.2.3.4:5", "[::1]:5", "[fe80::1%2]:5", with or without "fi_sockaddr://", "fi_sockaddr_in://" or "fi_sockaddr_in6://" before it.
  static std::optional<SocketAddress> from_text(std::string_view text) noexcept;

  // "fi_sockaddr_in://1.2.3.4:5", "fi_sockaddr_in6://[::1]:5"; "fi_sockaddr://[...]:5" where the longer form has no room in text_bytes.
  std::string text() const;

  int family() const noexcept { return storage_.ss_family; }
  explicit operator bool() const noexcept { return family() != AF_UNSPEC; }
  uint16_t port() const noexcept;
  void set_port(uint16_t port) noexcept;
  // The interface of a link-local address; 0 for all others.
  uint32_t scope() const noexcept { return family() == AF_INET6 ? in6().sin6_scope_id : 0; }
  bool is_link_local() const noexcept;
  void set_scope(uint32_t scope) noexcept;  // of a link-local one
  bool is_any() const noexcept;
  bool is_loopback() const noexcept;
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const noexcept { return length_of(family()); }
  std::span<const std::byte> bytes() const noexcept {
    return {reinterpret_cast<const std::byte*>(&storage_), size()};
  }
  static socklen_t length_of(int family) noexcept {
    return family == AF_INET    ? socklen_t{sizeof(sockaddr_in)}
           : family == AF_INET6 ? socklen_t{sizeof(sockaddr_in6)}
                                : socklen_t{0};
  }
  friend bool operator==(const SocketAddress& a, const SocketAddress& b) noexcept;

 private:
  sockaddr_in& in() noexcept { return reinterpret_cast<sockaddr_in&>(storage_); }
  const sockaddr_in& in() const noexcept { return reinterpret_cast<const sockaddr_in&>(storage_); }
  sockaddr_in6& in6() noexcept { return reinterpret_cast<sockaddr_in6&>(storage_); }
  const sockaddr_in6& in6() const noexcept { return reinterpret_cast<const sockaddr_in6&>(storage_); }

  sockaddr_storage storage_{};
};

// Whether both are of one host, whatever the port, and the scope, which its own machine alone understands.
bool same_host(SocketAddress a, SocketAddress b) noexcept;
// For addresses of which both scopes are of this machine: a link-local address is another host's on another link (RFC 4007).
bool same_neighbour(const SocketAddress& a, const SocketAddress& b) noexcept;

struct SocketAddressHash {
  size_t operator()(const SocketAddress& address) const noexcept {
    const auto bytes = address.bytes();
    return std::hash<std::string_view>{}({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
};

// Where a socket is bound, or whom it is connected to; no address when the kernel does not say.
SocketAddress local_address(int socket) noexcept;
SocketAddress remote_address(int socket) noexcept;

// The address (port 0) from which this machine would reach `destination`; without one, that of the way out of the machine, else of any
// interface that is up, else loopback. What others can reach us at.
SocketAddress source_toward(const SocketAddress& destination) noexcept;
SocketAddress outgoing_address(int family) noexcept;

// Whether sockets of this family can be made here.
bool has_family(int family) noexcept;

}  // namespace weft::os
