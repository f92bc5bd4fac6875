// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "link/message/crossing.hpp"

#include <gtest/gtest.h>

namespace weft::link::message {
namespace {

TEST(Crossing, WhoIsNotKnownIsNew) {
  EXPECT_EQ(judge({}), Call::FromNew);
  EXPECT_EQ(judge({.is_higher = true}), Call::FromNew);
}

TEST(Crossing, AWorkingConnectionGoesFirst) {
  for (const bool higher : {false, true}) {
    EXPECT_EQ(judge({.known = true, .connected = true, .same_incarnation = true, .is_higher = higher}),
              Call::Duplicate);
    EXPECT_EQ(judge({.known = true, .connected = true, .is_higher = higher}), Call::FromRestarted);
  }
}

TEST(Crossing, OfTwoThatCrossTheLowerSidesStays) {
  // The same two calls, seen from both ends.
  const Call at_lower = judge({.known = true, .being_connected = true, .is_higher = true});
  const Call at_higher = judge({.known = true, .being_connected = true, .is_higher = false});
  EXPECT_EQ(at_lower, Call::Duplicate);
  EXPECT_EQ(at_higher, Call::Instead);
}

TEST(Crossing, WhoseTurnHasNotComeIsTaken) {
  EXPECT_EQ(judge({.known = true, .is_higher = true}), Call::Instead);
  EXPECT_EQ(judge({.known = true, .is_higher = false}), Call::Instead);
}

}  // namespace
}  // namespace weft::link::message
