// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "os/tick_clock.hpp"

#include <gtest/gtest.h>
#include <time.h>

#include "os/clock.hpp"

namespace weft::os {
namespace {

constexpr uint64_t ms = 1'000'000;

void rest(uint64_t ns) {
  const timespec time{0, static_cast<long>(ns)};
  nanosleep(&time, nullptr);
}

TEST(TickClock, NeverGoesBackAndStaysBesideTheSystem) {
  TickClock clock;
  uint64_t last = 0;
  uint64_t checks = 0;
  uint64_t near = 0;
  for (const uint64_t end = monotonic_ns() + 100 * ms; monotonic_ns() < end; ++checks) {
    const uint64_t before = monotonic_ns();
    const uint64_t now = clock.now();
    const uint64_t after = monotonic_ns();
    ASSERT_GE(now, last);
    last = now;
    near += now + 5'000 >= before && now <= after + 5'000;
  }
  // A look that was interrupted says something wrong for a millisecond.
  EXPECT_GE(near, checks - checks / 5);
}

TEST(TickClock, IsRightAfterAPause) {
  TickClock clock;
  for (const uint64_t pause : {5 * ms, 50 * ms, 3 * ms}) {
    (void)clock.now();
    rest(pause);
    const uint64_t before = monotonic_ns();
    const uint64_t now = clock.now();
    EXPECT_GE(now + 5'000, before);
    EXPECT_LE(now, monotonic_ns() + 5'000);
  }
}

}  // namespace
}  // namespace weft::os
