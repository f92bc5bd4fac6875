// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The bytes of a stream that somebody still needs: a window over its offsets, in chunks that exist only where there are bytes. Chunks come
// from a pool that all connections share, last given first taken, so that busy memory stays in the cache. Must not know packets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/assert.hpp"

namespace weft::proto::reliable {

inline constexpr size_t chunk_bytes = size_t{1} << 16;
inline constexpr size_t window_bytes_max = size_t{4} << 20;  // of one direction of one connection
inline constexpr size_t window_chunks = window_bytes_max / chunk_bytes;

class ChunkPool {
 public:
  static constexpr size_t spare_max = 64;  // free chunks that are kept
  ChunkPool() { spare_.reserve(spare_max); }
  ChunkPool(const ChunkPool&) = delete;
  ChunkPool& operator=(const ChunkPool&) = delete;
  ~ChunkPool();
  std::byte* acquire() noexcept;  // null: no memory
  void release(std::byte* chunk) noexcept;

 private:
  std::vector<std::byte*> spare_;
};

class Window {
 public:
  Window() = default;
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // All that is stored lies in [begin, begin + window_bytes_max).
  // False: no memory; then nothing is stored that a later call would miss.
  bool put(ChunkPool& pool, uint64_t offset, const std::byte* from, size_t bytes) noexcept;
  // Makes the chunks for [offset, offset + bytes).
  bool reserve(ChunkPool& pool, uint64_t offset, size_t bytes) noexcept;
  // The longest stretch at `offset` that lies in one piece, at most `bytes`. It was put there before.
  std::span<std::byte> at(uint64_t offset, size_t bytes) const noexcept {
    WEFT_ASSERT(chunks_[offset / chunk_bytes % window_chunks] != nullptr);
    const size_t in_chunk = offset % chunk_bytes;
    const size_t left = chunk_bytes - in_chunk;
    return {chunks_[offset / chunk_bytes % window_chunks] + in_chunk, bytes < left ? bytes : left};
  }
  // Nobody needs [from, to) any more: chunks that end there go back.
  void release(ChunkPool& pool, uint64_t from, uint64_t to) noexcept;
  void clear(ChunkPool& pool) noexcept;
  size_t chunk_count() const noexcept;

 private:
  std::array<std::byte*, window_chunks> chunks_{};
};

}  // namespace weft::proto::reliable
