// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "proto/stream/coalescer.hpp"

#include <gtest/gtest.h>

namespace weft::proto::stream {
namespace {

// Frames that leave alone out of `count` before the next poll, all of which tell a burst.
template <uint8_t lone>
int send(Coalescer<lone>& coalescer, int count, uint32_t weight = 1) {
  int alone = 0;
  for (int i = 0; i < count; ++i) {
    if (coalescer.has_lone()) {
      coalescer.take_lone();
      ++alone;
    }
    coalescer.count(weight);
  }
  coalescer.next_poll();
  return alone;
}

TEST(Coalescer, AFewFramesLeaveAlone) {
  Coalescer<4> coalescer;
  EXPECT_EQ(send(coalescer, 1), 1);
  EXPECT_EQ(send(coalescer, 4), 4);
  EXPECT_EQ(send(coalescer, 15), 4);
  EXPECT_EQ(send(coalescer, 2), 2);
}

TEST(Coalescer, AfterABurstOnlyTheFirst) {
  Coalescer<3> coalescer;
  EXPECT_EQ(send(coalescer, 16), 3);
  EXPECT_EQ(send(coalescer, 100), 1);
  EXPECT_EQ(send(coalescer, 5), 1);
  EXPECT_EQ(send(coalescer, 5), 3) << "that was none";
}

TEST(Coalescer, LargeFramesWeighMore) {
  Coalescer<4> coalescer;
  EXPECT_EQ(send(coalescer, 4, 4), 4);
  EXPECT_EQ(send(coalescer, 4, 4), 1);
}

}  // namespace
}  // namespace weft::proto::stream
