// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Coalescer: which frames leave at once, and which wait for those that follow them before the next poll. Must not
// know what carries them.
//
// The first few frames since the last poll leave alone, so that a lone message is not held up. After a poll that
// ended a burst another burst is expected: then only its first frame leaves alone, and the rest shares a write or a
// message.
#pragma once

#include <cstdint>

#include "base/assert.hpp"

namespace weft::proto::stream {

template <uint8_t lone_frames>
class Coalescer {
 public:
  static constexpr uint32_t burst_frames = 16;

  // Whether the next frame may leave alone, if nothing waits before it.
  bool has_lone() const noexcept { return lone_ != 0; }
  // It does.
  void take_lone() noexcept {
    WEFT_ASSERT(has_lone());
    --lone_;
  }
  // A frame that tells a burst; a large one counts as several.
  void count(uint32_t weight = 1) noexcept { counted_ += weight; }
  // What waited has left, or been tried: the time before the next poll begins.
  void next_poll() noexcept {
    lone_ = counted_ >= burst_frames ? 1 : lone_frames;
    counted_ = 0;
  }

 private:
  uint8_t lone_ = lone_frames;
  uint32_t counted_ = 0;
};

}  // namespace weft::proto::stream
