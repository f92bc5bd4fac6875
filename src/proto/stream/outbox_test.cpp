// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What waits leaves in order, in any pieces, whether it is ours or stays where it is.
#include "proto/stream/outbox.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace weft::proto::stream {
namespace {

using Bytes = std::vector<std::byte>;

// Up to `most` bytes from the front, as a socket takes them.
Bytes take(Outbox& box, size_t most, size_t room = 2 * Outbox::pieces_max + 1) {
  std::vector<iovec> parts(room);
  size_t covered = 0;
  const size_t count = box.front(parts.data(), room, 0, covered);
  EXPECT_LE(count, room);
  Bytes out;
  for (size_t i = 0; i < count && out.size() < most; ++i) {
    const auto* at = static_cast<const std::byte*>(parts[i].iov_base);
    out.insert(out.end(), at, at + std::min(parts[i].iov_len, most - out.size()));
  }
  box.drop(out.size());
  return out;
}

TEST(StreamOutbox, AnyMixInAnyPieces) {
  std::mt19937 random(11);
  Bytes program(1 << 16);
  for (auto& b : program) b = static_cast<std::byte>(random());
  Outbox box(size_t{1} << 20);
  Bytes expected, got;
  for (int round = 0; round < 5000; ++round) {
    const size_t from = random() % 60'000;
    const size_t bytes = random() % 4000;
    const auto* at = program.data() + from;
    const uint32_t what = random() % 8;
    if (what < 3) {
      if (box.refer(at, bytes)) expected.insert(expected.end(), at, at + bytes);
    } else if (what < 6) {
      if (box.put_bytes(at, bytes)) expected.insert(expected.end(), at, at + bytes);
    } else if (what == 7 && random() % 16 == 0) {
      ASSERT_TRUE(box.keep());
      EXPECT_EQ(box.referred(), 0u);
    }
    if (random() % 2 == 0) {
      const Bytes more = take(box, random() % 9000, 1 + random() % 9);
      got.insert(got.end(), more.begin(), more.end());
    }
    ASSERT_EQ(got.size() + box.size(), expected.size());
  }
  while (!box.empty()) {
    const Bytes more = take(box, 5000);
    ASSERT_FALSE(more.empty());
    got.insert(got.end(), more.begin(), more.end());
  }
  EXPECT_TRUE(got == expected);
}

TEST(StreamOutbox, AFrameInPlaceIsTheSameBytes) {
  const Bytes payload(5000, std::byte{7});
  const std::byte prefix[5] = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}, std::byte{5}};
  const iovec parts[] = {{const_cast<std::byte*>(payload.data()), 2000},
                         {const_cast<std::byte*>(payload.data()) + 2000, 0},
                         {const_cast<std::byte*>(payload.data()) + 2000, 3000}};
  const wire::FrameHead head{wire::FrameKind::Msg, wire::has_b, 3, 5005, 9, 10};
  Outbox copied(10'000), placed(10'000);
  ASSERT_TRUE(copied.put(head, prefix, parts, 3));
  ASSERT_TRUE(placed.put_in_place(head, prefix, parts, 3));
  EXPECT_EQ(placed.referred(), 5000u);
  EXPECT_LT(placed.own_size(), 50u);
  EXPECT_EQ(copied.size(), placed.size());
  EXPECT_TRUE(take(copied, SIZE_MAX) == take(placed, SIZE_MAX));
}

TEST(StreamOutbox, PiecesAreBounded) {
  const std::byte byte{};
  Outbox box(1000);
  for (size_t i = 0; i < Outbox::pieces_max; ++i) EXPECT_TRUE(box.refer(&byte, 1));
  EXPECT_FALSE(box.refer(&byte, 1));
  const iovec part{const_cast<std::byte*>(&byte), 1};
  EXPECT_FALSE(box.put_in_place({wire::FrameKind::Msg, 0, 0, 1, 0, 0}, {}, &part, 1));
  EXPECT_EQ(box.size(), Outbox::pieces_max);
  box.drop(1);
  EXPECT_TRUE(box.refer(&byte, 1));
  box.clear();
  EXPECT_TRUE(box.empty());
}

}  // namespace
}  // namespace weft::proto::stream
