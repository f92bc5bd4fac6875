// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The receiving half of a connection: bytes in order to whoever takes them, straight from the packet when they are the next; others are kept
// within a window. Must not know how packets are written or whom they come from.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/assert.hpp"
#include "proto/reliable/packet.hpp"
#include "proto/reliable/window.hpp"

namespace weft::proto::reliable {

class ReceiveStream {
 public:
  static constexpr size_t bytes_max = window_bytes_max - chunk_bytes;
  static constexpr size_t gaps_max = 128;  // stretches behind gaps that are kept

  enum class Came : uint8_t { InOrder, OutOfOrder, Duplicate, Outside };

  // What a packet brought. `up(bytes)` takes the next bytes and returns how many it took; fewer than given: not now.
  template <class Up>
  Came on_bytes(ChunkPool& pool, uint64_t offset, std::span<const std::byte> bytes, Up&& up) noexcept {
    const uint64_t end = offset + bytes.size();
    WEFT_ASSERT(taken_ <= ready_ && (gaps_ == 0 || islands_[0].begin > ready_));
    if (end <= ready_) return Came::Duplicate;
    if (end > edge()) return Came::Outside;
    if (offset > ready_) return keep(pool, offset, bytes);
    bytes = bytes.subspan(static_cast<size_t>(ready_ - offset));
    size_t taken = 0;
    if (taken_ == ready_) {
      taken = up(bytes);
      WEFT_ASSERT(taken <= bytes.size());
      taken_ += taken;
    }
    if (taken < bytes.size() && !store(pool, ready_ + taken, bytes.subspan(taken))) {
      ready_ += taken;
      return Came::Outside;
    }
    ready_ = end;
    if (gaps_ != 0) {
      close_gaps();
      if (gaps_ == 0 && taken_ == ready_) window_.clear(pool);
    }
    if (taken_ < ready_) drain(pool, up);
    WEFT_ASSERT(ready_ >= end && ready_ <= edge());
    return Came::InOrder;
  }
  // Offers what is ready again.
  template <class Up>
  void drain(ChunkPool& pool, Up&& up) noexcept {
    const uint64_t before = taken_;
    while (taken_ < ready_) {
      const std::span<const std::byte> bytes = window_.at(taken_, static_cast<size_t>(ready_ - taken_));
      const size_t taken = up(bytes);
      WEFT_ASSERT(taken <= bytes.size());
      taken_ += taken;
      if (taken < bytes.size()) break;
    }
    if (taken_ == before) return;
    WEFT_ASSERT(taken_ <= ready_);
    if (taken_ == ready_ && gaps_ == 0) window_.clear(pool);
    else window_.release(pool, before, taken_);
  }

  bool blocked() const noexcept { return taken_ < ready_; }
  uint64_t ready() const noexcept { return ready_; }
  uint64_t taken() const noexcept { return taken_; }
  // Bytes before it are taken. It never goes back.
  uint64_t edge() const noexcept { return taken_ + limit_; }
  void set_limit(size_t bytes) noexcept { limit_ = bytes < bytes_max ? bytes : bytes_max; }
  size_t limit() const noexcept { return limit_; }
  size_t buffered_chunks() const noexcept { return window_.chunk_count(); }
  bool has_gaps() const noexcept { return gaps_ != 0; }
  // Fills in acknowledgement, window and ranges: the stretch that came last first, then from the front.
  void describe(Packet& packet) const noexcept;
  void clear(ChunkPool& pool) noexcept { window_.clear(pool); }

 private:
  Came keep(ChunkPool& pool, uint64_t offset, std::span<const std::byte> bytes) noexcept;
  bool store(ChunkPool& pool, uint64_t offset, std::span<const std::byte> bytes) noexcept {
    return window_.put(pool, offset, bytes.data(), bytes.size());
  }
  void close_gaps() noexcept;

  uint64_t taken_ = 0;  // handed up
  uint64_t ready_ = 0;  // came without a gap
  size_t limit_ = bytes_max;
  size_t gaps_ = 0;  // used entries of islands_
  size_t last_ = 0;  // the one that grew last
  Window window_;
  std::array<Range, gaps_max> islands_;  // behind ready_, ascending, apart from each other
};

}  // namespace weft::proto::reliable
