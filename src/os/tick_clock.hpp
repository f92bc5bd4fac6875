// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// TickClock: CLOCK_MONOTONIC read through the time stamp counter: half of the time of clock_gettime(2), for loops that ask for
// the time with every packet. Must not know who asks.
#pragma once

#include <cstdint>

#include "arch/cpu.hpp"

namespace weft::os {

// Never goes back. Behind or before CLOCK_MONOTONIC by what the counter's rate is wrong in a millisecond (less than a
// microsecond where the counter is steady; where the CPU does not promise that, each call asks the system). One thread at a
// time.
class TickClock {
 public:
  TickClock() noexcept;
  uint64_t now() noexcept {
    const uint64_t since = arch::ticks() - ticks_;
    if (since < valid_ticks_) [[likely]]
      return ns_ + scaled(since);
    return check();
  }

 private:
  static constexpr uint64_t valid_ns = 1'000'000;

  // Below valid_ticks_ * 2^32 there is no overflow: valid_ns * 2^32 < 2^64.
  uint64_t scaled(uint64_t ticks) const noexcept { return (ticks * ns_per_tick_) >> 32; }
  uint64_t check() noexcept;

  uint64_t ticks_ = 0;        // of ns_
  uint64_t ns_ = 0;           // the last time that the system said
  uint64_t valid_ticks_ = 0;  // from then on; 0: the rate is not known
  uint64_t ns_per_tick_ = 0;  // in units of 2^-32
  // Cold below.
  bool is_steady_;
  uint64_t mark_ticks_ = 0;  // where the measuring of the rate began
  uint64_t mark_ns_ = 0;
};

}  // namespace weft::os
