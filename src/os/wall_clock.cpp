// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Comparing the two clocks.
#include "os/wall_clock.hpp"

#include "os/clock.hpp"

namespace weft::os {

// The time of day is read between two readings of the other clock. A scheduler or an interrupt may come between them: the
// closest of a few pairs counts.
void WallClock::compare(uint64_t monotonic_ns) noexcept {
  constexpr int tries = 4;
  constexpr uint64_t close_ns = 500;
  uint64_t closest = UINT64_MAX;
  for (int i = 0; i < tries && closest > close_ns; ++i) {
    const uint64_t before = os::monotonic_ns();
    const uint64_t time = realtime_ns();
    const uint64_t between = os::monotonic_ns() - before;
    if (between >= closest) continue;
    closest = between;
    offset_ = time - (before + between / 2);
  }
  valid_until_ = monotonic_ns + valid_ns;
}

}  // namespace weft::os
