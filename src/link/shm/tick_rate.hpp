// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The rate of the time stamp counter, measured against the clock, and the time after which a stamp says nothing more about a sender. Must not know what is
// stamped; the caller reads both clocks.
#pragma once

#include <cstdint>

namespace weft::link::shm {

class TickRate {
 public:
  static constexpr uint64_t stale_us = 30;

  void start(uint64_t ticks, uint64_t now_ns) noexcept {
    first_ticks_ = ticks;
    first_ns_ = now_ns;
  }
  // From time to time: the longer after start(), the better it is known.
  void measure(uint64_t ticks, uint64_t now_ns) noexcept {
    const uint64_t elapsed_us = (now_ns - first_ns_) / 1000;
    if (elapsed_us > 1000) stale_ticks_ = (ticks - first_ticks_) / elapsed_us * stale_us;
  }
  // Age of a stamp beyond which the sender is taken to be elsewhere: stale_us.
  uint64_t stale_ticks() const noexcept { return stale_ticks_; }
  double ticks_in_us() const noexcept { return static_cast<double>(stale_ticks_) / stale_us; }
  uint64_t ns(uint64_t ticks) const noexcept {
    const double ns_of_tick = 1000.0 * stale_us / static_cast<double>(stale_ticks_);
    return static_cast<uint64_t>(static_cast<double>(ticks) * ns_of_tick);
  }

 private:
  uint64_t first_ticks_ = 0;
  uint64_t first_ns_ = 0;
  uint64_t stale_ticks_ = 60'000;  // until the rate is known: of a counter of 2 GHz
};

}  // namespace weft::link::shm
