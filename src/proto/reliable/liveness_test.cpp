// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How long a packet link has refused, and what ends a suspicion.
#include "proto/reliable/liveness.hpp"

#include <gtest/gtest.h>

namespace weft::proto::reliable {
namespace {

TEST(ReliableSendRoom, RefusalsInARowHaveOneBeginning) {
  SendRoom room;
  EXPECT_FALSE(room.is_short());
  EXPECT_EQ(room.since(), 0u);
  room.on_refused(100);
  room.on_try();
  EXPECT_FALSE(room.is_short());
  room.on_refused(200);
  EXPECT_TRUE(room.is_short());
  EXPECT_EQ(room.since(), 100u);
  EXPECT_EQ(room.tried_at(), 200u);
  room.on_sent();
  EXPECT_EQ(room.since(), 0u);
  room.on_refused(300);
  EXPECT_EQ(room.since(), 300u);
}

// A program that made no call for an hour has not tried for an hour.
TEST(ReliableSendRoom, TimeWithoutAttemptsDoesNotCount) {
  SendRoom room;
  room.on_refused(1000);
  room.on_refused(1000 + SendRoom::pause_ns);
  EXPECT_EQ(room.since(), 1000u);
  room.on_refused(1000 + 3601 * SendRoom::pause_ns);
  EXPECT_EQ(room.since(), 1000 + 3600 * SendRoom::pause_ns);
}

TEST(ReliableLiveness, ASignEndsEverySuspicion) {
  Liveness life{1, 2, 3, 4, 5};
  life.heard(10);
  EXPECT_EQ(life.silent_from, 10u);
  EXPECT_EQ(life.heard_at, 10u);
  EXPECT_EQ(life.refused_from, 0u);
  EXPECT_EQ(life.refusal_due, 0u);
  EXPECT_EQ(life.refusals, 0u);
}

}  // namespace
}  // namespace weft::proto::reliable
