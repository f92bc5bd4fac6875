// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of the two halves of a channel, in one process, without peers.
#include "link/shm/ring.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace weft::link::shm {
namespace {

struct Stranger {};  // the rings know nothing of a peer

struct Frame {
  wire::FrameHead head{};
  std::vector<std::byte> payload;
};

struct Sink {
  bool on_frame(Stranger&, const wire::FrameHead& head, const std::byte* payload) noexcept {
    if (refuses) return false;
    frames.push_back({head, std::vector<std::byte>(payload, payload + head.length)});
    return true;
  }
  std::vector<Frame> frames;
  bool refuses = false;
};

class ShmRing : public testing::Test {
 protected:
  ShmRing() {
    auto file = os::create_memory("weft-ring-test", channel_bytes);
    EXPECT_TRUE(file);
    out.open(std::move(*os::map_memory(*file, 0, channel_bytes)));
    in.open(std::move(*os::map_memory(*file, 0, channel_bytes)));
  }
  static wire::FrameHead head_of(uint64_t a, size_t bytes, wire::FrameKind kind = wire::FrameKind::Tagged) {
    return {kind, 0, 0, static_cast<uint32_t>(bytes), a, 0};
  }
  SendRing::Put put(uint64_t a, size_t bytes) {
    const std::vector<std::byte> payload(bytes, static_cast<std::byte>(a));
    const iovec part{const_cast<std::byte*>(payload.data()), bytes};
    return out.put(head_of(a, bytes), {}, &part, 1, answers);
  }
  int take(int budget = 1000) {
    return in.drain(stranger, sink, budget, [&](const char* what) {
      rejected = what;
      return 0;
    });
  }
  void expect(size_t index, uint64_t a, size_t bytes) {
    ASSERT_LT(index, sink.frames.size());
    EXPECT_EQ(sink.frames[index].head.a, a);
    EXPECT_EQ(sink.frames[index].payload, std::vector<std::byte>(bytes, static_cast<std::byte>(a)));
  }

  SendRing out;
  ReceiveRing in;
  ReceiveRing answers;  // the other direction, which never has a frame
  Stranger stranger;
  Sink sink;
  const char* rejected = nullptr;
};

TEST_F(ShmRing, FramesComeInOrderOverManyPasses) {
  for (uint64_t a = 0; a < 5 * slot_count; ++a) {
    ASSERT_NE(put(a, a % (inline_max + 1)), SendRing::Put::Refused) << a;
    EXPECT_TRUE(in.has_frame());
    ASSERT_EQ(take(), 1);
    expect(a, a, a % (inline_max + 1));
  }
  EXPECT_FALSE(in.has_frame());
  EXPECT_EQ(out.next(), 5 * slot_count);
  EXPECT_EQ(in.next(), 5 * slot_count);
  EXPECT_EQ(rejected, nullptr);
}

TEST_F(ShmRing, AFullRingRefusesUntilCreditComesBack) {
  for (uint64_t a = 0; a < slot_count; ++a) ASSERT_NE(put(a, 8), SendRing::Put::Refused) << a;
  EXPECT_EQ(put(slot_count, 8), SendRing::Put::Refused);
  EXPECT_EQ(out.unread_slots(std::memory_order_relaxed), slot_count);
  ASSERT_EQ(take(3), 3);
  for (uint64_t a = slot_count; a < slot_count + 3; ++a) EXPECT_NE(put(a, 8), SendRing::Put::Refused) << a;
  EXPECT_EQ(put(0, 8), SendRing::Put::Refused);
}

TEST_F(ShmRing, ARefusedFrameIsShownAgain) {
  ASSERT_NE(put(7, 8), SendRing::Put::Refused);
  sink.refuses = true;
  EXPECT_EQ(take(), 0);
  sink.refuses = false;
  EXPECT_EQ(take(), 1);
  expect(0, 7, 8);
}

TEST_F(ShmRing, PayloadsInTheBulkRingDoNotWrap) {
  uint64_t a = 0;
  for (; a < 100; ++a) {
    ASSERT_NE(put(a, 60'000), SendRing::Put::Refused) << a;
    ASSERT_EQ(take(), 1);
    expect(a, a, 60'000);
  }
  EXPECT_EQ(out.bulk_sent(), 100U * 60'000);
  EXPECT_EQ(in.bulk_taken(), 100U * 60'000);
  // An empty ring begins again, so few of its pages are ever used.
  EXPECT_LE(out.bulk_ready(), 2 * bulk_window_bytes);
  EXPECT_EQ(out.unread_bulk(), 0U);
  while (put(a, 60'000) != SendRing::Put::Refused) ++a;
  EXPECT_LE(out.unread_bulk(), bulk_bytes);
}

TEST_F(ShmRing, TheReceiverSaysWhetherItPolls) {
  EXPECT_EQ(put(0, 8), SendRing::Put::Unseen);
  in.control()->polled.store(1);
  EXPECT_EQ(put(1, 8), SendRing::Put::Seen);
  EXPECT_EQ(put(2, 1000), SendRing::Put::Seen);
}

TEST_F(ShmRing, WhatMakesNoSenseIsRejected) {
  ASSERT_NE(put(0, 8), SendRing::Put::Refused);
  out.next_slot()->header.store(sequence_of(1) | uint64_t{1} << 8 | uint64_t{49} << 32);
  EXPECT_EQ(take(), 1);
  EXPECT_STREQ(rejected, "a frame is longer than its slot");
  const BulkPosition place{64, bulk_bytes - 99};
  std::memcpy(out.next_slot()->payload.data() + bulk_position_offset, &place, sizeof(place));
  out.next_slot()->header.store(sequence_of(1) | uint64_t{1} << 8 | uint64_t{payload_in_bulk} << 16 |
                                uint64_t{100} << 32);
  EXPECT_EQ(take(), 0);
  EXPECT_STREQ(rejected, "a frame's payload lies outside of the bulk ring");
}

TEST_F(ShmRing, ALoanHoldsBackCredit) {
  for (uint64_t a = 0; a < slot_count; ++a) ASSERT_NE(put(a, 8), SendRing::Put::Refused);
  in.lend_from(in.next(), in.bulk());
  ASSERT_EQ(take(), static_cast<int>(slot_count));
  EXPECT_EQ(put(0, 8), SendRing::Put::Refused);
  in.lend_from(UINT64_MAX, UINT64_MAX);
  in.return_loan();
  EXPECT_NE(put(0, 8), SendRing::Put::Refused);
}

TEST_F(ShmRing, AReservationKeepsASlotAndTheRestOfTheBulkRing) {
  uint64_t start = 0;
  std::byte* const at = out.reserve(1000, answers, start);
  ASSERT_NE(at, nullptr);
  std::fill_n(at, 1000, std::byte{9});
  EXPECT_EQ(put(0, 1000), SendRing::Put::Refused);
  for (uint64_t a = 0; a + 1 < slot_count; ++a) ASSERT_NE(put(a, 8), SendRing::Put::Refused) << a;
  EXPECT_EQ(put(0, 8), SendRing::Put::Refused);
  out.end_reservation();
  ASSERT_TRUE(out.has_slot());
  (void)out.put_reserved(head_of(9, 1000), start);
  ASSERT_EQ(take(), static_cast<int>(slot_count));
  expect(slot_count - 1, 9, 1000);
}

TEST_F(ShmRing, UnreadMessagesAreTold) {
  EXPECT_EQ(out.unread_messages(), 0);
  ASSERT_NE(put(0, 8), SendRing::Put::Refused);
  EXPECT_EQ(out.unread_messages(), proto::unread_some | proto::unread_tagged);
  ASSERT_EQ(take(), 1);
  EXPECT_EQ(out.unread_messages(), 0);
}

TEST_F(ShmRing, PagesOfAnIdleBulkRingMayGo) {
  constexpr uint64_t second = 1'000'000'000;
  EXPECT_FALSE(out.is_bulk_idle(0));  // never used
  ASSERT_NE(put(0, 5000), SendRing::Put::Refused);
  EXPECT_FALSE(out.is_bulk_idle(second));      // it has moved
  EXPECT_FALSE(out.is_bulk_idle(3 * second));  // not read
  ASSERT_EQ(take(), 1);
  EXPECT_FALSE(out.is_bulk_idle(2 * second - 1));
  EXPECT_TRUE(out.is_bulk_idle(2 * second));
  out.forget_pages(0);
  EXPECT_FALSE(out.is_bulk_idle(4 * second));
  ASSERT_NE(put(1, 5000), SendRing::Put::Refused);
  EXPECT_LT((out.bulk_next() - 1) % bulk_bytes, 5056U);  // at the start
}

}  // namespace
}  // namespace weft::link::shm
