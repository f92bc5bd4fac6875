// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What two libraries came to, out of reports that are written here.
#include "perf_compare.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "failure.hpp"
#include "temporary.hpp"

namespace weft::tool {
namespace {

nlohmann::json report(const char* library, const char* test, size_t size, double sample, double line = 0) {
  Result result;
  result.provider = "shm";
  result.test = test;
  result.size = size;
  result.unit = test_named(test).unit;
  result.samples = {sample};
  result.line_before_ns = result.line_after_ns = line;
  return {{"library", library},
          {"api", "1.17"},
          {"where", "two"},
          {"results", {to_json(result)}},
          {"refused", nlohmann::json::array()},
          {"failed", nlohmann::json::array()}};
}

TEST(Compare, RoundsAreGatheredByWhatWasAskedFor) {
  Compared compared;
  for (const double sample : {100.0, 300.0, 200.0}) {
    compared.add(0, "shm", report("/ours", "tagged-pingpong", 8, sample));
    compared.add(1, "shm", report("/theirs", "tagged-pingpong", 8, 2 * sample));
  }
  compared.add(0, "shm", report("/ours", "tagged-pingpong", 64, 5));
  compared.add(0, "tcp", report("/ours", "tagged-pingpong", 8, 7));
  ASSERT_EQ(compared.rows().size(), 3U);
  const Compared::Row& row = compared.rows()[0];
  EXPECT_EQ(row.results[0].samples.size(), 3U);
  EXPECT_EQ(row.results[1].median(), 400);
  EXPECT_DOUBLE_EQ(row.ratio(), 2);
  EXPECT_EQ(compared.rows()[1].ratio(), 0) << "the other has not measured it";
  EXPECT_EQ(compared.libraries()[1], "/theirs (API 1.17)");
  const nlohmann::json document = to_json(compared);
  EXPECT_TRUE(document["results"][1]["other"].is_null());
  EXPECT_EQ(document["results"][0]["weft"]["median"], 200);
}

TEST(Compare, ALargerRateIsFaster) {
  Compared compared;
  compared.add(0, "shm", report("a", "tagged-rate", 8, 6));
  compared.add(1, "shm", report("b", "tagged-rate", 8, 2));
  EXPECT_DOUBLE_EQ(compared.rows()[0].ratio(), 3);
}

TEST(Compare, ARoundThatWasColdMarksTheRatio) {
  Compared compared;
  for (const bool is_cold : {false, true, false}) {
    nlohmann::json one = report("a", "tagged-rate", 8, 6);
    one["results"][0]["cold"] = is_cold;
    compared.add(0, "shm", one);
    compared.add(1, "shm", report("b", "tagged-rate", 8, 2));
  }
  EXPECT_EQ(compared.rows()[0].marks(), "cold (Weft)");
  EXPECT_EQ(to_json(compared)["results"][0]["marks"], "cold (Weft)");
  nlohmann::json busy = report("b", "tagged-rate", 8, 2);
  busy["results"][0]["waited"] = 0.5;
  compared.add(1, "shm", busy);
  EXPECT_EQ(compared.rows()[0].marks(), "cold (Weft); CPUs shared with other work");
}

TEST(Compare, ThePlacementOfAllIsShown) {
  Compared compared;
  compared.add(0, "shm", report("a", "tagged-rate", 8, 6));
  EXPECT_EQ(compared.placement(), "placement unknown");
  compared.add(0, "shm", report("a", "tagged-rate", 16, 6, 60));
  EXPECT_EQ(compared.placement(), "CPUs near, 60 ns");
  compared.add(1, "shm", report("b", "tagged-rate", 16, 6, 250));
  EXPECT_EQ(compared.placement(), "CPUs moved, 60 to 250 ns");
}

TEST(Compare, ALibraryThatIsNotThereIsRefusedBeforeAnythingIsMeasured) {
  const TemporaryFolder folder("weft-compare");
  EXPECT_EQ(folder_of_library("stock"), "");
  for (const std::string& bad :
       {std::string("/nowhere"), folder.path().string(), (folder / "libc.so.6").string()}) {
    try {
      folder_of_library(bad);
      ADD_FAILURE() << bad;
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.status(), exit_usage);
    }
  }
  std::ofstream(folder / "libfabric.so.1") << "x";
  EXPECT_EQ(folder_of_library(folder.path().string()), folder.path().string());
  EXPECT_EQ(folder_of_library((folder / "libfabric.so.1").string()), folder.path().string());
  EXPECT_THROW(folder_of_library(folder.path().string(), true), Failure)
      << "tests of verbs run on libibverbs";
  EXPECT_THROW(folder_of_library((folder / "libfabric.so.1").string(), true), Failure);
  std::ofstream(folder / "libibverbs.so.1") << "x";
  EXPECT_EQ(folder_of_library(folder.path().string(), true), folder.path().string());
  EXPECT_EQ(folder_of_library((folder / "libibverbs.so.1").string(), true), folder.path().string());
}

}  // namespace
}  // namespace weft::tool
