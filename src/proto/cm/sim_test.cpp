// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connections over bad networks (sim_world.hpp). WEFT_SIM_SEED runs one seed, WEFT_SIM_SEEDS says how many.
#include <gtest/gtest.h>

#include <cstdlib>

#include "proto/cm/sim_world.hpp"

namespace weft::proto::cm::sim {
namespace {

uint64_t number_from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

TEST(CmSim, EveryConnectionBeginsOnceAndEnds) {
  const uint64_t only = number_from_environment("WEFT_SIM_SEED", 0);
  const uint64_t count = only != 0 ? 1 : number_from_environment("WEFT_SIM_SEEDS", 2000);
  Statistics sum;
  uint64_t established = 0, timed_out = 0, messages = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t seed = only != 0 ? only : i + 1;
    World world(seed);
    const std::string wrong = world.run();
    ASSERT_EQ(wrong, "") << "seed " << seed << "; again: WEFT_SIM_SEED=" << seed
                         << " weft_proto_test --gtest_filter=CmSim.*";
    messages += world.messages;
    for (const auto& host : world.hosts) {
      const Statistics& s = host->manager.statistics();
      sum.ignored += s.ignored;
      sum.duplicates += s.duplicates;
      sum.repeated += s.repeated;
      sum.refused += s.refused;
    }
    for (const auto& [key, end] : world.ends) {
      established += end.established;
      timed_out += end.timed_out;
    }
  }
  std::printf(
      "%lu messages, %lu ends established, %lu timed out; %lu duplicates, %lu ignored, %lu repeated, %lu "
      "refused\n",
      messages, established, timed_out, sum.duplicates, sum.ignored, sum.repeated, sum.refused);
  if (count < 100) return;
  // The worlds were as bad as they should be.
  EXPECT_GT(established, count * 5);
  EXPECT_GT(sum.duplicates, count);
  EXPECT_GT(sum.repeated, count);
  EXPECT_GT(sum.ignored, count / 2);
  EXPECT_GT(sum.refused, count / 4);
}

}  // namespace
}  // namespace weft::proto::cm::sim
