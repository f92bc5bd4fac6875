// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Chunks of streams.
#include "proto/reliable/window.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/assert.hpp"

namespace weft::proto::reliable {

ChunkPool::~ChunkPool() {
  for (std::byte* chunk : spare_) ::operator delete[](chunk);
}

std::byte* ChunkPool::acquire() noexcept {
  if (spare_.empty()) return static_cast<std::byte*>(::operator new[](chunk_bytes, std::nothrow));
  std::byte* chunk = spare_.back();
  spare_.pop_back();
  return chunk;
}

void ChunkPool::release(std::byte* chunk) noexcept {
  if (spare_.size() < spare_max) spare_.push_back(chunk);  // reserved
  else ::operator delete[](chunk);
}

bool Window::reserve(ChunkPool& pool, uint64_t offset, size_t bytes) noexcept {
  if (bytes == 0) return true;
  WEFT_ASSERT(bytes <= window_bytes_max);
  for (uint64_t i = offset / chunk_bytes; i <= (offset + bytes - 1) / chunk_bytes; ++i) {
    std::byte*& chunk = chunks_[i % window_chunks];
    if (chunk == nullptr && (chunk = pool.acquire()) == nullptr) return false;
  }
  return true;
}

bool Window::put(ChunkPool& pool, uint64_t offset, const std::byte* from, size_t bytes) noexcept {
  if (!reserve(pool, offset, bytes)) return false;
  while (bytes > 0) {
    const std::span<std::byte> place = at(offset, bytes);
    std::memcpy(place.data(), from, place.size());
    offset += place.size();
    from += place.size();
    bytes -= place.size();
  }
  return true;
}

void Window::release(ChunkPool& pool, uint64_t from, uint64_t to) noexcept {
  WEFT_ASSERT(from <= to && to - from <= window_bytes_max + chunk_bytes);
  for (uint64_t i = from / chunk_bytes; i < to / chunk_bytes; ++i) {
    std::byte*& chunk = chunks_[i % window_chunks];
    if (chunk != nullptr) pool.release(chunk);
    chunk = nullptr;
  }
}

void Window::clear(ChunkPool& pool) noexcept {
  for (std::byte*& chunk : chunks_) {
    if (chunk != nullptr) pool.release(chunk);
    chunk = nullptr;
  }
}

size_t Window::chunk_count() const noexcept {
  return static_cast<size_t>(std::ranges::count_if(chunks_, [](const std::byte* c) { return c != nullptr; }));
}

}  // namespace weft::proto::reliable
