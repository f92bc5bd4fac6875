// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The receiving half of a datagram endpoint: posted buffers in their order, and what came while none was posted. Must not know links.
//
// Bounds: `size` posted receives; kept_bytes_max of datagrams that nobody waited for, which is a ring, so that keeping costs one copy and no
// allocation. What finds the ring full is dropped, as the network drops what a socket has no room for.
#pragma once

#include <rdma/fi_errno.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/completion_queue.hpp"
#include "proto/engine/context.hpp"

namespace weft::proto {

class DatagramReceiver : public RxSink {
 public:
  static constexpr size_t buffer_bytes_max = size_t{4} << 20;

  // At least `size` posted receives. Throws std::bad_alloc.
  explicit DatagramReceiver(size_t size);
  // Of an endpoint, which has one (ReceiveContext).
  DatagramReceiver(uint8_t, const EngineLimits& limits, uint64_t) : DatagramReceiver(limits.receive_size) {}

  static constexpr bool shared = false;
  bool names_sources = false;     // FI_SOURCE: completions of fi_cq_readfrom name the sender
  size_t multi_receive_min = 64;  // FI_OPT_MIN_MULTI_RECV

  void choose(uint64_t caps) noexcept { names_sources = (caps & FI_SOURCE) != 0; }
  void apply_bindings() noexcept {}
  size_t posted_max() const noexcept { return posted_.size(); }
  size_t posted() const noexcept { return tail_ - head_; }

  // --- the program's side: 0 or a negative errno ---
  // Buffers of a receive. `flags` are FI_*, with the endpoint's defaults merged in.
  ssize_t post(const iovec* iov, size_t count, void* context, uint64_t flags) noexcept;
  ssize_t receive(const ReceiveRequest& request) noexcept;
  ssize_t peek(const ReceiveRequest&) noexcept { return -FI_EOPNOTSUPP; }
  // The oldest receive with that context ends with FI_ECANCELED. -FI_ENOENT: there is none.
  ssize_t cancel(const void* context) noexcept;

  // --- the network's side ---
  void arrived(std::span<const std::byte> bytes, fi_addr_t source) noexcept {
    if (head_ != tail_ && buffer_used_ == 0) [[likely]]
      deliver(bytes, source);
    else keep(bytes, source);
  }

  uint64_t dropped() const noexcept { return dropped_; }  // datagrams that found no room
  uint64_t received() const noexcept { return received_; }
  uint64_t bytes_received() const noexcept { return bytes_received_; }
  size_t buffered() const noexcept { return buffered_count_; }
  // What of ConnectedEngine concerns receives: whether something waits for one, and the end of those that are posted, with an error.
  bool has_unexpected(const ReceiveRequest&) const noexcept { return buffer_used_ != 0; }
  void end_posted(int error, core::ProviderError why) noexcept;
  // Ends all receives without a completion.
  void abandon() noexcept { head_ = tail_; }

 private:
  struct Posted {
    std::array<iovec, iov_max> iov;
    size_t length = 0;  // of all pieces
    size_t done = 0;    // multi-receive: filled
    void* context = nullptr;
    uint8_t count = 0;
    bool completes = false;
    bool multi = false;
  };
  // Stands before a kept datagram. Entries begin at multiples of its size, so a head never crosses the ring's end.
  struct Buffered {
    uint64_t length;  // buffered_skip: the rest of the ring is unused
    fi_addr_t source;
  };
  static constexpr uint64_t buffered_skip = ~uint64_t{0};

  Posted& front() noexcept { return posted_[head_ & mask_]; }
  void deliver(std::span<const std::byte> bytes, fi_addr_t source) noexcept;
  [[gnu::noinline]] void keep(std::span<const std::byte> bytes, fi_addr_t source) noexcept;
  [[gnu::noinline]] void deliver_buffered() noexcept;
  void complete(void* context, bool wanted, uint64_t flags, size_t length, size_t full_length, void* buffer,
                fi_addr_t source, int error) noexcept;

  uint32_t head_ = 0;  // of posted_
  uint32_t tail_ = 0;
  uint32_t mask_ = 0;
  std::vector<Posted> posted_;
  // Kept datagrams: [buffer_head_, buffer_tail_) around the ring, buffer_used_ bytes with their heads.
  size_t buffer_used_ = 0;
  size_t buffer_head_ = 0;
  size_t buffer_tail_ = 0;
  std::unique_ptr<std::byte[]> buffer_;
  size_t buffered_count_ = 0;
  uint64_t dropped_ = 0;
  uint64_t received_ = 0;
  uint64_t bytes_received_ = 0;
};

}  // namespace weft::proto
