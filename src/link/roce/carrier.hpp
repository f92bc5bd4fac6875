// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Carrier: the packet link below a port of a device, which settings choose when the device is opened: a UDP socket, or
// a host of its own on an Ethernet, by a packet socket or by a network card of this process. One more way is one more
// alternative of `Backends`. Must not know RoCEv2.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <string>
#include <variant>

#include "base/result.hpp"
#include "link/ethernet/packet_socket.hpp"
#include "link/ethernet/packets.hpp"
#include "link/nic/frames.hpp"
#include "link/udp/packets.hpp"
#include "os/ip_marks.hpp"
#include "proto/packet/abilities.hpp"
#include "proto/packet/in_place.hpp"

namespace weft::link::roce {

class Carrier {
 public:
  using Udp = udp::Packets;
  using RawSocket = ethernet::EthernetPackets<ethernet::SocketFrames>;
  using Card = nic::Packets;  // of a network card that this process drives
  using Backends = std::variant<Udp, RawSocket, Card>;

 private:
  // UDP, which is everybody's, is one comparison away.
  template <class Fn>
  auto visit(Fn&& fn) {
    if (auto* const udp = std::get_if<Udp>(&backend_)) [[likely]]
      return fn(*udp);
    return std::visit(fn, backend_);
  }

 public:
  static constexpr size_t address_length = sizeof(sockaddr_in6);
  static constexpr size_t segments_max = Udp::segments_max;
  static constexpr size_t segmented_bytes_max = Udp::segmented_bytes_max;
  static constexpr bool checks_packets = true;
  static constexpr bool has_ip_addresses = true;
  static_assert(Udp::segments_max <= RawSocket::segments_max && Udp::segments_max <= Card::segments_max);

  // --- before everything else --- UDP unless another backend is chosen; the setters of that backend are its own.
  template <class Backend>
  Backend& choose() {
    return backend_.emplace<Backend>();
  }

  void set_optional_checksum(bool optional) noexcept {
    visit([&](auto& backend) { backend.set_optional_checksum(optional); });
  }
  Result<void> open(std::span<const std::byte> address) {
    return visit([&](auto& backend) { return backend.open(address); });
  }
  void close() noexcept {
    visit([](auto& backend) { backend.close(); });
  }
  std::span<const std::byte> address() const noexcept {
    return std::visit([](const auto& backend) { return backend.address(); }, backend_);
  }
  size_t packet_bytes_max(std::span<const std::byte> to) noexcept {
    return visit([&](auto& backend) { return backend.packet_bytes_max(to); });
  }
  size_t receive_buffer_bytes() const noexcept {
    return std::visit([](const auto& backend) { return backend.receive_buffer_bytes(); }, backend_);
  }

  bool send(std::span<const std::byte> to, const iovec* parts, size_t count) noexcept {
    return visit([&](auto& backend) { return backend.send(to, parts, count); });
  }
  bool send_segmented(std::span<const std::byte> to, const iovec* parts, size_t count,
                      size_t segment_bytes) noexcept {
    return visit([&](auto& backend) { return backend.send_segmented(to, parts, count, segment_bytes); });
  }
  size_t lost_segments() const noexcept {
    const auto* const raw = std::get_if<RawSocket>(&backend_);
    return raw == nullptr ? 0 : raw->lost_segments();
  }
  template <class Handler>
  int poll(Handler& handler) noexcept {
    return visit([&](auto& backend) { return backend.poll(handler); });
  }

  int join(std::span<const std::byte> group, bool receives) {
    return visit([&](auto& backend) { return backend.join(group, receives); });
  }
  void leave(std::span<const std::byte> group) noexcept {
    visit([&](auto& backend) { backend.leave(group); });
  }

  // After open().
  void set_ecn(proto::Ecn ecn) noexcept {
    visit([&](auto& backend) { backend.set_ecn(ecn); });
  }

  // Marks of single packets (os/ip_marks.hpp): of what is sent from now on, but for the ECN bits; and after show_marks(), where
  // no headers are shown, of what the handler is shown.
  void show_marks() noexcept {
    if (auto* const udp = std::get_if<Udp>(&backend_)) udp->show_marks();
  }
  void set_marks(const os::IpMarks& marks) noexcept {
    visit([&](auto& backend) { backend.set_marks(marks); });
  }
  os::IpMarks received_marks() const noexcept {
    const auto* const udp = std::get_if<Udp>(&backend_);
    return udp == nullptr ? os::IpMarks() : udp->received_marks();
  }

  // A host of our own writes the headers of all segments itself.
  bool numbers_segments() const noexcept { return std::holds_alternative<RawSocket>(backend_); }
  bool has_nothing() const noexcept {
    const auto* const raw = std::get_if<RawSocket>(&backend_);
    return raw != nullptr && raw->has_nothing();
  }
  // The packet socket, where that is the way.
  os::PacketSocket* packet_socket() noexcept {
    auto* const raw = std::get_if<RawSocket>(&backend_);
    return raw == nullptr ? nullptr : &raw->frames().socket();
  }

  void set_parts_stay(bool stay) noexcept {
    if (auto* const card = std::get_if<Card>(&backend_)) card->set_parts_stay(stay);
  }

  int wait_fd() noexcept {
    return visit([](auto& backend) { return backend.wait_fd(); });
  }
  bool arm() noexcept {
    return visit([](auto& backend) { return backend.arm(); });
  }
  void disarm() noexcept {
    visit([](auto& backend) { backend.disarm(); });
  }

 private:
  Backends backend_;
};

static_assert(proto::PacketLink<Carrier> && proto::HasSegmentationOffload<Carrier> &&
              proto::HasSleep<Carrier> && proto::HasOptionalChecksum<Carrier> &&
              proto::HasReceiveBuffer<Carrier> && proto::HasMulticast<Carrier> &&
              proto::HasCongestionMarks<Carrier> && proto::HasCongestionMarks<Carrier::Udp> &&
              proto::HasCongestionMarks<Carrier::RawSocket> && proto::HasCongestionMarks<Carrier::Card> &&
              proto::HasPartsThatStay<Carrier> && proto::HasGlance<Carrier> &&
              proto::HasNumberedSegments<Carrier> && proto::HasLostSegments<Carrier>);

}  // namespace weft::link::roce
