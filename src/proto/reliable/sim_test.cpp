// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The reliable core in worlds of bad networks (sim_world.hpp). A failure prints the seed and the command that repeats it. WEFT_SIM_SEED runs
// one seed, WEFT_SIM_SEEDS says how many.
#include <gtest/gtest.h>

#include <cstdlib>

#include "proto/reliable/sim_world.hpp"

namespace weft::proto::reliable::sim {
namespace {

uint64_t number_from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

TEST(ReliableSim, EveryByteInOrderExactlyOnce) {
  const uint64_t only = number_from_environment("WEFT_SIM_SEED", 0);
  const uint64_t count = only != 0 ? 1 : number_from_environment("WEFT_SIM_SEEDS", 400);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t seed = only != 0 ? only : i + 1;
    World world(seed);
    world.rules.in_place = seed % 2 == 0;
    world.choices = Random(seed);
    const std::string wrong = world.run();
    ASSERT_EQ(wrong, "") << "seed " << seed << "; again: WEFT_SIM_SEED=" << seed
                         << " weft_proto_test --gtest_filter=ReliableSim.*";
  }
}

}  // namespace
}  // namespace weft::proto::reliable::sim
