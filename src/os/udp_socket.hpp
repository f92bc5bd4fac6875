// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// UDP sockets: many packets in one call (UDP_SEGMENT, UDP_GRO, recvmmsg(2)), path MTU, multicast. Must not know what is in the packets.
//
// Addresses are sockaddr_in (16 bytes) or sockaddr_in6 (28 bytes) as bytes, in the form that the kernel gives: unused fields are zero.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.hpp"
#include "os/fd.hpp"
#include "os/ip_marks.hpp"
#include "os/socket_address.hpp"

namespace weft::os {

struct UdpOptions {
  bool fragments = false;  // packets above the path MTU travel in IP fragments; otherwise they are refused
  bool optional_checksum =
      false;  // over IPv6 a checksum of zero is taken for none (RFC 6936); otherwise it is wrong
  size_t buffer_bytes = 0;  // of the kernel, each way; as much of it as we are allowed to have
};

// A non-blocking socket bound to `address`, whose port and host may be zero. An IPv6 socket takes IPv4-mapped addresses, too.
Result<Fd> open_udp(std::span<const std::byte> address, const UdpOptions& options);
// The address that a peer can send to: for a socket on all interfaces, that of the way out of the machine.
Result<SocketAddress> udp_address(const Fd& socket);
// What the kernel gave: bytes of packets, with its bookkeeping, that it keeps until they are read.
size_t udp_receive_buffer(const Fd& socket) noexcept;

// The largest datagram that reaches `address` in one piece, as far as the kernel knows. 0: no route.
size_t udp_path_bytes(std::span<const std::byte> address) noexcept;
// The largest datagram that leaves every interface that is up in one piece; the loopback counts only when it is alone.
size_t udp_interface_bytes(int family) noexcept;

// From now on UdpReceiver::Batch has all `marks` of what arrives (IP_RECVTTL of ip(7), IPV6_RECVHOPLIMIT of ipv6(7)), and IPv6
// packets that name no flow label have none, where the kernel would draw one.
void show_marks(const Fd& socket) noexcept;
// Of what the socket sends from now on, where a packet names no others; a flow label is not there. IPv6 packets that name no
// flow label have none, where the kernel would draw one.
void mark_packets(const Fd& socket, const IpMarks& marks) noexcept;

// Sends one datagram, or, when segment_bytes is not 0, as many as parts have bytes for, the last one shorter. 0 or a negative errno:
// -EAGAIN, -EMSGSIZE (the path MTU), -EINVAL or -EIO (segmentation is not possible here), -ENETUNREACH ...
// `marks`: of these packets, with the ECN bits in its traffic class; null: those of the socket.
int send_udp(const Fd& socket, std::span<const std::byte> address, const iovec* parts, size_t count,
             size_t segment_bytes, const IpMarks* marks = nullptr) noexcept;

// From now on UdpReceiver::Batch has the traffic class of what arrives (IP_RECVTOS of ip(7), IPV6_RECVTCLASS of ipv6(7)).
void show_traffic_class(const Fd& socket) noexcept;

// From now on the socket keeps what it hears of destinations that packets do not reach (IP_RECVERR of ip(7)).
void watch_udp_refusals(const Fd& socket) noexcept;
// The oldest of these, path MTUs excepted: a destination and why, ECONNREFUSED for "port unreachable". False: none.
bool take_udp_refusal(const Fd& socket, SocketAddress& destination, int& error) noexcept;

// Takes what the socket has, without waiting.
class UdpReceiver {
 public:
  static constexpr size_t batches_max = 32;

  // What one receive gave: one datagram, or several of one sender, each `segment` bytes long, the last one may be shorter.
  struct Batch {
    std::span<const std::byte> source;
    std::span<const std::byte> bytes;
    size_t segment;  // 0: one datagram
    IpMarks marks;   // of all of them, with the ECN bits; those of no option where nobody asked for them
  };

  static Result<UdpReceiver> create();
  // How many batches there are now; 0 when nothing is there. They stay valid until the next call.
  size_t receive(const Fd& socket) noexcept;
  Batch batch(size_t index) const noexcept;

 private:
  struct State;
  struct Deleter {
    void operator()(State* state) const noexcept;
  };
  UdpReceiver() = default;
  std::unique_ptr<State, Deleter> state_;
};

// Multicast: a socket that receives what is sent to the group's address and port, beside `member`, on whose interface it listens (the system
// chooses one for a member on all interfaces; the scope of an IPv6 group names one). Other processes may have the group, too.
Result<Fd> open_group(const Fd& member, std::span<const std::byte> group);
// Sends what goes to groups out of the interface that the socket is bound to, if it is bound to one.
void route_groups(const Fd& member) noexcept;
// Whether this is a multicast address with a port.
bool is_group(std::span<const std::byte> address) noexcept;

}  // namespace weft::os
