// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The arithmetic of `weft perf`: sizes, steps, medians, and that a result survives its way between the
// processes.
#include "perf_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "failure.hpp"

namespace weft::tool {
namespace {

using Sizes = std::vector<size_t>;

TEST(Sizes, ListsRangesAndUnits) {
  EXPECT_EQ(parse_sizes("8"), (Sizes{8}));
  EXPECT_EQ(parse_sizes("1,1k,2M"), (Sizes{1, 1024, 2 << 20}));
  EXPECT_EQ(parse_sizes("16:128"), (Sizes{16, 32, 64, 128}));
  EXPECT_EQ(parse_sizes("1:4"), (Sizes{1, 2, 4}));
  EXPECT_EQ(parse_sizes("3:10,1m"), (Sizes{3, 6, 1 << 20}));
  EXPECT_EQ(parse_sizes("4g"), (Sizes{size_t{4} << 30}));
}

TEST(Sizes, NonsenseIsRefusedWithTheStatusOfUsage) {
  for (const char* text : {"",      "x",   "8k8",   "8,",   "-1",    "8:4",  "5g",   "99999999999999999999",
                           "1:2:3", "0",   "0:8",   "8,0k", "4097m", "64kb", "64 k", "k",
                           "0x10",  "1e3", "8,,16", ":8"}) {
    try {
      parse_sizes(text);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.status(), exit_usage) << text;
    }
  }
}

TEST(Sizes, AreShownInTheLargestWholeUnit) {
  EXPECT_EQ(size_text(8), "8 B");
  EXPECT_EQ(size_text(1024), "1 KiB");
  EXPECT_EQ(size_text(1025), "1025 B");
  EXPECT_EQ(size_text(3 << 20), "3 MiB");
}

TEST(Steps, EveryProviderWithEveryTestAndSize) {
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

TEST(Steps, ATestBringsItsUsualSizes) {
  PerfOptions options;
  options.providers = {"a"};
  options.tests = {"tagged-rate"};
  ASSERT_EQ(steps_of(options).size(), 1u);
  EXPECT_EQ(steps_of(options)[0].size, 8u);
}

TEST(Steps, AnUnknownTestIsRefused) { EXPECT_THROW(test_named("tagged-pong"), Failure); }

TEST(Figures, MedianLeastAndMost) {
  Result result;
  EXPECT_EQ(result.median(), 0);
  result.samples = {5, 1, 9};
  EXPECT_EQ(result.median(), 5);
  EXPECT_EQ(result.least(), 1);
  EXPECT_EQ(result.most(), 9);
  result.samples.push_back(6);
  EXPECT_EQ(result.median(), 5.5);
}

TEST(Figures, AResultSurvivesJson) {
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
      CopyPathCounts{"both", "measured", {{{40, 12'300}, {9, 0}, {500, 9'870}}}, 2, 18, 1, 1'000'000, 5'000};
  const Result again = result_from(nlohmann::json::parse(to_json(result).dump()));
  EXPECT_EQ(to_json(again), to_json(result));
  EXPECT_EQ(again.unit, Unit::bandwidth);
}

TEST(Figures, WhatMakesAFigureDoubtfulIsMarked) {
  Result result;
  result.test = "tagged-pingpong";
  result.samples = {1};
  EXPECT_EQ(marks_text(result), "");
  EXPECT_EQ(result_from(to_json(result)).waited, -1);
  result.waited = shared_share;
  EXPECT_EQ(marks_text(result), "");
  Result other = result;
  other.waited = 0.3;
  EXPECT_EQ(marks_text(other), "CPUs shared with other work");
  result.is_cold = true;
  EXPECT_EQ(marks_text(result), "cold");
  EXPECT_EQ(marks_text(result, other), "cold (Weft); CPUs shared with other work");
  EXPECT_EQ(marks_text(other, result), "cold (other); CPUs shared with other work");
  const Result again = result_from(to_json(other));
  EXPECT_EQ(again.waited, 0.3);
  EXPECT_FALSE(again.is_cold);
  EXPECT_TRUE(result_from(to_json(result)).is_cold);
  EXPECT_TRUE(csv_line(other, "").ends_with(",no,0.3000")) << csv_line(other, "");
}

TEST(Figures, TheWayOfLargeMessagesInOneLine) {
  const CopyPathCounts copies{"both",    "measured", {{{40, 12'300}, {9, 0}, {500, 9'870}}}, 2, 18, 1,
                              1'000'000, 5'000};
  EXPECT_EQ(
      copies_text(copies),
      "copied by both (measured): ring 40 messages of 12.30 us, receiver 9 messages, both 500 messages of "
      "9.87 us; 2 trials cost 0.50 %");
  EXPECT_EQ(copies_text({"ring", "only way", {{{7, 0}, {}, {}}}}),
            "copied by ring (only way): ring 7 messages");
}

TEST(Times, AStepIsAtMostASixteenthOfItsValue) {
  size_t before = 0;
  for (uint64_t ns = 0; ns < 100'000; ++ns) {
    const size_t bucket = Histogram::bucket_of(ns);
    EXPECT_GE(bucket, before);
    before = bucket;
    EXPECT_LE(Histogram::begin_of(bucket), ns);
    EXPECT_GT(Histogram::begin_of(bucket + 1), ns);
    EXPECT_LE((Histogram::begin_of(bucket + 1) - Histogram::begin_of(bucket)) * 16,
              std::max<uint64_t>(ns, 16));
  }
  EXPECT_LT(Histogram::bucket_of(~uint64_t{0}), Histogram::buckets_count);
}

TEST(Times, QuantilesAreThoseOfWhatWasAdded) {
  Histogram times;
  EXPECT_EQ(times.quantile(0.5), 0);
  for (uint64_t ns = 1; ns <= 1000; ++ns) times.add(ns);
  EXPECT_NEAR(times.quantile(0.5), 500, 32);
  EXPECT_NEAR(times.quantile(0.99), 990, 32);
  EXPECT_EQ(times.quantile(1), 1000);
  times.add(1'000'000);
  EXPECT_EQ(times.largest(), 1'000'000U);
  Histogram more;
  more.add(times);
  more.add(Histogram());
  EXPECT_EQ(more.count(), 1001U);
  EXPECT_EQ(more.quantile(0.5), times.quantile(0.5));
}

TEST(Times, AResultKeepsThem) {
  Result result;
  result.test = "rma-read-lat";
  result.samples = {1};
  result.times.emplace();
  for (uint64_t ns : {100, 200, 200, 70'000}) result.times->add(ns);
  const Result again = result_from(to_json(result));
  ASSERT_TRUE(again.times);
  EXPECT_EQ(again.times->count(), 4U);
  EXPECT_EQ(again.times->largest(), 70'000U);
  EXPECT_EQ(again.times->steps_taken(), result.times->steps_taken());
  EXPECT_FALSE(result_from(to_json([] {
                 Result r;
                 r.test = "msg-rate";
                 return r;
               }()))
                   .times);
}

TEST(Csv, HasAsManyFieldsAsNamesAndQuotesWhatNeedsIt) {
  Result result;
  result.provider = "tcp;ofi_rxm";
  result.test = "rma-write-bw";
  result.operation = "fi_write, delivery \"complete\"";
  const std::string line = csv_line(result, "/a/b");
  EXPECT_NE(line.find("\"fi_write, delivery \"\"complete\"\"\""), std::string::npos) << line;
  const std::string head = csv_head();
  EXPECT_EQ(std::count(line.begin(), line.end(), ','), std::count(head.begin(), head.end(), ',') + 1) << line;
  result.times.emplace();
  result.times->add(5);
  EXPECT_NE(csv_line(result, "").find(",5,5,5,5,5,"), std::string::npos);
}

TEST(Steps, AtomicOperationsHaveTheirSize) {
  PerfOptions options;
  options.providers = {"a"};
  options.tests = {"atomic-lat"};
  ASSERT_EQ(steps_of(options).size(), 1u);
  EXPECT_EQ(steps_of(options)[0].size, atomic_bytes);
  EXPECT_TRUE(test_named("atomic-lat").is_round_trip());
  EXPECT_FALSE(test_named("rma-write-lat").is_round_trip());
}

}  // namespace
}  // namespace weft::tool
