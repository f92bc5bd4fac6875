// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A ring of frames with a bound.
#include "link/nic/inbox.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

namespace weft::link::nic {
namespace {

using Bytes = std::vector<std::byte>;

bool put(Inbox& inbox, const Bytes& bytes, bool is_checked = false) {
  const iovec parts[] = {
      {const_cast<std::byte*>(bytes.data()), bytes.size() / 3},
      {const_cast<std::byte*>(bytes.data()) + bytes.size() / 3, bytes.size() - bytes.size() / 3}};
  return inbox.put(parts, 2, is_checked);
}

TEST(NicInbox, KeepsOrderAndBytesThroughAllWraps) {
  for (const size_t size : {size_t{64}, size_t{200}, size_t{4096}, size_t{4100}}) {
    Inbox inbox;
    inbox.open(size);
    std::mt19937 random(static_cast<unsigned>(size));
    std::deque<std::pair<Bytes, bool>> expected;
    size_t accepted = 0;
    for (unsigned round = 0; round < 20'000; ++round) {
      if (random() % 2 == 0) {
        const Bytes bytes(random() % (size / 2), static_cast<std::byte>(round));
        const bool is_checked = random() % 2 == 0;
        if (put(inbox, bytes, is_checked)) {
          expected.emplace_back(bytes, is_checked);
          ++accepted;
        }
      } else {
        const size_t most = random() % 4;
        const size_t there = expected.size();
        const size_t taken = inbox.drain(most, [&](std::span<const std::byte> frame, bool is_checked) {
          ASSERT_FALSE(expected.empty());
          EXPECT_TRUE(std::ranges::equal(frame, expected.front().first));
          EXPECT_EQ(is_checked, expected.front().second);
          expected.pop_front();
        });
        ASSERT_EQ(taken, std::min(most, there));
      }
      ASSERT_EQ(inbox.frames(), expected.size());
    }
    EXPECT_GT(accepted, 5'000u);
  }
}

TEST(NicInbox, TakesNoMoreThanThereIsRoomFor) {
  Inbox inbox;
  EXPECT_FALSE(put(inbox, Bytes(1)));
  inbox.open(1024);
  EXPECT_FALSE(put(inbox, Bytes(1024)));
  EXPECT_TRUE(put(inbox, Bytes(1016)));
  EXPECT_FALSE(put(inbox, Bytes()));
  EXPECT_EQ(inbox.drain(9, [](auto, bool) {}), 1u);
  EXPECT_TRUE(inbox.empty());
  EXPECT_TRUE(put(inbox, Bytes()));
}

TEST(NicInbox, AFrameMayBePutWhileOneIsShown) {
  Inbox inbox;
  inbox.open(256);
  ASSERT_TRUE(put(inbox, Bytes(40, std::byte{1})));
  for (int round = 0; round < 1000; ++round)
    ASSERT_EQ(
        inbox.drain(1,
                    [&](std::span<const std::byte> frame, bool) {
                      ASSERT_TRUE(put(inbox, Bytes(static_cast<size_t>(30 + round % 20), std::byte{2})));
                      ASSERT_GE(frame.size(), 30u);
                      for (const std::byte byte : frame) ASSERT_EQ(byte, frame[0]);
                    }),
        1u);
}

}  // namespace
}  // namespace weft::link::nic
