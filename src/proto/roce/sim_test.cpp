// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Queue pairs in worlds of bad networks (sim_world.hpp). A failure prints the seed and the command that repeats it.
// WEFT_SIM_SEED runs one seed, WEFT_SIM_SEEDS says how many.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "proto/roce/sim_program.hpp"
#include "proto/roce/sim_unreliable.hpp"

namespace weft::proto::roce::sim {
namespace {

uint64_t number_from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t seeds = 500;
#else
constexpr uint64_t seeds = 2000;
#endif

TEST(RoceSim, EveryRequestInOrderExactlyOnce) {
  const uint64_t only = number_from_environment("WEFT_SIM_SEED", 0);
  const uint64_t count = only != 0 ? 1 : number_from_environment("WEFT_SIM_SEEDS", seeds);
  AdapterCounters sum;
  uint64_t paced = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t seed = only != 0 ? only : i + 1;
    World world(seed);
    const std::string wrong = world.run();
    ASSERT_EQ(wrong, "") << "seed " << seed << "; again: WEFT_SIM_SEED=" << seed
                         << " weft_proto_test --gtest_filter=RoceSim.*";
    for (const auto& node : world.nodes) {
      const AdapterCounters& c = node->adapter->counters();
      sum.sent += c.sent;
      sum.sent_again += c.sent_again;
      sum.duplicates += c.duplicates;
      sum.gaps += c.gaps;
      sum.ghosts += c.ghosts;
      sum.naks_received += c.naks_received;
      sum.timeouts += c.timeouts;
      sum.cnps_received += c.cnps_received;
      sum.repeated += c.repeated;
      sum.buffered += c.buffered;
      sum.aggregates += c.aggregates;
      for (const auto& end : node->ends) paced += end->qp->congestion->is_paced();
    }
  }
  if (count < 100) return;
  // The worlds were as bad as they should be.
  EXPECT_GT(sum.sent, count * 100);
  EXPECT_GT(sum.sent_again, count * 2);
  EXPECT_GT(sum.duplicates, count);
  EXPECT_GT(sum.gaps, count);
  EXPECT_GT(sum.ghosts, count / 2);
  EXPECT_GT(sum.naks_received, count / 2);
  EXPECT_GT(sum.timeouts, count / 10);
  EXPECT_GT(sum.cnps_received, count * 2);
  EXPECT_GT(sum.repeated, count);
  EXPECT_GT(sum.buffered, count * 2);
  EXPECT_GT(sum.aggregates, count * 5);
  EXPECT_GT(paced, count / 50);  // at the end
}

// The shorter way through the common cases sends the same packets at the same times, and completes the same.
TEST(RoceSim, CommonCasesSendTheSamePacketsAsTheGeneralPath) {
  const uint64_t count = number_from_environment("WEFT_SIM_SEEDS", seeds) / 4;
  for (uint64_t seed = 1; seed <= count; ++seed) {
    World common(seed);
    ASSERT_EQ(common.run(), "") << "seed " << seed;
    World general(seed, false);
    ASSERT_EQ(general.run(), "") << "seed " << seed;
    ASSERT_EQ(common.trace, general.trace) << "seed " << seed;
    for (size_t i = 0; i < 2; ++i) {
      const AdapterCounters& a = common.nodes[i]->adapter->counters();
      const AdapterCounters& b = general.nodes[i]->adapter->counters();
      ASSERT_EQ(std::memcmp(&a, &b, sizeof a), 0) << "counters, seed " << seed;
    }
  }
}

TEST(RoceSim, UnreliableMessagesUnharmedOrNotAtAll) {
  const uint64_t only = number_from_environment("WEFT_SIM_SEED", 0);
  const uint64_t count = only != 0 ? 1 : number_from_environment("WEFT_SIM_SEEDS", seeds);
  uint64_t delivered = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t seed = only != 0 ? only : i + 1;
    UnreliableWorld world(seed);
    const std::string wrong = world.run();
    ASSERT_EQ(wrong, "") << "seed " << seed << "; again: WEFT_SIM_SEED=" << seed
                         << " weft_proto_test --gtest_filter=RoceSim.*";
    delivered += world.delivered;
  }
  if (count >= 100) {
    EXPECT_GT(delivered, count * 100);
  }
}

}  // namespace
}  // namespace weft::proto::roce::sim
