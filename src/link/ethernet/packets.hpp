// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// EthernetPackets<Frames>: the PacketLink of one UDP port at one IP address on an Ethernet (stack.hpp), over whatever
// moves frames (frames.hpp). The address need not be one of an interface of this machine. Headers are shown, with the
// IP identification, and those of packets that go out are written here. Must not know what the packets carry.
//
// Threads: one at a time. Hot path: send() gives headers and parts to the device without copying; poll() shows packets
// where they lie.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "base/result.hpp"
#include "link/ethernet/frames.hpp"
#include "link/ethernet/stack.hpp"
#include "os/clock.hpp"
#include "os/event.hpp"
#include "os/origin.hpp"
#include "os/socket_address.hpp"
#include "proto/packet/abilities.hpp"

namespace weft::link::ethernet {

struct SystemClock {
  static uint64_t now() noexcept { return os::monotonic_ns(); }
};

template <Frames F, class Clock = SystemClock>
class EthernetPackets {
 public:
  static constexpr size_t address_length = sizeof(sockaddr_in6);
  static constexpr size_t packet_bytes_limit = 65507;
  static constexpr size_t segments_max = 64;
  static constexpr bool checks_packets = true;  // the UDP checksum, and the FCS below
  static constexpr bool has_ip_addresses = true;

  EthernetPackets() = default;
  EthernetPackets(const EthernetPackets&) = delete;
  EthernetPackets& operator=(const EthernetPackets&) = delete;
  ~EthernetPackets() { close(); }

  // --- before open() ---
  F& frames() noexcept { return frames_; }  // for settings of its own
  void set_network(const Network& network) noexcept { network_ = network; }
  void set_optional_checksum(bool optional) noexcept { stack_.set_optional_checksum(optional); }
  // --- at any time ---
  void set_traffic_class(uint8_t dscp) noexcept { stack_.set_traffic_class(dscp); }
  void set_ecn(proto::Ecn ecn) noexcept { stack_.set_ecn(ecn); }
  void set_marks(const os::IpMarks& marks) noexcept { stack_.set_marks(marks); }

  // `address` is a sockaddr_in or sockaddr_in6 with a host; a zero port is drawn.
  Result<void> open(std::span<const std::byte> address) {
    const auto own = os::SocketAddress::from(address.data(), address.size());
    if (!own || own->is_any())
      return Error{EINVAL, "an endpoint on an Ethernet needs an IPv4 or IPv6 address of its own"};
    if (auto ok = frames_.open(); !ok) return ok;
    is_open_ = true;
    now_ = Clock::now();
    uint64_t random = 0;
    if (!os::random_bytes(&random, sizeof random)) return Error{EAGAIN, "the system gives no random numbers"};
    if (auto ok = stack_.open(*own, network_, frames_.mac(), frames_.mtu_bytes(), random); !ok) return ok;
    if constexpr (HasMacFilter<F>)
      if (const auto mac = stack_.solicited_mac(); mac && frames_.join_mac(*mac) != 0)
        return Error{ENODEV, "the network device takes no more multicast addresses"};
    send_waiting();
    return {};
  }
  void close() noexcept {
    if (!std::exchange(is_open_, false)) return;
    stack_.close();
    frames_.close();
  }
  std::span<const std::byte> address() const noexcept { return stack_.own().bytes(); }
  size_t packet_bytes_max(std::span<const std::byte>) noexcept { return stack_.packet_bytes_max(); }
  const EthernetCounters& counters() const noexcept { return stack_.counters(); }

  // 0, or a negative errno: -EAGAIN is "no room now".
  int try_send(std::span<const std::byte> to, const iovec* parts, size_t count) noexcept {
    if (!origin_.is_here()) [[unlikely]]
      return -ENETDOWN;
    lost_segments_ = 0;
    const int status = put<false>(to, parts, count, 0);
    flush();
    return status;
  }
  bool send(std::span<const std::byte> to, const iovec* parts, size_t count) noexcept {
    return try_send(to, parts, count) != -EAGAIN;
  }
  // The IPv4 identifications count 0, 1, 2 ..., as those of segmentation offload do. What finds no room behind packets that
  // have left is lost, and lost_segments() says how many these are.
  bool send_segmented(std::span<const std::byte> to, const iovec* parts, size_t count,
                      size_t segment_bytes) noexcept {
    if (!origin_.is_here()) [[unlikely]]
      return true;
    lost_segments_ = added_ = 0;
    size_t total = 0;
    for (size_t i = 0; i < count; ++i) total += parts[i].iov_len;
    const size_t segments = (total + segment_bytes - 1) / segment_bytes;
    if constexpr (HasRoom<F>)
      if (!frames_.has_room(segments)) return false;
    std::array<iovec, parts_max> piece;
    size_t part = 0;
    size_t offset = 0;
    size_t taken = 0;
    for (uint16_t number = 0; part < count; ++number, ++taken) {
      size_t pieces = 0;
      for (size_t room = segment_bytes; room != 0 && part < count && pieces < parts_max;) {
        const size_t bytes = std::min(room, parts[part].iov_len - offset);
        if (bytes != 0) piece[pieces++] = {static_cast<std::byte*>(parts[part].iov_base) + offset, bytes};
        room -= bytes;
        offset += bytes;
        if (offset == parts[part].iov_len) ++part, offset = 0;
      }
      if (pieces == 0) break;
      if (put<HasTrains<F>>(to, piece.data(), pieces, number) == -EAGAIN) break;
    }
    flush();
    if constexpr (HasTrains<F>) taken = taken - added_ + frames_.send_added();
    if (taken == 0) return segments == 0;
    lost_segments_ = segments > taken ? segments - taken : 0;
    return true;
  }
  // Of the last send: packets that found no room, behind others that did.
  size_t lost_segments() const noexcept { return lost_segments_; }

  template <class Handler>
  int poll(Handler& handler) noexcept {
    if (!origin_.is_here()) [[unlikely]]
      return 0;
    if (has_nothing()) return 0;
    now_ = Clock::now();
    Tap<Handler> tap{*this, handler};
    stack_.deliver_own([&](wire::Bytes frame) { tap.on_frame(ReceivedFrame{frame, 0, true}); });
    (void)frames_.poll(tap);
    if (stack_.is_busy()) [[unlikely]] {
      stack_.tick(now_);
      send_waiting();
    }
    return tap.packets;
  }

  // Whether poll() would find nothing and do nothing, as far as the device can tell without a system call.
  bool has_nothing() const noexcept {
    if constexpr (proto::HasGlance<F>)
      return !origin_.is_here() || (frames_.has_nothing() && !stack_.is_busy());
    else return false;
  }

  // --- sleeping, where the device has it. While neighbours are being asked the owner polls. ---
  int wait_fd() noexcept requires proto::HasSleep<F> { return frames_.wait_fd(); }
  bool arm() noexcept requires proto::HasSleep<F> { return frames_.arm() && !stack_.is_busy(); }
  void disarm() noexcept requires proto::HasSleep<F> { frames_.disarm(); }
  size_t receive_buffer_bytes() const noexcept requires proto::HasReceiveBuffer<F> {
    return frames_.receive_buffer_bytes();
  }
  size_t receive_packet_bytes() const noexcept requires proto::HasReceiveSlots<F> {
    return frames_.receive_packet_bytes();
  }

  // Multicast. Switches that listen to IGMP or MLD have to be told by somebody else.
  int join(std::span<const std::byte> group, bool receives) noexcept {
    wire::Mac mac;
    const int status = stack_.join(group, receives, mac);
    if constexpr (HasMacFilter<F>) {
      if (status == 0 && receives)
        if (const int filter = frames_.join_mac(mac); filter != 0) {
          (void)stack_.leave(group, mac);
          return filter;
        }
    }
    return status;
  }
  void leave(std::span<const std::byte> group) noexcept {
    wire::Mac mac;
    const bool received = stack_.leave(group, mac);
    if constexpr (HasMacFilter<F>) {
      if (received) frames_.leave_mac(mac);
    }
  }

 private:
  static constexpr size_t parts_max = 63;

  template <class Handler>
  struct Tap {
    EthernetPackets& link;
    Handler& handler;
    int packets = 0;
    void on_frame(const ReceivedFrame& frame) noexcept {
      proto::ReceivedPacket packet;
      if (!link.stack_.on_frame(frame, link.now_, packet)) return;
      ++packets;
      handler.on_packet(packet);
    }
  };

  template <bool in_train>
  int put(std::span<const std::byte> to, const iovec* parts, size_t count, uint16_t identification) noexcept {
    if (count > parts_max) return -EMSGSIZE;
    if constexpr (HasFailure<F>)
      if (const int failed = frames_.failure(); failed != 0) [[unlikely]]
        return failed;
    const int status = stack_.write_head(to, parts, count, identification, now_, head_);
    if (status == Stack::goes) [[likely]] {
      std::array<iovec, parts_max + 1> frame;
      frame[0] = {head_.bytes.data(), head_.count};
      std::copy_n(parts, count, frame.begin() + 1);
      if (stack_.loops()) [[unlikely]] {
        // Not in a train, of which it would not be known yet whether this one leaves.
        if (!frames_.send(frame.data(), count + 1)) return -EAGAIN;
        (void)stack_.keep(head_, parts, count);
        return 0;
      }
      bool taken = false;
      if constexpr (in_train) taken = frames_.add(frame.data(), count + 1);
      else taken = frames_.send(frame.data(), count + 1);
      if (!taken) return -EAGAIN;
      if constexpr (in_train) ++added_;
      return 0;
    }
    if (status < 0) return status;
    if (!stack_.keep(head_, parts, count)) return -EAGAIN;
    stack_.tick(now_);  // who has to be asked is asked at once
    send_waiting();
    return 0;
  }
  void send_waiting() noexcept {
    const auto send = [&](wire::Bytes frame) {
      const iovec part{const_cast<std::byte*>(frame.data()), frame.size()};
      return frames_.send(&part, 1);
    };
    stack_.send_control(send);
    stack_.send_resolved(send);
    flush();
  }
  void flush() noexcept {
    if constexpr (HasFlush<F>) frames_.flush();
  }

  F frames_;
  Stack stack_;
  Stack::Head head_;
  Network network_;
  uint64_t now_ = 0;  // of the last poll
  size_t added_ = 0;  // frames of a segmented send that the device has not sent yet
  size_t lost_segments_ = 0;
  bool is_open_ = false;
  os::Origin origin_;
};

}  // namespace weft::link::ethernet
