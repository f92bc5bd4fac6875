// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/assert.hpp"

#include <gtest/gtest.h>

#include <type_traits>

namespace weft {
namespace {

TEST(Assert, TrueConditionsHaveNoEffect) {
  const int limit = 3;
  WEFT_ASSERT(limit == 3);
  WEFT_ASSERT(std::is_same_v<decltype(limit), const int>);  // a comma that is not in parentheses
}

#ifdef WEFT_ASSERTIONS
TEST(Assert, AFalseConditionEndsTheProcessAndIsNamed) {
  const int limit = 3;
  EXPECT_DEATH(WEFT_ASSERT(limit < 3), "weft: assertion failed: limit < 3 \\(.*assert_test\\.cpp:[0-9]+, ");
}
#else
TEST(Assert, ConditionsAreNotEvaluated) {
  int calls = 0;
  const auto called = [&] { return ++calls != 0; };
  WEFT_ASSERT(!called());
  WEFT_ASSERT(called());
  EXPECT_EQ(calls, 0);
}
#endif

}  // namespace
}  // namespace weft
