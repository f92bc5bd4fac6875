// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Event queues: order, peeking, errors, the bound, reservations.
#include "core/event_queue.hpp"

#include <gtest/gtest.h>

#include <array>
#include <utility>

namespace weft::core {
namespace {

struct CountingSignal final : Signal {
  int notified = 0;
  void notify() noexcept override { ++notified; }
};

TEST(EventQueue, EventsComeBackInOrderWithTheirBytes) {
  EventQueue queue(4);
  ASSERT_EQ(queue.write(7, "abc", 3), 0);
  ASSERT_EQ(queue.write(8, nullptr, 0), 0);
  uint32_t event = 0;
  std::array<char, 8> buf{};
  EXPECT_EQ(queue.read(&event, buf.data(), 2, false), -FI_ETOOSMALL);
  ASSERT_EQ(queue.read(&event, buf.data(), buf.size(), true), 3);
  ASSERT_EQ(queue.read(&event, buf.data(), buf.size(), false), 3);
  EXPECT_EQ(event, 7u);
  EXPECT_STREQ(buf.data(), "abc");
  ASSERT_EQ(queue.read(&event, buf.data(), buf.size(), false), 0);
  EXPECT_EQ(event, 8u);
  EXPECT_EQ(queue.read(&event, buf.data(), buf.size(), false), -FI_EAGAIN);
}

// fi_eq(3), fi_eq_readerr.
TEST(EventQueue, AnErrorHasToBeReadAsOne) {
  EventQueue queue(4);
  EventError error;
  error.err = FI_EINVAL;
  error.data = 3;
  error.err_data = {std::byte{1}, std::byte{2}};
  ASSERT_EQ(queue.write_error(error), 0);
  ASSERT_EQ(queue.write(1, nullptr, 0), 0);
  uint32_t event = 0;
  EXPECT_EQ(queue.read(&event, nullptr, 0, false), -FI_EAVAIL);
  EventError out;
  ASSERT_EQ(queue.read_error(out, true), 0);
  ASSERT_EQ(queue.read_error(out, false), 0);
  EXPECT_EQ(out.err, FI_EINVAL);
  EXPECT_EQ(out.err_data.size(), 2u);
  EXPECT_EQ(queue.read_error(out, false), -FI_EAGAIN);
  EXPECT_EQ(queue.read(&event, nullptr, 0, false), 0);
}

TEST(EventQueue, IsBoundedAndRefusesWhatIsTooLong) {
  EventQueue queue(2);
  EXPECT_EQ(queue.write(1, nullptr, 0), 0);
  EXPECT_EQ(queue.write(1, nullptr, 0), 0);
  EXPECT_EQ(queue.write(1, nullptr, 0), -FI_EAGAIN);
  EXPECT_EQ(queue.write_error({}), -FI_EAGAIN);
  EXPECT_EQ(queue.pending(), 2u);
  const std::array<char, EventQueue::event_bytes_max + 1> long_event{};
  EXPECT_EQ(EventQueue(2).write(1, long_event.data(), long_event.size()), -FI_EINVAL);
}

TEST(EventQueue, AReservationKeepsItsRoom) {
  EventQueue queue(2);
  ASSERT_EQ(queue.reserve(2), 0);
  EXPECT_EQ(queue.reserve(1), -FI_EAGAIN);
  EXPECT_EQ(queue.write(1, nullptr, 0), -FI_EAGAIN);
  EXPECT_EQ(queue.write_reserved(2, nullptr, 0), 0);
  queue.unreserve(1);
  EXPECT_EQ(queue.write(3, nullptr, 0), 0);
  EXPECT_EQ(queue.write(4, nullptr, 0), -FI_EAGAIN);
}

// Whoever brings its own room takes none of the others'.
TEST(EventQueue, RoomOfOnesOwn) {
  EventQueue queue(2);
  queue.widen(2);
  ASSERT_EQ(queue.reserve(2), 0);
  EXPECT_EQ(queue.write(1, nullptr, 0), 0);
  EXPECT_EQ(queue.write(1, nullptr, 0), 0);
  EXPECT_EQ(queue.write(1, nullptr, 0), -FI_EAGAIN);
  EXPECT_EQ(queue.write_reserved(2, nullptr, 0), 0);
  queue.unreserve(1);
  queue.narrow(2);
  EXPECT_EQ(queue.write(1, nullptr, 0), -FI_EAGAIN);
  EXPECT_EQ(queue.reserve(1), -FI_EAGAIN);
  char out[8];
  for (int i = 0; i < 2; ++i) EXPECT_EQ(queue.read(nullptr, out, sizeof out, false), 0);
  EXPECT_EQ(queue.write(1, nullptr, 0), 0);
}

TEST(EventQueue, TheSignalIsNotifiedOnceAndNotForWhatWasThere) {
  EventQueue queue(8);
  CountingSignal signal;
  queue.set_signal(&signal);
  EXPECT_TRUE(queue.arm());
  queue.write(1, nullptr, 0);
  queue.write(2, nullptr, 0);
  EXPECT_EQ(signal.notified, 1);
  EXPECT_FALSE(queue.arm());
}

// fi_eq(3): "the amount of data available is limited to the buffer space provided"; the fixed part is not cut.
TEST(EventQueue, ConnectionDataIsCutToTheReadersRoom) {
  EventQueue queue;
  const char event[] = "0123456789abcdefDATA";
  ASSERT_EQ(queue.reserve(1), 0);
  ASSERT_EQ(queue.write_reserved(FI_CONNREQ, event, 20, 16), 0);
  char out[32];
  EXPECT_EQ(queue.read(nullptr, out, 15, false), -FI_ETOOSMALL);
  EXPECT_EQ(queue.read(nullptr, out, 17, true), 17);
  EXPECT_EQ(queue.read(nullptr, out, sizeof out, false), 20);
}

TEST(EventQueue, EventsOfAnObjectGoWithIt) {
  EventQueue queue;
  fid one{};
  fid other{};
  for (fid* object : {&one, &other, &one}) {
    fi_eq_entry entry{};
    entry.fid = object;
    ASSERT_EQ(queue.write(FI_NOTIFY, &entry, sizeof entry), 0);
  }
  EventError error;
  error.object = &one;
  ASSERT_EQ(queue.write_error(error), 0);
  int disposed = 0;
  queue.purge(&one, [&](uint32_t number, const std::byte*) {
    EXPECT_EQ(number, uint32_t(FI_NOTIFY));
    ++disposed;
  });
  EXPECT_EQ(disposed, 2);
  EXPECT_EQ(queue.pending(), 1u);
}

}  // namespace
}  // namespace weft::core
