// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Raw Ethernet frames over a network interface of this machine (packet(7)); needs CAP_NET_RAW. They are received in a ring
// that is shared with the kernel, or by recvmmsg(2). Must not know what is in the frames. One thread at a time.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "os/fd.hpp"
#include "os/packet_ring.hpp"

namespace weft::os {

class PacketSocket {
 public:
  static constexpr size_t batch_max = 64;
  static constexpr size_t buffer_bytes = size_t{8}
                                         << 20;  // without a ring, as far as we are allowed to have it

  PacketSocket() = default;
  // Of the receive ring, before open(); 0: none, frames are received by recvmmsg(2).
  void set_ring_bytes(size_t bytes) noexcept { ring_bytes_ = bytes; }
  // Frames of the interface's own address, of groups and broadcasts; none that this machine sends out of it.
  Result<void> open(const std::string& interface);
  void close() noexcept {
    ring_.close();
    fd_.reset();
  }

  const std::array<std::byte, 6>& mac() const noexcept { return mac_; }
  size_t mtu_bytes() const noexcept { return mtu_bytes_; }
  size_t receive_buffer_bytes() const noexcept { return receive_buffer_bytes_; }
  int fd() const noexcept { return fd_.get(); }  // readable while there are frames
  bool has_ring() const noexcept { return static_cast<bool>(ring_); }
  const PacketRing& ring() const noexcept { return ring_; }
  const std::string& why_no_ring() const noexcept { return why_no_ring_; }  // where one was wanted

  // False: no room now. A frame that cannot leave is lost.
  bool send(const iovec* parts, size_t count) noexcept;
  // Several frames in one system call: the first part is copied, what the others refer to stays until flush(). False: no
  // room now.
  bool add(const iovec* parts, size_t count) noexcept;
  // Sends what add() took; what finds no room is forgotten. Returns how many frames have left since the last flush(),
  // which are the first ones.
  size_t flush() noexcept;

  // Shows the frames that are there, at most batch_max, to show(const PacketFrame&), whose bytes are valid during the
  // call; returns how many. Without frames in a ring there is no system call.
  template <class Show>
  size_t receive(Show&& show) noexcept {
    if (!ring_) {
      const size_t count = receive_batch();
      for (size_t i = 0; i < count; ++i) show(received(i));
      return count;
    }
    size_t count = 0;
    for (; count < batch_max && ring_.has_frame(); ++count) {
      show(ring_.front());
      ring_.pop();
    }
    if (count == 0 && slept_) [[unlikely]]
      consume_error();
    return count;
  }
  // Whether receive() would find nothing and do nothing, told without a system call: after arm() it asks for errors.
  bool has_nothing() const noexcept { return ring_ && !slept_ && !ring_.has_frame(); }
  // The owner is about to sleep on fd().
  void arm() noexcept { slept_ = true; }

  // A system call: frames that the kernel dropped for want of room, since open().
  uint64_t lost() noexcept;
  uint64_t cut() const noexcept { return cut_ + ring_.cut(); }  // longer than the interface's MTU

 private:
  struct State;
  struct Deleter {
    void operator()(State* state) const noexcept;
  };
  size_t send_added() noexcept;
  size_t receive_batch() noexcept;
  PacketFrame received(size_t index) noexcept;
  void consume_error() noexcept;

  Fd fd_;
  PacketRing ring_;
  bool slept_ = false;
  size_t left_ = 0;  // frames since flush()
  std::unique_ptr<State, Deleter> state_;
  std::array<std::byte, 6> mac_{};
  size_t mtu_bytes_ = 0;
  size_t receive_buffer_bytes_ = 0;
  size_t ring_bytes_ = 0;
  uint64_t lost_ = 0;
  uint64_t cut_ = 0;
  std::string why_no_ring_;
};

}  // namespace weft::os
