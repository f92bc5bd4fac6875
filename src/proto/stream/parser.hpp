// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Parser: an ordered run of bytes, in any pieces, to frames. Must not know what carries the bytes.
//
// A frame that is all there is handed over whole (on_frame). A large one that is still arriving is shown to the handler as soon as its head is
// there (Landing in proto/engine/link.hpp): the handler says where the rest belongs, and whoever reads the bytes may put them there by itself
// (landing(), landed()) or give them to feed() like all others. Nobody keeps a place between two calls: it is asked for again.
//
// Bytes are hostile: lengths are bounded, shapes checked. Memory: at most one frame that cannot be shown in parts, or one that was refused
// and what came with it: frame_bytes_max + head_bytes_max + the bytes of one feed().
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "proto/engine/link.hpp"
#include "proto/stream/head.hpp"
#include "proto/stream/packer.hpp"
#include "wire/frame.hpp"

namespace weft::proto::stream {

class Parser {
 public:
  // Frames below this are always collected and shown whole.
  static constexpr size_t part_bytes_min = 2048;

  explicit Parser(size_t frame_bytes_max) noexcept : frame_bytes_max_(frame_bytes_max), held_(SIZE_MAX) {}

  // 0, or what is wrong with this stream for good: EBADMSG (no frame), EMSGSIZE (a frame too long), ENOMEM.
  int error() const noexcept { return error_; }
  // A frame was refused: nothing should be taken before retry() has succeeded.
  bool stalled() const noexcept { return stalled_; }
  // In the middle of a frame.
  bool inside() const noexcept { return landing_ || !held_.empty(); }
  // Frames handed over so far, in whole or the last part of.
  uint64_t frames() const noexcept { return frames_; }

  // Takes the next bytes of the stream, all of them. False: error().
  template <class Handler, class Peer>
  bool feed(Handler& handler, Peer& peer, std::span<const std::byte> bytes) noexcept {
    while (!bytes.empty() && error_ == 0) {
      if (landing_) {
        bytes = bytes.subspan(place(handler, peer, bytes));
      } else if (stalled_) {
        hold(bytes);
        break;
      } else if (!held_.empty()) {
        const size_t more = std::min(missing(), bytes.size());
        if (!hold(bytes.first(more))) break;
        bytes = bytes.subspan(more);
        held_.drop(parse(handler, peer, held_.bytes()));
      } else {
        bytes = bytes.subspan(parse(handler, peer, bytes));
        if (landing_ || error_ != 0) continue;
        hold(bytes);
        break;
      }
    }
    return error_ == 0;
  }
  // Shows again what was refused. False: error().
  template <class Handler, class Peer>
  bool retry(Handler& handler, Peer& peer) noexcept {
    if (!stalled_) return error_ == 0;
    stalled_ = false;
    held_.drop(parse(handler, peer, held_.bytes()));
    return error_ == 0;
  }

  // A large frame is arriving: this many bytes of it are still to come; 0: none is.
  size_t landing() const noexcept { return landing_ ? rest_.length : 0; }
  // Where the next of them belong: perhaps fewer than landing(), then it is asked again. Nowhere (0 bytes): they are read and counted only.
  template <class Handler, class Peer>
  void where(Handler& handler, Peer& peer, Landing& out) noexcept {
    out = {};
    if constexpr (TakesParts<Handler, Peer>) {
      if (landing_) (void)handler.land(peer, rest_, nullptr, 0, out);
    }
  }
  // `bytes` more of them, landing() at most, are there.
  template <class Handler, class Peer>
  void landed(Handler& handler, Peer& peer, size_t bytes) noexcept {
    if constexpr (TakesParts<Handler, Peer>) {
      handler.landed(peer, rest_, bytes);
      if (rest_.length != 0) return;
      landing_ = false;
      ++frames_;
    }
  }

 private:
  // Frames from the front of `bytes`; returns how many bytes they were. Stops at one that is not all there and cannot land.
  template <class Handler, class Peer>
  size_t parse(Handler& handler, Peer& peer, std::span<const std::byte> bytes) noexcept {
    size_t used = 0;
    while (true) {
      const std::byte* at = bytes.data() + used;
      const size_t left = bytes.size() - used;
      wire::FrameHead head;
      size_t size = 0;
      const Unpacked unpacked = unpack_head(at, left, head, size);
      if (unpacked != Unpacked::Head) [[unlikely]] {
        if (unpacked == Unpacked::Malformed) error_ = EBADMSG;
        return used;
      }
      if (head.length > frame_bytes_max_) [[unlikely]] {
        error_ = EMSGSIZE;
        return used;
      }
      if (left - size >= head.length) [[likely]] {
        if (!handler.on_frame(peer, head, at + size)) [[unlikely]] {
          stalled_ = true;
          return used;
        }
        ++frames_;
        used += size + head.length;
        continue;
      }
      if constexpr (TakesParts<Handler, Peer>) {
        if (head.length >= part_bytes_min) {
          Landing unused;
          const Land answer = handler.land(peer, head, at + size, left - size, unused);
          stalled_ = answer == Land::Later;
          if (answer == Land::Here) {
            rest_ = head;
            landing_ = true;
            return bytes.size();
          }
        }
      }
      return used;
    }
  }

  // Copies bytes to where they belong; returns how many of them did.
  template <class Handler, class Peer>
  size_t place(Handler& handler, Peer& peer, std::span<const std::byte> bytes) noexcept {
    Landing to;
    where(handler, peer, to);
    const size_t count = std::min<size_t>({bytes.size(), rest_.length, to.bytes != 0 ? to.bytes : SIZE_MAX});
    const std::byte* from = bytes.data();
    size_t left = count;
    for (size_t i = 0; i < to.count && left > 0; ++i) {
      const size_t n = std::min(to.pieces[i].iov_len, left);
      if (n != 0) std::memcpy(to.pieces[i].iov_base, from, n);
      from += n;
      left -= n;
    }
    landed(handler, peer, count);
    return count;
  }

  // Bytes that are missing for the next step with what is held: a head, or a whole frame.
  size_t missing() const noexcept {
    const auto held = held_.bytes();
    if (held.size() < head_bytes_min) return head_bytes_min - held.size();
    wire::FrameHead head;
    size_t size = 0;
    if (unpack_head(held.data(), held.size(), head, size) == Unpacked::Head)
      return size + head.length - held.size();
    return size - held.size();
  }
  bool hold(std::span<const std::byte> bytes) noexcept {
    if (held_.put_bytes(bytes.data(), bytes.size())) return true;
    error_ = ENOMEM;
    return false;
  }

  size_t frame_bytes_max_;
  Packer held_;
  wire::FrameHead rest_{};
  uint64_t frames_ = 0;
  int error_ = 0;
  bool landing_ = false;
  bool stalled_ = false;
};

}  // namespace weft::proto::stream
