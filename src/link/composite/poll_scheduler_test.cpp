// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The schedule of a composite link's polls, by a clock of the test.
#include "link/composite/poll_scheduler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>

namespace weft::link::composite {
namespace {

constexpr uint64_t us = 1'000;
constexpr uint64_t ms = 1'000 * us;

// A link that polls in a loop, by a clock of nanoseconds.
class Schedule : public ::testing::Test {
 protected:
  Schedule() { scheduler_.calibrate(1'000); }
  // One poll, `ns` after the last one. True: the remote side was polled; it had `remote` frames.
  bool poll(uint64_t ns, int local = 0, int remote = 0) {
    now_ += ns;
    scheduler_.on_local_poll(local);
    if (!scheduler_.is_due()) return false;
    ++checks_;
    if (!scheduler_.check(now_, has_local_, burst_)) return false;
    if (remote != 0) scheduler_.on_remote_frames(now_);
    scheduler_.remote_polled();
    return true;
  }
  // Polls of the remote side in that time, of a program that polls each `ns`.
  unsigned count(uint64_t time, uint64_t ns, int local = 0) {
    unsigned polls = 0;
    for (const uint64_t until = now_ + time; now_ < until;) polls += poll(ns, local) ? 1 : 0;
    return polls;
  }

  PollScheduler scheduler_;
  uint64_t now_ = 1'000 * ms;
  bool has_local_ = true;
  uint32_t burst_ = 0;
  unsigned checks_ = 0;
};

TEST_F(Schedule, EachPollReadsTheRemoteSideWhileItIsHot) {
  scheduler_.expect_remote(now_);
  EXPECT_TRUE(poll(20, 0, 1));
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(poll(20));
  (void)count(PollScheduler::remote_hot_ns, 20);
  EXPECT_LT(count(100 * us, 20), 101);
}

TEST_F(Schedule, EveryFourthPollReadsAHotRemoteSideWhileTheLocalSideHasFrames) {
  scheduler_.expect_remote(now_);
  EXPECT_TRUE(poll(20, 1, 1));
  for (int i = 1; i <= 40; ++i) EXPECT_EQ(poll(20, 1), i % 4 == 0) << i;
}

TEST_F(Schedule, FramesOfTheRemoteSideMakeItHot) {
  (void)count(10 * ms, 20);
  while (!poll(20, 0, 1)) {
  }
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(poll(20));
}

TEST_F(Schedule, TheLongerTheRemoteSideIsSilentTheMoreRarelyABusyLinkPollsIt) {
  (void)count(ms, 20, 1);
  scheduler_.expect_remote(now_);
  (void)poll(20, 1, 1);
  (void)count(PollScheduler::remote_hot_ns, 20, 1);
  const unsigned soon = count(100 * us, 20, 1);
  (void)count(2 * ms, 20, 1);
  const unsigned late = count(1'000 * us, 20, 1);
  EXPECT_GE(soon, 8U);  // each 10 us, and at most 320 ns until the next look
  EXPECT_LE(soon, 100 * us / PollScheduler::busy_pause_ns_min);
  EXPECT_LE(late, 1'000 * us / PollScheduler::busy_pause_ns_max);
}

TEST_F(Schedule, AnIdleLinkPollsTheRemoteSideEachThreeMicroseconds) {
  (void)count(ms, 20);
  const unsigned polls = count(300 * us, 20);
  EXPECT_GE(polls, 90U);
  EXPECT_LE(polls, 100U);
}

TEST_F(Schedule, ABusyLocalSideKeepsTheRemoteSideForLonger) {
  (void)count(100 * ms, 20);
  (void)count(ms, 20, 1);
  EXPECT_LE(count(1'000 * us, 20, 1), 10U);
  EXPECT_GE(count(1'000 * us, 20, 1), 9U);
  // Not any more, 100 us after the last frame of the local side.
  (void)count(PollScheduler::local_busy_ns + PollScheduler::busy_pause_ns_max, 20);
  EXPECT_GE(count(1'000 * us, 20), 250U);
}

TEST_F(Schedule, WhatTheLocalSideSendsCountsAsItsFrames) {
  (void)count(100 * ms, 20);
  unsigned polls = 0;
  for (const uint64_t until = now_ + ms; now_ < until; ++burst_) polls += poll(20) ? 1 : 0;
  polls = 0;
  for (const uint64_t until = now_ + ms; now_ < until; ++burst_) polls += poll(20) ? 1 : 0;
  EXPECT_LE(polls, 10U);
}

TEST_F(Schedule, TheClockIsReadAtEverySixteenthPollOfALoop) {
  (void)count(ms, 5);
  checks_ = 0;
  for (int i = 0; i < 1600; ++i) (void)poll(5);
  EXPECT_EQ(checks_, 100U);
}

TEST_F(Schedule, AProgramThatPollsRarelyReadsTheRemoteSideAtEachPoll) {
  (void)count(ms, 5);
  (void)count(ms, 20 * us);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(poll(20 * us));
}

TEST_F(Schedule, WithoutALocalSideEachPollReadsTheRemoteOne) {
  has_local_ = false;
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(poll(20)) << i;
}

TEST_F(Schedule, ANewScheduleReadsTheRemoteSideAtTheFirstPoll) {
  EXPECT_TRUE(scheduler_.is_remote_next());
  EXPECT_TRUE(poll(20));
}

// The same rules in one function, as the link had them, with the constants in ticks of 3 GHz.
class Former {
 public:
  void on_local_poll(int taken) { local_frames |= static_cast<uint32_t>(taken); }
  bool is_due() { return --countdown == 0; }
  void expect(uint64_t now) {
    if (countdown == 1) return;
    countdown = 1;
    remote_heard = now;
  }
  void force(uint64_t now) {
    countdown = 1;
    remote_heard = now;
  }
  // `poll`: of the remote side, 0 or frames. `then`: the time after it.
  template <class F>
  bool check(uint64_t now, bool local_on, uint32_t burst, uint64_t then, F&& poll) {
    bool local_spoke = local_frames != 0;
    local_frames = 0;
    local_spoke = local_spoke || burst != local_burst;
    local_burst = burst;
    if (local_spoke) local_heard = now;
    polls_per_check =
        now - checked < 1'500 ? std::min(2 * polls_per_check, 16U) : std::max(polls_per_check / 2, 1U);
    checked = now;
    countdown = polls_per_check;
    bool hot = now - remote_heard < 150'000;
    if (local_on && !hot) {
      const uint64_t silence = (now - remote_heard) / 16;
      const uint64_t pause = now - local_heard < 300'000 ? std::clamp<uint64_t>(silence, 30'000, 300'000)
                                                         : std::clamp<uint64_t>(silence, 3'000, 9'000);
      if (now - remote_polled < pause) return false;
    }
    remote_polled = now;
    if (poll() != 0) {
      remote_heard = then;
      hot = true;
    }
    if (!local_on) countdown = 1;
    else if (hot) countdown = local_spoke ? 4 : 1;
    return true;
  }

  uint32_t local_frames = 0, countdown = 1, polls_per_check = 1, local_burst = 0;
  uint64_t checked = 0, local_heard = 0, remote_heard = 0, remote_polled = 0;
};

// Random programs, whose mix of events changes: the same decision at each poll.
TEST(PollScheduler, DecidesAsTheFormerArithmeticDid) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    PollScheduler scheduler;
    Former former;
    uint64_t now = random() >> 8;
    uint32_t burst = 0;
    const bool has_local = seed % 8 != 0;
    unsigned polled = 0;
    uint64_t step = 1, local_one_of = 1, remote_one_of = 1, send_one_of = 1;
    for (unsigned i = 0; i < 20'000; ++i) {
      if (i % 500 == 0) {
        step = uint64_t{1} << random() % 20;
        local_one_of = uint64_t{1} << random() % 12;
        remote_one_of = uint64_t{1} << random() % 12;
        send_one_of = uint64_t{1} << random() % 12;
      }
      now += random() % (2 * step);
      if (random() % send_one_of == 0) {
        if (!scheduler.is_remote_next()) scheduler.expect_remote(now);
        former.expect(now);
      }
      if (random() % 1024 == 0) {
        scheduler.expect_remote(now);
        former.force(now);
      }
      if (random() % local_one_of == 0) ++burst;
      const int taken = random() % local_one_of == 0 ? 1 : 0;
      scheduler.on_local_poll(taken);
      former.on_local_poll(taken);
      const bool due = scheduler.is_due();
      ASSERT_EQ(due, former.is_due()) << seed << ' ' << i;
      if (!due) continue;
      // The handler of a frame may send to the remote side.
      const int came = random() % remote_one_of == 0 ? 1 : 0;
      const bool sends = random() % 4 == 0;
      const uint64_t then = now + random() % 6'000;
      bool polls = scheduler.check(now, has_local, burst);
      if (polls) {
        ++polled;
        if (sends && !scheduler.is_remote_next()) scheduler.expect_remote(then);
        if (came != 0) scheduler.on_remote_frames(then);
        scheduler.remote_polled();
      }
      const bool as_before = former.check(now, has_local, burst, then, [&] {
        if (sends) former.expect(then);
        return came;
      });
      ASSERT_EQ(polls, as_before) << seed << ' ' << i;
      if (polls) now = then;
    }
    EXPECT_GT(polled, 100U) << seed;
  }
}

}  // namespace
}  // namespace weft::link::composite
