// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of the meeting: every byte is taken once, whoever comes when; a side that lies loses the message and nothing else.
#include "link/shm/meeting.hpp"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

namespace weft::link::shm {
namespace {

constexpr uint32_t page = 4096;

struct Copied {
  explicit Copied(uint64_t total) : bytes(total, 0) {}
  void add(const MeetingRange& range) {
    ASSERT_LE(range.offset, bytes.size());
    ASSERT_LE(range.bytes, bytes.size() - range.offset);
    for (uint64_t i = 0; i < range.bytes; ++i) ++bytes[range.offset + i];
  }
  bool once() const {
    for (const uint8_t count : bytes)
      if (count != 1) return false;
    return true;
  }
  std::vector<uint8_t> bytes;
};

TEST(MeetingWord, WhoIsAloneTakesEverything) {
  for (const uint64_t total :
       {uint64_t{1}, uint64_t{4095}, uint64_t{4096}, uint64_t{100'001}, uint64_t{1} << 20}) {
    MeetingWords words{};
    Copied copied(total);
    MeetingFront front(words, 7, {total, page});
    for (MeetingRange range = front.claim(); range.bytes != 0; range = front.claim()) copied.add(range);
    EXPECT_EQ(front.ask(), MeetingFront::Sender::Through);
    EXPECT_EQ(front.rest().bytes, 0u);
    EXPECT_EQ(front.written(), 0u);
    EXPECT_TRUE(copied.once());
    // Who comes late finds nothing, nor in the next use of the words.
    EXPECT_EQ(MeetingBack(words, 7, {total, page}).claim().bytes, 0u);
    MeetingFront next(words, 8, {total, page});
    EXPECT_EQ(MeetingBack(words, 7, {total, page}).claim().bytes, 0u);
  }
}

// Any order of the steps of both sides.
TEST(MeetingWord, TheyMeetSomewhere) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr uint64_t seeds = 100;
#else
  constexpr uint64_t seeds = 3000;
#endif
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    std::mt19937_64 random(seed);
    const MeetingCut cut{1 + random() % 600'000, page << (random() % 4)};
    ASSERT_TRUE(cut.is_sound());
    MeetingWords words{};
    Copied copied(cut.total);
    MeetingFront front(words, static_cast<uint32_t>(seed), cut);
    MeetingBack back(words, static_cast<uint32_t>(seed), cut);
    const bool fails = random() % 4 == 0;
    bool front_ends = false;
    bool back_ends = false;
    bool asked = false;
    MeetingRange writing;
    while (!front_ends || !back_ends) {
      if (random() % 2 == 0 && !front_ends) {
        const MeetingRange range = front.claim();
        copied.add(range);
        front_ends = range.bytes == 0;
        if (front_ends) asked = front.ask() == MeetingFront::Sender::Busy;
        EXPECT_EQ(asked, front_ends && writing.bytes != 0) << "seed " << seed;
      } else if (!back_ends) {
        if (writing.bytes != 0 && fails && random() % 4 == 0) {
          back.fail();
          writing = {};
          back_ends = true;
        } else if (writing.bytes != 0) {
          copied.add(writing);
          back.finish(writing);
          writing = {};
        } else {
          writing = back.claim();
          back_ends = writing.bytes == 0;
        }
      }
    }
    EXPECT_EQ(back.asked(), asked) << "seed " << seed;
    ASSERT_EQ(front.sender(), MeetingFront::Sender::Through) << "seed " << seed;
    if (const MeetingRange rest = front.rest(); rest.bytes != 0) copied.add(rest);
    ASSERT_TRUE(copied.once()) << "seed " << seed;
  }
}

TEST(MeetingWord, ASideThatIsGivenUpTakesNoMore) {
  MeetingWords words{};
  const MeetingCut cut{1 << 20, page};
  MeetingFront front(words, 3, cut);
  MeetingBack back(words, 3, cut);
  const MeetingRange taken = back.claim();
  ASSERT_NE(taken.bytes, 0u);
  front.close();
  EXPECT_EQ(back.claim().bytes, 0u);
  EXPECT_EQ(front.sender(), MeetingFront::Sender::Busy);
  EXPECT_EQ(front.claim().bytes, 0u);
  EXPECT_EQ(front.ask(), MeetingFront::Sender::Busy);
  back.finish(taken);
  EXPECT_TRUE(back.asked());
  EXPECT_EQ(front.sender(), MeetingFront::Sender::Through);
  EXPECT_EQ(front.rest().bytes, cut.total - taken.bytes);
}

// What a sender says who was given up long ago is not the next meeting's.
TEST(MeetingWord, WhoComesLateIsNotCountedAgain) {
  MeetingWords words{};
  const MeetingCut cut{1 << 20, page};
  MeetingFront front(words, 3, cut);
  MeetingBack late(words, 3, cut);
  const MeetingRange taken = late.claim();
  ASSERT_NE(taken.bytes, 0u);
  front.close();
  EXPECT_EQ(front.ask(), MeetingFront::Sender::Busy);
  MeetingFront next(words, 4, cut);
  MeetingBack back(words, 4, cut);
  ASSERT_EQ(back.claim().bytes, taken.bytes);
  next.close();
  late.finish(taken);
  EXPECT_FALSE(late.asked());
  EXPECT_EQ(next.sender(), MeetingFront::Sender::Busy);
  EXPECT_EQ(next.written(), 0u);
  late.fail();
  EXPECT_EQ(next.sender(), MeetingFront::Sender::Busy);
  EXPECT_FALSE(next.refused());
  back.fail();
  EXPECT_EQ(next.sender(), MeetingFront::Sender::Through);
  EXPECT_TRUE(next.refused());
  EXPECT_EQ(next.rest().bytes, cut.total);
}

// The sender's half may go on in another call.
TEST(MeetingWord, ASenderGoesOnWhereItStopped) {
  MeetingWords words{};
  const MeetingCut cut{1 << 20, page};
  Copied copied(cut.total);
  MeetingFront front(words, 3, cut);
  uint32_t taken = 0;
  for (bool more = true; more;) {
    MeetingBack back(words, 3, cut, taken);
    const MeetingRange range = back.claim();
    more = range.bytes != 0;
    if (!more) break;
    copied.add(range);
    back.finish(range);
    taken = back.taken();
  }
  EXPECT_EQ(front.claim().bytes, 0u);
  EXPECT_EQ(front.sender(), MeetingFront::Sender::Through);
  EXPECT_EQ(front.rest().bytes, 0u);
  EXPECT_TRUE(copied.once());
}

// Closed is closed, whatever the sender stores afterwards.
TEST(MeetingWord, NothingIsTakenAfterTheClose) {
  MeetingWords words{};
  const MeetingCut cut{1 << 20, page};
  MeetingFront front(words, 3, cut);
  const MeetingRange first = front.claim();
  const uint64_t word = words.taken.load();
  front.close();
  words.taken.store(word);
  EXPECT_EQ(front.claim().bytes, 0u);
  EXPECT_EQ(front.sender(), MeetingFront::Sender::Through);
  EXPECT_EQ(front.rest().bytes, cut.total - first.bytes);
}

// Whatever stands in the words: ranges lie in the message, both sides end, and what is told of the sender is one of two things.
TEST(MeetingWord, AHostileWordCostsTheMessageOnly) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 20'000; ++round) {
    const MeetingCut cut{1 + random() % 300'000, page << (random() % 3)};
    MeetingWords words{};
    MeetingFront front(words, 9, cut);
    MeetingBack back(words, 9, cut);
    const auto nonsense = [&] {
      const uint64_t generation = random() % 4 != 0 ? uint64_t{9} << 32 : random() << 32;
      return generation | (random() % 3 == 0 ? random() & 0xffffffff : (random() % 80) << 16 | random() % 80);
    };
    uint64_t front_bytes = 0;
    uint64_t back_bytes = 0;
    const auto check = [&](const MeetingRange& range, uint64_t& all) {
      ASSERT_LE(range.offset, cut.total);
      ASSERT_LE(range.bytes, cut.total - range.offset);
      all += range.bytes;
      ASSERT_LE(all, cut.total);
    };
    for (int i = 0; i < 40; ++i) {
      if (random() % 2 == 0) words.taken.store(nonsense());
      if (random() % 2 == 0) words.finished.store(nonsense());
      check(front.claim(), front_bytes);
      const MeetingRange range = back.claim();
      check(range, back_bytes);
      if (range.bytes != 0) back.finish(range);
      if (HasFatalFailure()) return;
    }
    front.close();
    words.finished.store(nonsense());
    if (front.ask() == MeetingFront::Sender::Through) check(front.rest(), front_bytes);
    if (HasFatalFailure()) return;
  }
}

TEST(MeetingWord, CutsThatAreRefused) {
  EXPECT_FALSE((MeetingCut{0, page}.is_sound()));
  EXPECT_FALSE((MeetingCut{100, 0}.is_sound()));
  EXPECT_FALSE((MeetingCut{100, page - 1}.is_sound()));
  EXPECT_FALSE((MeetingCut{uint64_t{page} * (meeting_grains_max + 1), page}.is_sound()));
  EXPECT_FALSE((MeetingCut{UINT64_MAX, page}.is_sound()));
  EXPECT_TRUE((MeetingCut{uint64_t{page} * meeting_grains_max, page}.is_sound()));
}

// Two threads, many meetings in the same words: what each writes is there when the other sees it (TSan).
TEST(MeetingWord, TwoThreads) {
  constexpr int rounds = 1000;
  constexpr uint64_t total = 40 * page + 17;
  MeetingWords words{};
  std::vector<uint8_t> target(total);
  std::atomic<uint32_t> window{0}, told{0};
  std::thread sender([&] {
    for (uint32_t round = 1; round <= rounds; ++round) {
      while (window.load(std::memory_order_acquire) < round) std::this_thread::yield();
      MeetingBack back(words, round, {total, page});
      for (MeetingRange range = back.claim(); range.bytes != 0; range = back.claim()) {
        std::fill_n(target.begin() + static_cast<ptrdiff_t>(range.offset), range.bytes,
                    static_cast<uint8_t>(round));
        back.finish(range);
      }
      if (back.asked()) told.store(round, std::memory_order_release);
    }
  });
  for (uint32_t round = 1; round <= rounds; ++round) {
    MeetingFront front(words, round, {total, page});
    window.store(round, std::memory_order_release);
    for (MeetingRange range = front.claim(); range.bytes != 0; range = front.claim())
      std::fill_n(target.begin() + static_cast<ptrdiff_t>(range.offset), range.bytes,
                  static_cast<uint8_t>(round));
    if (front.ask() == MeetingFront::Sender::Busy) {
      while (told.load(std::memory_order_acquire) != round) std::this_thread::yield();
      EXPECT_EQ(front.sender(), MeetingFront::Sender::Through);
    }
    EXPECT_EQ(front.rest().bytes, 0u);
    size_t wrong = 0;
    for (const uint8_t byte : target) wrong += byte != static_cast<uint8_t>(round) ? 1 : 0;
    EXPECT_EQ(wrong, 0u) << "round " << round;
    if (HasFailure()) break;
  }
  window.store(rounds);
  sender.join();
}

}  // namespace
}  // namespace weft::link::shm
