// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Random programs over engines that are linked in memory, checked against a model (sim_world.hpp). A failure prints the seed and the
// command that repeats it. WEFT_SEED runs one seed, WEFT_SEEDS says how many.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "proto/engine/sim_world.hpp"

namespace weft::proto::sim {
namespace {

uint64_t number_from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

// A fast poll finds a message that a receive waits for once in some thousand programs, so FastLink runs ten times as many. Parts of them are cases of their own,
// which run beside each other.
template <class L, unsigned index = 0>
struct Part {
  using Link = L;
  static constexpr unsigned part = index;
  static constexpr unsigned parts = HasFastPoll<L> ? 5 : 1;
};
constexpr uint64_t programs = 2500;
constexpr uint64_t fast_programs_per_program = 10;

template <class P>
class EngineProperty : public testing::Test {
 protected:
  using Link = typename P::Link;
  // "": the program ended as the model says.
  std::string run(uint64_t seed) {
    World<Link> world(seed, [](bool on) { starving = on; });
    const std::string wrong = world.run(60 + static_cast<int>(seed % 7) * 60);
    found_ += world.shortcuts();
    return wrong;
  }
  Shortcuts found_;
};
using Parts = testing::Types<Part<PlainLink>, Part<RichLink>, Part<CreditLink>, Part<FastLink, 0>,
                             Part<FastLink, 1>, Part<FastLink, 2>, Part<FastLink, 3>, Part<FastLink, 4>,
                             Part<LateLink>, Part<ReferringLink>>;

class PartNames {
 public:
  template <class P>
  static std::string GetName(int) {
    using L = typename P::Link;
    return HasZeroCopyFrames<L>   ? "ReferringLink"
           : HasSendCompletion<L> ? "LateLink"
           : HasFastPoll<L>       ? "FastLink" + std::to_string(P::part + 1)
           : has_small_credit<L>  ? "CreditLink"
           : HasSmallFrames<L>    ? "RichLink"
                                  : "PlainLink";
  }
};
TYPED_TEST_SUITE(EngineProperty, Parts, PartNames);

TYPED_TEST(EngineProperty, RandomProgramsEndAsTheModelSays) {
  using L = typename TypeParam::Link;
  const uint64_t only = number_from_environment("WEFT_SEED", 0);
  const uint64_t count =
      number_from_environment("WEFT_SEEDS", programs) * (HasFastPoll<L> ? fast_programs_per_program : 1);
  const auto check = [&](uint64_t seed) {
    ASSERT_EQ(this->run(seed), "") << "seed " << seed << "; again: WEFT_SEED=" << seed
                                   << " weft_proto_test --gtest_filter=EngineProperty/*";
  };
  if (only != 0) {
    if (TypeParam::part == 0) check(only);
    return;
  }
  // Each seed up to `count` is in one part.
  for (uint64_t seed = TypeParam::part + 1; seed <= count; seed += TypeParam::parts)
    ASSERT_NO_FATAL_FAILURE(check(seed));
  if (count < programs) return;
  // The programs run what users run.
  const Shortcuts& all = this->found_;
  EXPECT_NE(all.short_frames, 0u);
  EXPECT_EQ(all.small_frames != 0, HasSmallFrames<L>);
  EXPECT_EQ(all.fast_nothing != 0, HasFastPoll<L>);
  EXPECT_EQ(all.loans != 0, HasLoans<L>);
  EXPECT_EQ(all.reserved != 0, HasLoans<L>);
  EXPECT_EQ(all.accesses != 0, HasRemoteMemory<L>);
  EXPECT_EQ(all.collected != 0, HasRemoteMemory<L>);
  EXPECT_EQ(all.shared_copies != 0, HasRemoteMemory<L>);
  // The rare one: in one of all parts.
  if (TypeParam::part != 0) return;
  for (uint64_t seed = 1; HasFastPoll<L> && all.fast_frames == 0 && seed <= count; ++seed) {
    if (seed % TypeParam::parts == 1) continue;
    ASSERT_NO_FATAL_FAILURE(check(seed));
  }
  EXPECT_EQ(all.fast_frames != 0, HasFastPoll<L>);
}

}  // namespace
}  // namespace weft::proto::sim
