// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The PacketLink over one UDP socket: a packet is a datagram, with nothing added, so that any UDP program can be the other side.
// Must not know what is in the packets.
//
// Speed comes from the number of packets in one system call: segmented sends go out by UDP_SEGMENT, packets of one sender come in joined by UDP_GRO and
// are shown one by one where they lie.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "os/origin.hpp"
#include "os/poll_set.hpp"
#include "os/socket_address.hpp"
#include "os/udp_socket.hpp"
#include "proto/packet/abilities.hpp"

namespace weft::link::udp {

class Packets {
 public:
  static constexpr size_t address_length = sizeof(sockaddr_in6);
  static constexpr size_t segments_max = 64;  // the least that kernels with UDP_SEGMENT take
  static constexpr size_t segmented_bytes_max = 65000;
  static constexpr size_t packet_bytes_limit = 65507;  // of IPv4, whose length field counts the heads
  static constexpr bool checks_packets = true;         // UDP has a checksum, and links below have theirs
  static constexpr bool has_ip_addresses = true;
  static constexpr size_t buffer_bytes = size_t{8} << 20;

  Packets() = default;
  Packets(const Packets&) = delete;
  Packets& operator=(const Packets&) = delete;
  ~Packets() { close(); }

  // --- before open() ---
  void set_traffic_class(uint8_t dscp) noexcept { dscp_ = dscp; }
  void set_fragments(bool fragments) noexcept { fragments_ = fragments; }
  void set_optional_checksum(bool optional) noexcept { optional_checksum_ = optional; }

  // `address` is a sockaddr_in or sockaddr_in6; a zero port or host is chosen by the system.
  Result<void> open(std::span<const std::byte> address);
  void close() noexcept;
  // The ECN codepoint of what is sent from now on; what arrives shows its own.
  void set_ecn(proto::Ecn ecn) noexcept;
  // Marks of single packets: what is sent from now on has them, with the ECN bits of set_ecn(). A packet whose marks are not
  // those of the socket has ancillary data; marks that many packets in a row have become the socket's.
  void set_marks(const os::IpMarks& marks) noexcept { marks_ = marks; }
  // After open(): received_marks() has those of the packet that the handler is shown.
  void show_marks() noexcept;
  const os::IpMarks& received_marks() const noexcept { return received_marks_; }
  std::span<const std::byte> address() const noexcept { return address_.bytes(); }
  // What the kernel keeps for us until we poll, its bookkeeping included: who sends more than that unasked loses it.
  size_t receive_buffer_bytes() const noexcept { return receive_buffer_bytes_; }

  size_t packet_bytes_max(std::span<const std::byte> address) noexcept;

  // 0, or a negative errno: -EAGAIN is "no room now", -EMSGSIZE tells that packet_bytes_max() has changed.
  int try_send(std::span<const std::byte> address, const iovec* parts, size_t count) noexcept;
  // A packet that cannot reach its destination is lost, as it would be on the way, and noted for take_send_errors().
  bool send(std::span<const std::byte> address, const iovec* parts, size_t count) noexcept {
    return try_send(address, parts, count) != -EAGAIN;
  }
  // When the kernel has room for the first packets only, the others are lost.
  bool send_segmented(std::span<const std::byte> address, const iovec* parts, size_t count,
                      size_t packet_bytes) noexcept;

  template <class Handler>
  int poll(Handler& handler) noexcept {
    if (!origin_.is_here()) [[unlikely]]
      return 0;
    if (watched_) [[unlikely]]
      unwatch_when_awake();
    int packets = take(socket_, address_.bytes(), handler);
    for (const Group& group : groups_)
      if (group.socket) packets += take(group.socket, group.address, handler);
    return packets;
  }

  // Keeps what the kernel hears of places where nobody receives, for take_refusals(): on_refused(place) for each.
  void watch_refusals() noexcept { os::watch_udp_refusals(socket_); }
  template <class Fn>
  void take_refusals(Fn&& on_refused) noexcept {
    os::SocketAddress place;
    int error = 0;
    for (int i = 0; i < 64 && origin_.is_here() && os::take_udp_refusal(socket_, place, error); ++i) {
      if (error == ECONNREFUSED) on_refused(place.bytes());
      else note_error(place.bytes(), error);
    }
  }
  // Packets that send() took and the kernel did not, or that came back (ICMP), by destination. After take_refusals(), which reads the latter.
  template <class Fn>
  void take_send_errors(Fn&& on_error) noexcept {
    if (send_error_count_ == 0) return;
    taken_errors_.swap(send_errors_);  // on_error() may send, and find more
    for (const SendError& one : std::span(taken_errors_).first(std::exchange(send_error_count_, 0)))
      on_error(one.place.bytes(), one.error);
  }

  // Sleeping: between arm() and disarm(), readable whenever there is a packet. In an epoll set a socket pays for each packet that comes, whether anybody
  // sleeps or not, so it leaves the set when its owner polls without a sleep for a while.
  int wait_fd() noexcept;
  bool arm() noexcept {
    armed_ = true;
    return watched_ || watch();
  }
  void disarm() noexcept {
    armed_ = false;
    polls_awake_ = 0;
  }

  // Multicast: a member sends to the group's address and, with `receives`, gets what others and itself send there. 0 or a negative errno.
  int join(std::span<const std::byte> group, bool receives);
  void leave(std::span<const std::byte> group) noexcept;

  // Where to open: the address from which `destination` is reached, if there is one, or any of the family.
  static std::vector<std::byte> source_for(bool ipv6, std::span<const std::byte> destination);

 private:
  // Path MTUs by host, in a table where a host has one place.
  struct Path {
    std::array<uint64_t, 2> host{};
    uint32_t scope = 0;
    uint32_t bytes = 0;        // 0: empty
    bool segmentation = true;  // until the kernel says no
  };
  static constexpr size_t paths = 256;
  static constexpr unsigned marked_max = 32;               // packets, until their marks are the socket's
  static constexpr unsigned polls_until_unwatched = 1024;  // more than a sleeper spins before it sleeps
  static constexpr size_t unknown_path_bytes = 1200;  // every IPv6 path takes it, and nearly every IPv4 path

  static constexpr size_t send_errors_max = 64;  // destinations at once; others are told when they fail again

  struct SendError {
    os::SocketAddress place;
    int error = 0;
  };
  struct Group {
    std::vector<std::byte> address;
    os::Fd socket;  // empty: it only sends
  };

  template <class Handler>
  [[gnu::always_inline]] int take(const os::Fd& socket, std::span<const std::byte> destination,
                                  Handler& handler) noexcept {
    const size_t batches = receiver_->receive(socket);
    int packets = 0;
    for (size_t i = 0; i < batches; ++i) {
      const os::UdpReceiver::Batch batch = receiver_->batch(i);
      const auto ecn = static_cast<proto::Ecn>(batch.marks.traffic_class & 3);
      received_marks_ = batch.marks;
      if (batch.segment == 0) {
        handler.on_packet(proto::ReceivedPacket{batch.source, destination, batch.bytes, {}, 0, ecn});
        ++packets;
        continue;
      }
      uint16_t number = 0;  // as segmentation counts them in the IPv4 headers
      for (size_t at = 0; at < batch.bytes.size(); at += batch.segment, ++number) {
        const size_t bytes = std::min(batch.segment, batch.bytes.size() - at);
        handler.on_packet(proto::ReceivedPacket{
            batch.source, destination, batch.bytes.subspan(at, bytes), {}, number, ecn});
        ++packets;
      }
    }
    return packets;
  }

  bool watch() noexcept;
  void unwatch() noexcept;
  void unwatch_when_awake() noexcept {
    if (!armed_ && ++polls_awake_ == polls_until_unwatched) unwatch();
  }
  static Path path_to(std::span<const std::byte> address) noexcept;
  Path& place_of(std::span<const std::byte> address) noexcept;
  // Null: those of the socket.
  const os::IpMarks* marks_of_next(os::IpMarks& with_ecn) noexcept {
    if (marks_ == socket_marks_) [[likely]]
      return nullptr;
    return other_marks(with_ecn);
  }
  const os::IpMarks* other_marks(os::IpMarks& with_ecn) noexcept;
  [[gnu::noinline, gnu::cold]] void note_error(std::span<const std::byte> address, int error) noexcept;
  int send_pieces(std::span<const std::byte> address, const iovec* parts, size_t count, size_t offset,
                  size_t bytes, size_t packet_bytes) noexcept;

  os::Fd socket_;
  os::Origin origin_;
  std::optional<os::UdpReceiver> receiver_;
  os::SocketAddress address_;
  size_t receive_buffer_bytes_ = 0;
  uint8_t dscp_ = 0;
  bool fragments_ = false;
  bool optional_checksum_ = false;
  bool shows_ecn_ = false;
  bool shows_marks_ = false;
  uint8_t ecn_ = 0;
  unsigned marked_ = 0;         // packets in a row with last_marks_
  os::IpMarks marks_;           // of what is sent
  os::IpMarks socket_marks_;    // of what names no others
  os::IpMarks last_marks_;      // of the last one that did
  os::IpMarks received_marks_;  // of what is shown now
  std::vector<Path> paths_;
  std::vector<SendError> send_errors_, taken_errors_;  // of send_errors_max once opened
  size_t send_error_count_ = 0;
  std::vector<Group> groups_;
  os::PollSet wait_;      // made when somebody sleeps for the first time
  bool watched_ = false;  // wait_ has the sockets
  bool armed_ = false;
  unsigned polls_awake_ = 0;  // since the last sleep
};

static_assert(proto::PacketLink<Packets> && proto::HasSegmentationOffload<Packets> &&
              proto::HasSleep<Packets> && proto::HasPathMtu<Packets> && proto::HasRefusals<Packets> &&
              proto::HasSendErrors<Packets> && proto::HasReceiveBuffer<Packets> &&
              proto::HasCongestionMarks<Packets>);

}  // namespace weft::link::udp
