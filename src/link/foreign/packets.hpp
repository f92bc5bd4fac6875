// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A PacketLink over datagram endpoints of a provider that is known at run time only: FI_EP_DGRAM through the function vectors of libfabric's
// interface. Must not know what is in the packets.
//
// Providers need not say who sent a datagram unless they know the sender already, so each begins with the address of the endpoint that it comes
// from; the rest is the packet (docs/wire/reliable.md). An address that is altered on the way names a place that sent nothing, which whoever
// reads the packet finds out.
//
// What a provider has accepted it may keep until it is driven, so whatever follows the first packet after a poll is followed by a look into its
// queue; what comes in by that is shown at the next poll.
//
// Bounds: receive_bytes_max of posted receives, send_count buffers to send from, places_max addresses in the provider's address vector.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "link/foreign/source.hpp"
#include "os/socket_address.hpp"
#include "proto/packet/abilities.hpp"

namespace weft::link::foreign {

class Packets {
 public:
  static constexpr size_t address_length = sizeof(sockaddr_in6);
  // A datagram of ours: at least what every path of IPv6 takes, at most what buffers are made for.
  static constexpr size_t datagram_bytes_min = 1200;
  static constexpr size_t datagram_bytes_max = size_t{1} << 14;
  static constexpr size_t receive_count_max = 1024;
  static constexpr size_t receive_bytes_max = size_t{4} << 20;
  static constexpr size_t send_count = 128;
  static constexpr size_t segments_max = 32;
  static constexpr bool has_ip_addresses = true;
  static constexpr size_t addresses_max = size_t{1} << 17;

  Packets() = default;
  Packets(const Packets&) = delete;
  Packets& operator=(const Packets&) = delete;
  ~Packets() { close(); }

  // --- before open() ---
  void set_context(const void* source) noexcept { source_ = static_cast<const Source*>(source); }
  void set_warning(proto::PacketWarning warning, const void* who) noexcept { warn_ = {warning, who}; }

  // `address` is a sockaddr_in or sockaddr_in6; a zero port or host is chosen by the provider.
  Result<void> open(std::span<const std::byte> address);
  void close() noexcept;
  std::span<const std::byte> address() const noexcept { return address_.bytes(); }
  // What is kept until it is polled. Twice the bytes, for as much of it is taken for bookkeeping.
  size_t receive_buffer_bytes() const noexcept { return 2 * receive_count_ * datagram_bytes_; }
  // Each has a buffer to itself.
  size_t receive_packet_bytes() const noexcept { return datagram_bytes_; }

  size_t packet_bytes_max(std::span<const std::byte>) const noexcept {
    return datagram_bytes_ - address_.size();
  }
  // A packet that the provider will never take is lost, as it would be on the way.
  bool send(std::span<const std::byte> to, const iovec* parts, size_t count) noexcept {
    size_t bytes = 0;
    for (size_t i = 0; i < count; ++i) bytes += parts[i].iov_len;
    return send_segmented(to, parts, count, bytes);
  }
  // When the provider has room for the first packets only, the others are lost.
  bool send_segmented(std::span<const std::byte> to, const iovec* parts, size_t count,
                      size_t packet_bytes) noexcept;

  template <class Handler>
  int poll(Handler& handler) noexcept {
    sent_since_poll_ = false;
    collect();
    const size_t head = address_.size();
    // The handler may send, and what that brings in has to stay for the next poll.
    std::swap(arrived_, shown_);
    for (Buffer* buffer : shown_) {
      const std::span<const std::byte> bytes(buffer->bytes, buffer->used);
      if (bytes.size() > head)
        handler.on_packet(proto::ReceivedPacket{bytes.first(head), address_.bytes(), bytes.subspan(head)});
      post(*buffer);
    }
    const int taken = static_cast<int>(shown_.size());
    shown_.clear();
    return taken;
  }

  // Sleeping: readable when there is a packet.
  int wait_fd() noexcept;
  bool arm() noexcept;
  void disarm() noexcept {}

 private:
  static constexpr size_t turn_entries = 64;

  // One datagram's memory. Providers may want to keep notes of their own behind the context of an operation (FI_CONTEXT2).
  struct Buffer {
    fi_context2 context{};  // first: completions give its address
    std::byte* bytes = nullptr;
    size_t used = 0;
    bool receives = false;
  };

  Error fail(const char* what, int status) const { return failure(*source_, what, status); }
  Result<void> open_endpoint();
  Result<void> find_address();
  Result<void> post_buffers();
  bool try_post(Buffer& buffer) noexcept;
  void post(Buffer& buffer) noexcept;
  void collect() noexcept;
  void drop(Buffer& buffer, int status) noexcept;
  ssize_t hand_over(Buffer& buffer, size_t bytes, fi_addr_t to_addr) noexcept;
  fi_addr_t fi_addr_of(std::span<const std::byte> to) noexcept;

  const Source* source_ = nullptr;
  Warning warn_;
  fi_info* info_ = nullptr;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_av* av_ = nullptr;
  fid_cq* cq_ = nullptr;
  fid_ep* ep_ = nullptr;
  fid_mr* region_ = nullptr;
  os::SocketAddress address_;
  size_t datagram_bytes_ = 0;
  size_t receive_count_ = 0;
  size_t inject_bytes_ = 0;
  std::unique_ptr<std::byte[]> memory_;  // of all buffers
  std::vector<Buffer> buffers_;
  std::vector<Buffer*> arrived_;   // receives to show
  std::vector<Buffer*> shown_;     // those of this poll
  std::vector<Buffer*> unposted_;  // receives that the provider had no room for
  std::vector<Buffer*> free_;      // to send from
  std::unordered_map<os::SocketAddress, fi_addr_t, os::SocketAddressHash> fi_addrs_;
  os::SocketAddress last_to_;  // whom the last packet went to, and his number
  fi_addr_t last_fi_addr_ = FI_ADDR_NOTAVAIL;
  bool sent_since_poll_ = false;
  bool can_sleep_ = false;
};

static_assert(proto::PacketLink<Packets> && proto::HasSegmentationOffload<Packets> &&
              proto::HasSleep<Packets> && proto::HasContext<Packets> && proto::HasWarnings<Packets> &&
              proto::HasReceiveSlots<Packets>);

}  // namespace weft::link::foreign
