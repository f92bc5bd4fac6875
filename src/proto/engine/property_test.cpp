// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Random programs over engines that are linked in memory, checked against a model (sim_world.hpp). A failure prints the seed and the
// command that repeats it. WEFT_SEED runs one seed, WEFT_SEEDS says how many.
#include <gtest/gtest.h>

#include <cstdlib>

#include "proto/engine/sim_world.hpp"

namespace weft::proto::sim {
namespace {

uint64_t number_from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

template <class L>
class EngineProperty : public testing::Test {};
using Links = testing::Types<PlainLink, RichLink, CreditLink, FastLink, LateLink, ReferringLink>;

class LinkNames {
 public:
  template <class L>
  static std::string GetName(int) {
    return HasZeroCopyFrames<L>   ? "ReferringLink"
           : HasSendCompletion<L> ? "LateLink"
           : HasFastPoll<L>       ? "FastLink"
           : has_small_credit<L>  ? "CreditLink"
           : HasSmallFrames<L>    ? "RichLink"
                                  : "PlainLink";
  }
};
TYPED_TEST_SUITE(EngineProperty, Links, LinkNames);

TYPED_TEST(EngineProperty, RandomProgramsEndAsTheModelSays) {
  const uint64_t only = number_from_environment("WEFT_SEED", 0);
  Shortcuts all;
  // A fast poll finds a message that a receive waits for once in some thousand programs.
  const uint64_t wanted = number_from_environment("WEFT_SEEDS", 2500) * (HasFastPoll<TypeParam> ? 10 : 1);
  const uint64_t count = only != 0 ? 1 : wanted;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t seed = only != 0 ? only : i + 1;
    World<TypeParam> world(seed, [](bool on) { starving = on; });
    const std::string wrong = world.run(60 + static_cast<int>(seed % 7) * 60);
    ASSERT_EQ(wrong, "") << "seed " << seed << "; again: WEFT_SEED=" << seed
                         << " weft_proto_test --gtest_filter=EngineProperty/*";
    all += world.shortcuts();
  }
  if (count < 2500) return;
  // The programs run what users run.
  EXPECT_NE(all.short_frames, 0u);
  EXPECT_EQ(all.small_frames != 0, HasSmallFrames<TypeParam>);
  EXPECT_EQ(all.fast_frames != 0, HasFastPoll<TypeParam>);
  EXPECT_EQ(all.fast_nothing != 0, HasFastPoll<TypeParam>);
  EXPECT_EQ(all.loans != 0, HasLoans<TypeParam>);
  EXPECT_EQ(all.reserved != 0, HasLoans<TypeParam>);
  EXPECT_EQ(all.accesses != 0, HasRemoteMemory<TypeParam>);
  EXPECT_EQ(all.collected != 0, HasRemoteMemory<TypeParam>);
  EXPECT_EQ(all.shared_copies != 0, HasRemoteMemory<TypeParam>);
}

}  // namespace
}  // namespace weft::proto::sim
