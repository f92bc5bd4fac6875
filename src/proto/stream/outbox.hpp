// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Outbox: frames that wait to leave, in order: bytes of ours (Packer), and between them payload that stays where the program has it. Must not
// know what carries the bytes.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "base/assert.hpp"
#include "proto/stream/head.hpp"
#include "proto/stream/packer.hpp"
#include "wire/frame.hpp"

namespace weft::proto::stream {

// Bounds: the packer's for bytes of ours, pieces_max for what is referred to. What a piece points at is not touched once drop() has passed it,
// nor after keep() or clear(). An object that was moved from is only cleared or destroyed.
class Outbox {
 public:
  static constexpr size_t pieces_max = 64;
  static constexpr size_t prefix_bytes_max = 256;  // of a frame whose payload stays

  explicit Outbox(size_t own_bound) noexcept : own_(own_bound) {}

  // A whole frame, copied. False: beyond the bound, or no memory; nothing has changed.
  [[gnu::always_inline]] bool put(const wire::FrameHead& head, std::span<const std::byte> prefix,
                                  const iovec* parts, size_t part_count) noexcept {
    return own_.put(head, prefix, parts, part_count);
  }
  bool put_bytes(const void* bytes, size_t count) noexcept { return own_.put_bytes(bytes, count); }
  // Room for so many bytes more, beyond the bound if need be. False: no memory.
  bool reserve(size_t count) noexcept { return own_.reserve(count); }
  // A whole frame whose parts stay where they are. False: too many pieces, no memory; nothing has changed.
  bool put_in_place(const wire::FrameHead& head, std::span<const std::byte> prefix, const iovec* parts,
                    size_t part_count) noexcept {
    if (prefix.size() > prefix_bytes_max || !has_room(part_count)) return false;
    std::array<std::byte, head_bytes_max + prefix_bytes_max> front;
    const size_t head_bytes = pack_head(head, front.data());
    if (!prefix.empty()) std::memcpy(front.data() + head_bytes, prefix.data(), prefix.size());
    if (!own_.put_bytes(front.data(), head_bytes + prefix.size())) return false;
    for (size_t i = 0; i < part_count; ++i) (void)refer(parts[i].iov_base, parts[i].iov_len);
    return true;
  }
  // Bytes that stay where they are, behind all others. False: too many pieces, no memory.
  bool refer(const void* bytes, size_t count) noexcept {
    if (count == 0) return true;
    if (!has_room(1)) return false;
    const size_t before = own_.size() - placed_;
    WEFT_ASSERT(count_ < pieces_max && placed_ <= own_.size());
    piece(count_++) = {before, static_cast<const std::byte*>(bytes), count};
    placed_ += before;
    referred_ += count;
    return true;
  }

  bool empty() const noexcept { return own_.empty() && count_ == 0; }
  size_t size() const noexcept { return own_.size() + referred_; }
  size_t own_size() const noexcept { return own_.size(); }
  size_t referred() const noexcept { return referred_; }
  // Bytes of ours alone. Those of all, where nothing is referred to.
  std::span<const std::byte> own_bytes() const noexcept { return own_.bytes(); }

  // What goes first, but for the first `skip` bytes of ours, which only an outbox without pieces may skip. Writes at most `room` entries; returns
  // how many, and sets `bytes` to what they cover.
  size_t front(iovec* out, size_t room, size_t skip, size_t& bytes) const noexcept {
    const std::byte* own = own_.bytes().data();
    size_t left = own_.size();
    size_t n = 0;
    bytes = 0;
    WEFT_ASSERT(skip == 0 || count_ == 0);
    WEFT_ASSERT(skip <= left && placed_ <= left);
    const auto add = [&](const std::byte* at, size_t count) {
      if (count == 0) return;
      out[n++] = {const_cast<std::byte*>(at), count};
      bytes += count;
    };
    if (count_ == 0 && room != 0) {
      add(own + skip, left - skip);
      return n;
    }
    for (size_t i = 0; i < count_; ++i) {
      if (room - n < 2) return n;
      const Piece& p = pieces_[(first_ + i) % pieces_max];
      add(own, p.before);
      own += p.before;
      left -= p.before;
      add(p.at, p.bytes);
    }
    if (n < room) add(own, left);
    return n;
  }
  // The first `count` bytes have left.
  void drop(size_t count) noexcept {
    WEFT_ASSERT(count <= size());
    while (count_ != 0 && count != 0) {
      Piece& p = piece(0);
      if (p.before != 0) {
        const size_t own = std::min(count, p.before);
        WEFT_ASSERT(placed_ >= own);
        own_.drop(own);
        p.before -= own;
        placed_ -= own;
        count -= own;
        continue;
      }
      const size_t theirs = std::min(count, p.bytes);
      p.at += theirs;
      p.bytes -= theirs;
      WEFT_ASSERT(referred_ >= theirs);
      referred_ -= theirs;
      count -= theirs;
      if (p.bytes != 0) return;
      first_ = (first_ + 1) % pieces_max;
      --count_;
    }
    if (count != 0) own_.drop(count);
    WEFT_ASSERT(placed_ <= own_.size() && (count_ != 0 || (placed_ == 0 && referred_ == 0)));
  }
  // Copies what it refers to: the program has its memory back. False: no memory; nothing has changed.
  bool keep() noexcept {
    if (count_ == 0) return true;
    Packer all(size());
    if (!all.reserve(size())) return false;
    std::array<iovec, 2 * pieces_max + 1> parts;
    size_t bytes = 0;
    const size_t n = front(parts.data(), parts.size(), 0, bytes);
    for (size_t i = 0; i < n; ++i) (void)all.put_bytes(parts[i].iov_base, parts[i].iov_len);
    WEFT_ASSERT(bytes == size() && all.size() == bytes);
    all.set_bound(own_.bound());
    own_ = std::move(all);
    forget_pieces();
    return true;
  }
  void clear() noexcept {
    own_.clear();
    forget_pieces();
  }

 private:
  struct Piece {
    size_t before;  // bytes of ours between the last piece and this one
    const std::byte* at;
    size_t bytes;
  };

  Piece& piece(size_t i) noexcept {
    WEFT_ASSERT(i < pieces_max && pieces_ != nullptr);
    return pieces_[(first_ + i) % pieces_max];
  }
  bool has_room(size_t pieces) noexcept {
    if (pieces_ == nullptr) pieces_.reset(new (std::nothrow) Piece[pieces_max]);
    return pieces_ != nullptr && pieces_max - count_ >= pieces;
  }
  void forget_pieces() noexcept {
    pieces_.reset();
    first_ = count_ = placed_ = referred_ = 0;
  }

  Packer own_;
  std::unique_ptr<Piece[]> pieces_;  // a ring; there once it was needed
  size_t first_ = 0;
  size_t count_ = 0;
  size_t placed_ = 0;    // bytes of ours that have a piece behind them
  size_t referred_ = 0;  // bytes of all pieces
};

}  // namespace weft::proto::stream
