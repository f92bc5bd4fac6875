// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How large packets are: as the packet link says, smaller while large ones vanish.
#include "proto/reliable/path_mtu.hpp"

#include <gtest/gtest.h>

namespace weft::proto::reliable {
namespace {

constexpr uint64_t second = 1'000'000'000;
constexpr size_t least = 200;

TEST(ReliablePathMtu, FollowsThePacketLink) {
  PathMtu mtu;
  EXPECT_EQ(mtu.bytes(), 0u);
  EXPECT_TRUE(mtu.set(1472, least, 1));
  EXPECT_FALSE(mtu.set(1472, least, 2));
  EXPECT_TRUE(mtu.set(100, least, 3));
  EXPECT_EQ(mtu.bytes(), least);
}

TEST(ReliablePathMtu, ShrinksInStepsAndComesBackLaterEachTime) {
  PathMtu mtu;
  uint64_t now = 1;
  for (const uint64_t wait : {2 * second, 4 * second, 8 * second}) {
    (void)mtu.set(65507, least, now);
    for (const size_t step : {8900u, 1400u, 1172u, 1172u}) {
      mtu.shrink(now);
      (void)mtu.set(65507, least, now);
      EXPECT_EQ(mtu.bytes(), step);
    }
    EXPECT_FALSE(mtu.set(65507, least, now + wait - 1));
    EXPECT_TRUE(mtu.set(65507, least, now + wait));
    EXPECT_EQ(mtu.bytes(), 65507u);
    now += wait + 1;
  }
}

// What was sent in large packets has arrived.
TEST(ReliablePathMtu, MoreThanWasSentSmallProvesThatTheSizeWasRight) {
  for (const size_t arrived : {1000u, 1001u}) {
    PathMtu mtu;
    (void)mtu.set(8972, least, 1);
    mtu.on_sent(50'000);
    mtu.shrink(1);
    (void)mtu.set(8972, least, 1);
    EXPECT_EQ(mtu.bytes(), 8900u);
    mtu.on_sent(1000);
    mtu.on_delivered(0);  // says nothing
    mtu.on_delivered(arrived);
    (void)mtu.set(8972, least, 2);
    EXPECT_EQ(mtu.bytes(), arrived > 1000 ? 8972u : 8900u);
    mtu.on_delivered(1'000'000);  // the first bytes decide
    (void)mtu.set(8972, least, 3);
    EXPECT_EQ(mtu.bytes(), arrived > 1000 ? 8972u : 8900u);
  }
}

}  // namespace
}  // namespace weft::proto::reliable
