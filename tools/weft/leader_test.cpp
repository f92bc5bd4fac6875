// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Warming up, with runs that only say what they took.
#include "leader.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace weft::tool {
namespace {

Step pingpong() { return {"shm", &test_named("tagged-pingpong"), 4096}; }

TEST(Warming, EndsWhenTheTimesAreStable) {
  PerfOptions options;
  options.repeat_ms = 30;
  // The first 250 messages take 30 us each, the later ones 1 us.
  uint64_t sent = 0;
  const auto run = [&](uint64_t, uint64_t iters) {
    double us = 0;
    for (uint64_t i = 0; i < iters; ++i) us += ++sent <= 250 ? 30 : 1;
    return us * 1e-6;
  };
  const Warmth warmth = warm_up(options, pingpong(), 64, 1000, run);  // as calibrated with cold messages
  EXPECT_TRUE(warmth.is_stable);
  EXPECT_GE(sent, 250u + 3 * 125);
  EXPECT_NEAR(static_cast<double>(warmth.iters), 30'000, 300);
}

TEST(Warming, GivesUpInTime) {
  PerfOptions options;
  double at = 1e-6;
  double spent = 0;
  const auto run = [&](uint64_t, uint64_t iters) {
    at *= 1.5;
    spent += at * static_cast<double>(iters);
    return at * static_cast<double>(iters);
  };
  const Warmth warmth = warm_up(options, pingpong(), 64, 80, run);
  EXPECT_FALSE(warmth.is_stable);
  EXPECT_GE(spent, warming_s_max);
  EXPECT_LT(spent, 3 * warming_s_max);
  EXPECT_GE(warmth.iters, 1u);
}

TEST(Warming, AStreamIsWarmedByWholeWindows) {
  PerfOptions options;
  std::vector<uint64_t> runs;
  const auto run = [&](uint64_t, uint64_t iters) {
    runs.push_back(iters);
    return 1e-6 * static_cast<double>(iters);
  };
  const Step step{"shm", &test_named("tagged-bw"), 1 << 20};
  EXPECT_TRUE(warm_up(options, step, 64, 10, run).is_stable);
  for (const uint64_t iters : runs) EXPECT_EQ(iters, 64u);
}

TEST(Warming, TheKernelTellsWhatAThreadWaited) {
  const Switches now = switches_now();
  if (now.waited_ns < 0) GTEST_SKIP() << "no /proc/thread-self/schedstat";
  EXPECT_GE(switches_now().waited_ns, now.waited_ns);
}

}  // namespace
}  // namespace weft::tool
