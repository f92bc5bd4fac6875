// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of the rate of the time stamp counter and of the warnings, which need neither clocks nor endpoints.
#include "link/shm/tick_rate.hpp"

#include <gtest/gtest.h>

#include <string>

#include "link/shm/warnings.hpp"

namespace weft::link::shm {
namespace {

TEST(ShmTickRate, IsMeasuredAgainstTheClock) {
  TickRate rate;
  EXPECT_NE(rate.stale_ticks(), 0U);
  rate.start(1000, 5'000'000);
  const uint64_t before = rate.stale_ticks();
  rate.measure(2'000'000, 5'500'000);  // too early to tell
  EXPECT_EQ(rate.stale_ticks(), before);
  rate.measure(1000 + 30'000'000, 15'000'000);  // 10 ms of 3 GHz
  EXPECT_EQ(rate.stale_ticks(), 3000 * TickRate::stale_us);
  EXPECT_DOUBLE_EQ(rate.ticks_in_us(), 3000.0);
  EXPECT_EQ(rate.ns(6'000'000), 2'000'000U);
}

TEST(ShmWarnings, EachKindIsSaidOnceUntilItIsOver) {
  std::string lines;
  Warnings warnings;
  warnings.once(Warnings::User, "lost");
  EXPECT_FALSE(warnings.was_said(Warnings::User));  // nobody has read it
  warnings.set(
      [](const void* who, const char* line) {
        *static_cast<std::string*>(const_cast<void*>(who)) += std::string(line) + "\n";
      },
      &lines);
  warnings.once(Warnings::User, "a");
  warnings.once(Warnings::User, "b");
  warnings.once(Warnings::Memory, "c");
  warnings.say("d");
  warnings.say("d");
  warnings.again(Warnings::User);
  warnings.once(Warnings::User, "e");
  EXPECT_EQ(lines, "a\nc\nd\nd\ne\n");
}

}  // namespace
}  // namespace weft::link::shm
