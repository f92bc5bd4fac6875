// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The IP and UDP headers of a datagram as its sender made them, for the ICRC, where the link shows none: those of an
// unconnected UDP socket that is bound to an address and does not fragment (identification 0, DF set). Must not know
// sockets.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "link/roce/gid.hpp"
#include "os/ip_marks.hpp"
#include "os/socket_address.hpp"
#include "wire/bytes.hpp"
#include "wire/ip.hpp"
#include "wire/roce/opcode.hpp"

namespace weft::link::roce {

struct Headers {
  std::array<std::byte, wire::Ip6::bytes + wire::Udp::bytes> bytes;
  size_t count = 0;

  std::span<const std::byte> span() const noexcept { return {bytes.data(), count}; }
  bool is_ip4() const noexcept { return count == wire::Ip4::bytes + wire::Udp::bytes; }
};

// Both of one family. `payload` is that of UDP, with the ICRC. The identification is that of IPv4.
// `marks`: the ICRC does not cover them.
Headers headers_between(const os::SocketAddress& source, const os::SocketAddress& destination, size_t payload,
                        uint16_t identification = 0, const os::IpMarks& marks = {}) noexcept;

// The transport of the packet that begins so, by its opcode; nothing where there is no first byte.
inline std::optional<wire::roce::Transport> transport_of(const iovec& head) noexcept {
  if (head.iov_len == 0) return std::nullopt;
  return wire::roce::transport_of(wire::load_byte(static_cast<const std::byte*>(head.iov_base)));
}
// What is lost of RC or XRC is repeated, of UC or UD it is not.
inline bool is_of_reliable(const iovec& head) noexcept {
  using enum wire::roce::Transport;
  const auto transport = transport_of(head);
  return transport == ReliableConnection || transport == Extended;
}
inline bool is_flush(const iovec& head) noexcept {
  return wire::roce::operation_of(wire::load_byte(static_cast<const std::byte*>(head.iov_base))) ==
         wire::roce::Operation::Flush;
}
inline bool is_of_unreliable(const iovec& head) noexcept {
  using enum wire::roce::Transport;
  const auto transport = transport_of(head);
  return transport == Unreliable || transport == Datagram;
}

// What a UD queue pair shows of a packet between two GIDs of ours: only they tell the ports. `payload` as above. Without the
// ECN bits, which are no part of what a sender asks for.
std::array<std::byte, proto::roce::grh_bytes> grh_between(const Gid& source, const Gid& destination,
                                                          size_t payload, const os::IpMarks& marks) noexcept;

// The marks of packets to there. A hop limit of 0 would not leave the host: it is none, and the default one is taken.
inline os::IpMarks marks_of(const proto::roce::AddressVector& to) noexcept {
  os::IpMarks marks;
  marks.traffic_class = static_cast<uint8_t>(to.traffic_class & ~3);
  if (to.hop_limit != 0) marks.hops = to.hop_limit;
  marks.flow_label = to.flow_label & 0xfffff;
  return marks;
}

}  // namespace weft::link::roce
