// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Packer: frames that wait to leave, as one run of bytes. Must not know what carries the bytes.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "base/assert.hpp"
#include "proto/stream/head.hpp"
#include "wire/frame.hpp"

namespace weft::proto::stream {

// Memory is taken as it is needed, up to the bound, and given back when a large amount has left.
class Packer {
 public:
  static constexpr size_t kept_bytes = size_t{1} << 16;  // memory that an empty packer may keep

  explicit Packer(size_t bound) noexcept : bound_(bound) {}
  size_t bound() const noexcept { return bound_; }
  void set_bound(size_t bound) noexcept { bound_ = bound; }

  // Adds a whole frame. False: beyond the bound, or no memory; nothing has changed.
  [[gnu::always_inline]] bool put(const wire::FrameHead& head, std::span<const std::byte> prefix,
                                  const iovec* parts, size_t part_count) noexcept {
    std::byte* at = room_for(head_bytes_max + head.length);
    if (at == nullptr) return false;
    at += pack_head(head, at);
    if (!prefix.empty()) std::memcpy(at, prefix.data(), prefix.size());
    at += prefix.size();
    for (size_t i = 0; i < part_count; ++i) {
      if (parts[i].iov_len == 0) continue;
      std::memcpy(at, parts[i].iov_base, parts[i].iov_len);
      at += parts[i].iov_len;
    }
    end_ = static_cast<size_t>(at - memory_.get());
    WEFT_ASSERT(begin_ <= end_ && end_ <= capacity_);
    return true;
  }
  // Adds bytes as they are.
  bool put_bytes(const void* bytes, size_t count) noexcept {
    if (count == 0) return true;
    std::byte* at = room_for(count);
    if (at == nullptr) return false;
    std::memcpy(at, bytes, count);
    end_ += count;
    WEFT_ASSERT(end_ <= capacity_);
    return true;
  }
  // Makes sure that this many more bytes will find room, beyond the bound if need be. False: no memory.
  bool reserve(size_t count) noexcept { return capacity_ - end_ >= count || grow(count); }

  bool empty() const noexcept { return begin_ == end_; }
  size_t size() const noexcept { return end_ - begin_; }
  std::span<const std::byte> bytes() const noexcept { return {memory_.get() + begin_, size()}; }
  // The first `count` bytes have left.
  void drop(size_t count) noexcept {
    WEFT_ASSERT(count <= size());
    begin_ += count;
    if (begin_ != end_) return;
    begin_ = end_ = 0;
    if (capacity_ > kept_bytes) clear();
  }
  void clear() noexcept {
    memory_.reset();
    begin_ = end_ = capacity_ = 0;
  }

 private:
  std::byte* room_for(size_t count) noexcept {
    if (size() + count > bound_) [[unlikely]]
      return nullptr;
    if (capacity_ - end_ < count && !grow(count)) [[unlikely]]
      return nullptr;
    return memory_.get() + end_;
  }
  [[gnu::noinline]] bool grow(size_t count) noexcept {
    const size_t used = size();
    if (capacity_ < used + count || begin_ < capacity_ / 2) {
      const size_t wanted =
          std::max(used + count, std::min<size_t>(2 * capacity_, used + count + kept_bytes));
      std::unique_ptr<std::byte[]> larger(new (std::nothrow) std::byte[std::max<size_t>(wanted, 4096)]);
      if (larger == nullptr) return false;
      if (used != 0) std::memcpy(larger.get(), memory_.get() + begin_, used);
      memory_ = std::move(larger);
      capacity_ = std::max<size_t>(wanted, 4096);
    } else if (used != 0) {
      std::memmove(memory_.get(), memory_.get() + begin_, used);
    }
    begin_ = 0;
    end_ = used;
    return true;
  }

  std::unique_ptr<std::byte[]> memory_;
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t capacity_ = 0;
  size_t bound_;
};

}  // namespace weft::proto::stream
