// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A UDP socket that may be bound to all addresses and still answers from the one that it was asked at (IP_PKTINFO of ip(7), IPV6_RECVPKTINFO of
// ipv6(7)). Packets do not fragment. Must not know what is in them. One thread at a time.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.hpp"
#include "os/fd.hpp"
#include "os/socket_address.hpp"

namespace weft::os {

class AnsweringSocket {
 public:
  // Bound to `address`; port 0: the system chooses. `one_family`: an IPv6 socket does not take IPv4 (IPV6_V6ONLY).
  static Result<AnsweringSocket> open(const SocketAddress& address, bool one_family);

  const SocketAddress& address() const noexcept { return address_; }
  int fd() const noexcept { return fd_.get(); }

  // IPv4 addresses are plain ones, also on an IPv6 socket. 0 or a negative errno.
  int send(const SocketAddress& source, const SocketAddress& destination,
           std::span<const std::byte> packet) noexcept;
  // The bytes of the next packet in `room`, at most; 0: none is there. Longer packets are cut off.
  size_t receive(std::span<std::byte> room, SocketAddress& source, SocketAddress& destination) noexcept;
  // The oldest of the destinations that the system says cannot be reached; false: none.
  bool take_refusal(SocketAddress& destination) noexcept;

 private:
  AnsweringSocket(Fd fd, const SocketAddress& address) : fd_(std::move(fd)), address_(address) {}
  Fd fd_;
  SocketAddress address_;
};

}  // namespace weft::os
