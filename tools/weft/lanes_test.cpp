// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What several lanes come to together.
#include "lanes.hpp"

#include <gtest/gtest.h>

namespace weft::tool {
namespace {

constexpr int64_t ms = 1'000'000;

Step step_of(const char* test, size_t size) { return {"shm", &test_named(test), size}; }

TEST(Lanes, RatesAndBandwidthsAreOfTheWholeTime) {
  // 1000 messages each; the second starts and ends later.
  const std::vector<LaneRun> runs = {{0, 10 * ms}, {10 * ms, 20 * ms}};
  EXPECT_DOUBLE_EQ(figure_of_all(step_of("tagged-rate", 8), runs, 1000), 0.1);
  EXPECT_DOUBLE_EQ(figure_of_all(step_of("tagged-bw", 1'000'000), runs, 1000), 100);
  EXPECT_DOUBLE_EQ(figure_of_all(step_of("tagged-rate", 8), {{0, 10 * ms}, {0, 10 * ms}}, 1000), 0.2);
  EXPECT_EQ(figure_of_all(step_of("tagged-rate", 8), {}, 1000), 0);
}

TEST(Lanes, LatenciesAreTheMean) {
  const std::vector<LaneRun> runs = {{0, 2 * ms}, {1 * ms, 5 * ms}};
  EXPECT_DOUBLE_EQ(figure_of_all(step_of("tagged-pingpong", 8), runs, 1000), 1500) << "half of a round trip";
  EXPECT_DOUBLE_EQ(figure_of_all(step_of("rma-read-lat", 8), runs, 1000), 3000);
}

TEST(Lanes, TheSlowestAndTheFastest) {
  Result result;
  result.test = "tagged-rate";
  EXPECT_EQ(result.fairness(), 1) << "one alone is treated well";
  result.lanes = {4, 1, 2};
  EXPECT_EQ(result.lane_least(), 1);
  EXPECT_EQ(result.lane_most(), 4);
  EXPECT_DOUBLE_EQ(result.fairness(), 0.25);
  EXPECT_EQ(result_from(nlohmann::json::parse(to_json(result).dump())).lanes, result.lanes);
  EXPECT_NE(csv_line(result, "l").find(",3,1,4"), std::string::npos);
}

}  // namespace
}  // namespace weft::tool
