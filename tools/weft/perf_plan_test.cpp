// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The arithmetic of `weft perf`: sizes, steps, medians, and that a result survives its way between the
// processes.
#include "perf_plan.hpp"

#include <gtest/gtest.h>

#include "failure.hpp"

namespace weft::tool {
namespace {

using Sizes = std::vector<size_t>;

TEST(Sizes, lists_ranges_and_units) {
  EXPECT_EQ(parse_sizes("8"), (Sizes{8}));
  EXPECT_EQ(parse_sizes("0,1k,2M"), (Sizes{0, 1024, 2 << 20}));
  EXPECT_EQ(parse_sizes("16:128"), (Sizes{16, 32, 64, 128}));
  EXPECT_EQ(parse_sizes("0:4"), (Sizes{0, 1, 2, 4}));
  EXPECT_EQ(parse_sizes("3:10,1m"), (Sizes{3, 6, 1 << 20}));
  EXPECT_EQ(parse_sizes("4g"), (Sizes{size_t{4} << 30}));
}

TEST(Sizes, nonsense_is_refused_with_the_status_of_usage) {
  for (const char* text : {"", "x", "8k8", "8,", "-1", "8:4", "5g", "99999999999999999999", "1:2:3"}) {
    try {
      parse_sizes(text);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.status(), exit_usage) << text;
    }
  }
}

TEST(Sizes, are_shown_in_the_largest_whole_unit) {
  EXPECT_EQ(size_text(8), "8 B");
  EXPECT_EQ(size_text(1024), "1 KiB");
  EXPECT_EQ(size_text(1025), "1025 B");
  EXPECT_EQ(size_text(3 << 20), "3 MiB");
}

TEST(Steps, every_provider_with_every_test_and_size) {
  PerfOptions options;
  options.providers = {"a", "b"};
  options.tests = {"tagged-rate", "rma-read-bw"};
  options.sizes = {8, 64, 512};
  const std::vector<Step> steps = steps_of(options);
  ASSERT_EQ(steps.size(), 12u);
  EXPECT_EQ(steps.front().provider, "a");
  EXPECT_EQ(steps.back().provider, "b");
  EXPECT_TRUE(steps.back().test->read);
  EXPECT_EQ(steps.back().size, 512u);
}

TEST(Steps, a_test_brings_its_usual_sizes) {
  PerfOptions options;
  options.providers = {"a"};
  options.tests = {"tagged-rate"};
  ASSERT_EQ(steps_of(options).size(), 1u);
  EXPECT_EQ(steps_of(options)[0].size, 8u);
}

TEST(Steps, an_unknown_test_is_refused) { EXPECT_THROW(test_named("tagged-pong"), Failure); }

TEST(Figures, median_least_and_most) {
  Result result;
  EXPECT_EQ(result.median(), 0);
  result.samples = {5, 1, 9};
  EXPECT_EQ(result.median(), 5);
  EXPECT_EQ(result.least(), 1);
  EXPECT_EQ(result.most(), 9);
  result.samples.push_back(6);
  EXPECT_EQ(result.median(), 5.5);
}

TEST(Figures, a_result_survives_json) {
  Result result;
  result.provider = "p;q";
  result.fabric = "f";
  result.domain = "d";
  result.test = "rma-write-bw";
  result.size = 4096;
  result.unit = Unit::bandwidth;
  result.iters = 77;
  result.operation = "fi_write";
  result.samples = {1.5, 2.5};
  result.voluntary_switches = 3;
  result.involuntary_switches = 4;
  result.copies =
      CopyWays{"both", "measured", {{{40, 12'300}, {9, 0}, {500, 9'870}}}, 2, 18, 1, 1'000'000, 5'000};
  const Result again = result_from(nlohmann::json::parse(to_json(result).dump()));
  EXPECT_EQ(to_json(again), to_json(result));
  EXPECT_EQ(again.unit, Unit::bandwidth);
}

TEST(Figures, the_way_of_large_messages_in_one_line) {
  const CopyWays copies{"both",    "measured", {{{40, 12'300}, {9, 0}, {500, 9'870}}}, 2, 18, 1,
                        1'000'000, 5'000};
  EXPECT_EQ(
      copies_text(copies),
      "copied by both (measured): ring 40 messages of 12.30 us, receiver 9 messages, both 500 messages of "
      "9.87 us; 2 trials cost 0.50 %");
  EXPECT_EQ(copies_text({"ring", "only way", {{{7, 0}, {}, {}}}}),
            "copied by ring (only way): ring 7 messages");
}

}  // namespace
}  // namespace weft::tool
