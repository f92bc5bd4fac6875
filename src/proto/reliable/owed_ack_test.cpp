// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// When an acknowledgement goes.
#include "proto/reliable/owed_ack.hpp"

#include <gtest/gtest.h>

namespace weft::proto::reliable {
namespace {

constexpr size_t packet = 1472;
constexpr uint64_t begin = 1 * second;

TEST(ReliableOwedAck, AFewBytesAreAcknowledgedAtOnceButNotTooOften) {
  OwedAck owed;
  owed.on_next_bytes(8, packet, false, begin);
  EXPECT_TRUE(owed.is_urgent());
  owed.on_ack_sent(0, begin);
  owed.on_next_bytes(8, packet, false, begin + OwedAck::pause_ns - 1);
  EXPECT_FALSE(owed.is_urgent());
  owed.owe(begin + OwedAck::pause_ns - 1);
  EXPECT_EQ(owed.due(), begin + OwedAck::pause_ns - 1 + OwedAck::delay_ns);
  owed.on_next_bytes(8, packet, false, begin + OwedAck::pause_ns);
  EXPECT_TRUE(owed.is_urgent());
}

// Of a program that answers: the answer takes it along.
TEST(ReliableOwedAck, WhereAnswersFollowItWaitsForTheNext) {
  OwedAck owed;
  uint64_t now = begin;
  for (unsigned i = 0; i < OwedAck::answers_min; ++i, now += ms) {
    owed.on_data(now);
    owed.on_data_sent(now + OwedAck::delay_ns - 1);
  }
  owed.on_next_bytes(8, packet, false, now);
  EXPECT_FALSE(owed.is_urgent());
  owed.on_due();  // none came
  owed.on_next_bytes(8, packet, false, now);
  EXPECT_TRUE(owed.is_urgent());
}

TEST(ReliableOwedAck, ALateAnswerIsNone) {
  OwedAck owed;
  for (uint64_t i = 0; i < 2 * OwedAck::answers_min; ++i) {
    owed.on_data(begin + i * ms);
    owed.on_data_sent(begin + i * ms + OwedAck::delay_ns);
  }
  owed.on_next_bytes(8, packet, false, begin + second);
  EXPECT_TRUE(owed.is_urgent());
}

TEST(ReliableOwedAck, EverySecondFullPacketAndEachBehindAGap) {
  OwedAck owed;
  owed.on_ack_sent(0, begin);
  owed.on_next_bytes(packet, packet, false, begin);
  EXPECT_FALSE(owed.is_urgent());
  owed.on_next_bytes(packet, packet, false, begin);
  EXPECT_TRUE(owed.is_urgent());
  owed.on_ack_sent(0, begin);
  owed.on_next_bytes(1, packet, true, begin);
  EXPECT_TRUE(owed.is_urgent());
  // The size of packets is not known before one was sent.
  owed.on_ack_sent(0, begin);
  owed.on_next_bytes(OwedAck::many_bytes - 1, 0, false, begin);
  EXPECT_FALSE(owed.is_urgent());
  owed.on_next_bytes(1, 0, false, begin);
  EXPECT_TRUE(owed.is_urgent());
}

TEST(ReliableOwedAck, OldStampsAreLeftUntilTheyMayBeNew) {
  OwedAck owed;
  owed.on_stamp(100, begin);
  owed.on_stamp(99, begin + 1);
  EXPECT_EQ(owed.newest_stamp(), 100u);
  EXPECT_EQ(owed.newest_at(), begin);
  owed.on_stamp(99, begin + OwedAck::stamp_ns_max + 1);
  EXPECT_EQ(owed.newest_stamp(), 99u);
  owed.on_stamp(0xffffffff, begin + OwedAck::stamp_ns_max + 2);  // before 99
  EXPECT_EQ(owed.newest_stamp(), 99u);
}

TEST(ReliableOwedAck, NeedlessPacketsAreToldOnce) {
  OwedAck owed;
  owed.on_needless();
  owed.on_needless();
  EXPECT_TRUE(owed.is_urgent() && owed.reports_needless());
  EXPECT_FALSE(owed.is_duplicate());  // what says how many says that, too
  EXPECT_EQ(owed.needless(), 2u);
  owed.on_needless_reported();
  EXPECT_TRUE(owed.is_duplicate());
  owed.on_ack_sent(0, begin);
  EXPECT_FALSE(owed.is_duplicate() || owed.reports_needless() || owed.is_urgent());
}

}  // namespace
}  // namespace weft::proto::reliable
