// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// WallClock: the time of day of moments that CLOCK_MONOTONIC has stamped. Must not know what happened then.
#pragma once

#include <cstdint>

namespace weft::os {

// Later moments have later times of day, also where the two clocks are compared anew between them, unless the clock was set
// back by step_ns or more. One thread at a time.
class WallClock {
 public:
  static constexpr uint64_t valid_ns = 100'000'000;  // from one comparison of the clocks to the next
  static constexpr uint64_t step_ns = 1'000'000'000;

  // `monotonic_ns`: a moment that is over; moments come in their order. In ns since the epoch.
  uint64_t at(uint64_t monotonic_ns) noexcept {
    if (monotonic_ns >= valid_until_) [[unlikely]]
      compare(monotonic_ns);
    const uint64_t time = monotonic_ns + offset_;
    if (time < last_ && last_ - time < step_ns) [[unlikely]]
      return last_;
    return last_ = time;
  }

 private:
  void compare(uint64_t monotonic_ns) noexcept;

  uint64_t offset_ = 0;  // modulo 2^64
  uint64_t valid_until_ = 0;
  uint64_t last_ = 0;
};

}  // namespace weft::os
