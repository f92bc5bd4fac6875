// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The PacketLink over a UD queue pair (IBTA 9.8): a packet is a SEND of one packet, so that a RoCEv2 endpoint of verbs
// may be the other side. Every link has a device of its own, without a thread, and its address is the device's: an IPv4
// address and a UDP port. What else a UD address has is agreed upon: the queue pair's number and its Q_Key. Must not
// know what is in the packets.
//
// Threads: one at a time; nobody else knows the device.
// Hot path: send() copies into one of send_slots buffers, which is free again when the packet has left, at once as a
// rule. poll() shows packets where they were received. Bounds: receive_slots packets between two polls; more are lost,
// as UD has it.
#pragma once

#include <netinet/in.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "link/roce/device.hpp"
#include "os/socket_address.hpp"
#include "proto/packet/abilities.hpp"

namespace weft::link::roce {

class Datagrams {
 public:
  static constexpr size_t address_length = sizeof(sockaddr_in);
  static constexpr size_t packet_bytes_limit = proto::roce::mtu_bytes_max;
  static constexpr bool checks_packets = true;  // the ICRC
  static constexpr bool has_ip_addresses = true;
  static constexpr bool observes_below = true;  // the device's sockets have the middleware
  static constexpr uint32_t queue_pair_number = 0x574546;
  static constexpr uint32_t queue_key = 0x57454654;
  static constexpr uint32_t send_slots = 64;
  static constexpr uint32_t receive_slots = 1024;

  Datagrams() = default;
  Datagrams(const Datagrams&) = delete;
  Datagrams& operator=(const Datagrams&) = delete;
  ~Datagrams() { close(); }

  // `address` is a sockaddr_in. A zero port is chosen by the system; a zero host is that of the way out of the machine.
  // EADDRINUSE: port 4791, whose GIDs have no room for a port, or one that is taken.
  Result<void> open(std::span<const std::byte> address);
  void close() noexcept;
  std::span<const std::byte> address() const noexcept { return own_.bytes(); }
  // The path MTU of the InfiniBand architecture that fits: 256 to 4,096.
  size_t packet_bytes_max(std::span<const std::byte> address) noexcept;

  // 0, -EAGAIN: all send slots are under way, or another negative errno.
  int try_send(std::span<const std::byte> address, const iovec* parts, size_t count) noexcept;
  bool send(std::span<const std::byte> address, const iovec* parts, size_t count) noexcept {
    return try_send(address, parts, count) != -EAGAIN;
  }

  template <class Handler>
  int poll(Handler& handler) noexcept {
    if (device_ == nullptr || !device_->is_here()) [[unlikely]]
      return 0;
    std::array<Arrived, 64> arrived;
    int packets = 0;
    for (size_t seen = 0;;) {
      const size_t count = collect(arrived, seen == 0);
      seen += count;
      for (const Arrived& one : std::span(arrived).first(count))
        if (one.is_valid)
          handler.on_packet(proto::ReceivedPacket{one.source.bytes(), own_.bytes(), one.bytes}), ++packets;
      if (count != 0) release_slots(std::span(arrived).first(count));
      if (count < arrived.size() || seen >= receive_slots) return packets;
    }
  }

  // --- sleeping ---
  int wait_fd() noexcept;
  bool arm() noexcept;
  void disarm() noexcept;

  // Where to open: the address from which `destination` is reached, or that of the way out.
  static std::vector<std::byte> source_for(bool ipv6, std::span<const std::byte> destination);
  // The largest packet that leaves every interface in one piece.
  static size_t interface_bytes() noexcept;

 private:
  struct Ignored final : proto::roce::Events {
    void on_completion(proto::roce::CompletionQueue&) noexcept override {}
    void on_async(const proto::roce::AsyncEvent&) noexcept override {}
  };
  struct Arrived {
    uint32_t slot = 0;
    bool is_valid = false;
    os::SocketAddress source;
    std::span<const std::byte> bytes;
  };

  Result<void> make_queues();
  size_t collect(std::span<Arrived> out, bool takes_packets) noexcept;
  void release_slots(std::span<const Arrived> slots) noexcept;
  int post_receive(uint32_t slot) noexcept;
  void collect_sent() noexcept;
  std::byte* receive_slot(uint32_t slot) noexcept { return memory_.data() + slot * slot_bytes_; }
  std::byte* send_slot(uint32_t slot) noexcept { return receive_slot(receive_slots + slot); }

  Ignored events_;
  std::unique_ptr<Device> device_;
  os::SocketAddress own_;
  size_t packet_bytes_ = 0;  // the longest one
  size_t slot_bytes_ = 0;    // with the room for a GRH
  std::vector<std::byte> memory_;
  uint32_t key_ = 0;
  proto::roce::CompletionQueue* received_ = nullptr;
  proto::roce::CompletionQueue* sent_ = nullptr;
  proto::roce::QueuePair* qp_ = nullptr;
  uint32_t next_send_ = 0;        // slot
  uint32_t sends_in_flight_ = 0;  // the slots before it
};

static_assert(proto::PacketLink<Datagrams> && proto::HasSleep<Datagrams> && proto::HasSendStatus<Datagrams>);

}  // namespace weft::link::roce
