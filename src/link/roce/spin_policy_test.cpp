// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "link/roce/spin_policy.hpp"

#include <gtest/gtest.h>

namespace weft::link::roce {
namespace {

unsigned spins_of(SpinPolicy& policy, unsigned sleeps, bool found) {
  unsigned spins = 0;
  for (unsigned i = 0; i < sleeps; ++i) {
    if (!policy.may_spin()) continue;
    ++spins;
    policy.ended(found);
  }
  return spins;
}

TEST(RoceSpinPolicy, GoesOnWhileSpinsFindEvents) {
  SpinPolicy policy;
  EXPECT_EQ(spins_of(policy, 1000, true), 1000U);
}

TEST(RoceSpinPolicy, IsLeftOutWhereAnswersTakeLonger) {
  SpinPolicy policy;
  EXPECT_EQ(spins_of(policy, SpinPolicy::vain_max, false), SpinPolicy::vain_max);
  EXPECT_EQ(spins_of(policy, 10 * SpinPolicy::vain_max, false), 10U);
}

TEST(RoceSpinPolicy, BeginsAgainWithTheFirstThatFindsOne) {
  SpinPolicy policy;
  (void)spins_of(policy, 100 * SpinPolicy::vain_max, false);
  while (!policy.may_spin()) {
  }
  policy.ended(true);
  EXPECT_EQ(spins_of(policy, 100, true), 100U);
}

}  // namespace
}  // namespace weft::link::roce
