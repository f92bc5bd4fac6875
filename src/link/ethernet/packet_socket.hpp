// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// SocketFrames: Frames over a packet socket on an interface of this machine, whose MAC and MTU are its own; needs
// CAP_NET_RAW. The kernel sees the same frames: give the link an address that no interface of this machine has.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <string>
#include <utility>

#include "link/ethernet/frames.hpp"
#include "os/packet_socket.hpp"
#include "proto/packet/abilities.hpp"

namespace weft::link::ethernet {

class SocketFrames {
 public:
  // --- before open() ---
  void set_interface(std::string name) { interface_ = std::move(name); }
  void set_ring_bytes(size_t bytes) noexcept { socket_.set_ring_bytes(bytes); }  // 0: no ring

  Result<void> open() { return socket_.open(interface_); }
  void close() noexcept { socket_.close(); }
  const wire::Mac& mac() const noexcept { return socket_.mac(); }
  size_t mtu_bytes() const noexcept { return socket_.mtu_bytes(); }
  size_t receive_buffer_bytes() const noexcept { return socket_.receive_buffer_bytes(); }
  os::PacketSocket& socket() noexcept { return socket_; }  // what became of its ring
  bool send(const iovec* parts, size_t count) noexcept { return socket_.send(parts, count); }
  bool add(const iovec* parts, size_t count) noexcept { return socket_.add(parts, count); }
  size_t send_added() noexcept { return socket_.flush(); }

  // Each slot of the ring goes back to the kernel when the handler returns.
  template <class Handler>
  int poll(Handler& handler) noexcept {
    return static_cast<int>(socket_.receive([&](const os::PacketFrame& frame) {
      handler.on_frame(ReceivedFrame{frame.bytes, frame.vlan, frame.is_checksum_good});
    }));
  }
  bool has_nothing() const noexcept { return socket_.has_nothing(); }

  int wait_fd() noexcept { return socket_.fd(); }
  bool arm() noexcept {
    socket_.arm();
    return true;
  }
  void disarm() noexcept {}

 private:
  std::string interface_;
  os::PacketSocket socket_;
};

static_assert(Frames<SocketFrames> && HasTrains<SocketFrames> && proto::HasGlance<SocketFrames> &&
              proto::HasSleep<SocketFrames> && proto::HasReceiveBuffer<SocketFrames>);

}  // namespace weft::link::ethernet
