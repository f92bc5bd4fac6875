// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "os/wall_clock.hpp"

#include <gtest/gtest.h>

#include "os/clock.hpp"

namespace weft::os {
namespace {

TEST(WallClock, TellsTheTimeOfDayOfAMoment) {
  WallClock clock;
  const uint64_t before = realtime_ns();
  const uint64_t moment = monotonic_ns();
  const uint64_t after = realtime_ns();
  // A comparison may lie between two slices of another process, and the time of day may be slewed.
  constexpr uint64_t allowed_ns = 1'000'000'000;
  EXPECT_GE(clock.at(moment) + allowed_ns, before);
  EXPECT_LE(clock.at(moment), after + allowed_ns);
  EXPECT_EQ(clock.at(moment), clock.at(moment));
}

TEST(WallClock, NeverGoesBackAcrossComparisons) {
  WallClock clock;
  uint64_t moment = monotonic_ns();
  uint64_t last = 0;
  for (int i = 0; i < 2000; ++i, moment += WallClock::valid_ns / 3) {
    const uint64_t time = clock.at(moment);
    EXPECT_GE(time, last);
    last = time;
  }
}

TEST(WallClock, KeepsTheDistanceOfMomentsBetweenTwoComparisons) {
  WallClock clock;
  const uint64_t moment = monotonic_ns();
  const uint64_t first = clock.at(moment);
  EXPECT_EQ(clock.at(moment + 1'000), first + 1'000);
  EXPECT_EQ(clock.at(moment + WallClock::valid_ns - 1), first + WallClock::valid_ns - 1);
}

}  // namespace
}  // namespace weft::os
