// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The schedule of a progress thread, by a clock of the test.
#include "os/progress_schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>

namespace weft::os {
namespace {

using Policy = ProgressSchedule;
using Duty = Policy::Duty;
using State = Policy::State;

constexpr uint64_t us = 1'000;
constexpr uint64_t ms = 1'000 * us;

// A thread without a lock, and endpoints that are what the test says.
class Schedule : public ::testing::Test {
 protected:
  explicit Schedule(Duty duty) : policy(duty) { seen.has_background_work = true; }
  State turn(uint64_t ns = 0) {
    now += ns;
    Policy::Turn turn = seen;
    if (policy.duty() == Duty::BackgroundWork) turn.now = now;
    else turn.has_background_work = false;
    return policy.turn(turn);
  }
  State polled_turn() {
    seen.is_polled = true;
    const State state = turn();
    seen.is_polled = false;
    return state;
  }
  State idle_turn(uint64_t ns = 0) {
    seen.has_background_work = false;
    const State state = turn(ns);
    seen.has_background_work = true;
    return state;
  }
  // Of a thread that stands aside: the pauses between looks that find the lock held, until it waits for the lock.
  unsigned held_checks() {
    for (unsigned checks = 1;; ++checks) {
      (void)policy.check_after_ns();
      if (policy.found_lock_held()) return checks;
    }
  }
  void sleep() {
    ASSERT_EQ(turn(), State::Working);
    policy.worked(false);
    policy.falls_asleep();
  }

  uint64_t now = 1'000 * ms;
  Policy policy;
  Policy::Turn seen;
};
class WithEitherDuty : public Schedule, public ::testing::WithParamInterface<Duty> {
 protected:
  WithEitherDuty() : Schedule(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(ProgressSchedule, WithEitherDuty,
                         testing::Values(Duty::Everything, Duty::BackgroundWork), [](const auto& duty) {
                           return duty.param == Duty::Everything ? "Everything" : "BackgroundWork";
                         });
class WithEverything : public Schedule {
 protected:
  WithEverything() : Schedule(Duty::Everything) {}
};
class WithBackgroundWork : public Schedule {
 protected:
  WithBackgroundWork() : Schedule(Duty::BackgroundWork) {}
};

// --- turns ---

TEST_P(WithEitherDuty, RestsBeforeTheFirstTurn) { EXPECT_EQ(policy.state(), State::Resting); }

TEST_P(WithEitherDuty, WorksWhenTheProgramDoesNotPoll) {
  EXPECT_EQ(turn(), State::Working);
  EXPECT_EQ(policy.state(), State::Working);
  policy.worked(false);
  EXPECT_EQ(turn(), State::Working);
}

TEST_P(WithEitherDuty, StandsAsideWhenTheProgramHasPolled) {
  EXPECT_EQ(polled_turn(), State::Aside);
  EXPECT_EQ(policy.state(), State::Aside);
  EXPECT_EQ(polled_turn(), State::Aside);
}

TEST_P(WithEitherDuty, WorksAgainWhenTheProgramHasNotPolledBetweenTwoLooks) {
  EXPECT_EQ(polled_turn(), State::Aside);
  (void)policy.check_after_ns();
  EXPECT_EQ(turn(), State::Working);
}

TEST_P(WithEitherDuty, StandsAsideAfterWorkDuringWhichTheProgramPolled) {
  EXPECT_EQ(turn(), State::Working);
  policy.worked(true);
  EXPECT_EQ(polled_turn(), State::Aside);
}

TEST_F(WithEverything, NeverRests) {
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(turn(Policy::rest_after_ns), State::Working);
    policy.worked(false);
  }
}

// --- aside ---

TEST_P(WithEitherDuty, LooksBecomeRarerWhileTheProgramPolls) {
  for (const int64_t ns : {1'000'000, 2'000'000, 4'000'000, 4'000'000, 4'000'000}) {
    EXPECT_EQ(polled_turn(), State::Aside);
    EXPECT_EQ(policy.check_after_ns(), ns);
  }
}

TEST_P(WithEitherDuty, LooksBecomeRarerWhileTheLockIsHeld) {
  EXPECT_EQ(polled_turn(), State::Aside);
  for (const int64_t ns : {1'000'000, 2'000'000, 4'000'000, 4'000'000}) {
    EXPECT_EQ(policy.check_after_ns(), ns);
    EXPECT_FALSE(policy.found_lock_held());
  }
}

TEST_P(WithEitherDuty, ALookThatServesAnotherEndpointMakesTheNextOneSoon) {
  for (int i = 0; i < 5; ++i) {
    (void)polled_turn();
    (void)policy.check_after_ns();
  }
  seen.has_served = true;
  EXPECT_EQ(polled_turn(), State::Aside);
  EXPECT_EQ(policy.check_after_ns(), Policy::check_ns_min);
}

TEST_P(WithEitherDuty, WorkMakesTheNextLookSoon) {
  for (int i = 0; i < 5; ++i) {
    (void)polled_turn();
    (void)policy.check_after_ns();
  }
  EXPECT_EQ(turn(), State::Working);
  policy.worked(false);
  EXPECT_EQ(polled_turn(), State::Aside);
  EXPECT_EQ(policy.check_after_ns(), Policy::check_ns_min);
}

TEST_P(WithEitherDuty, ASleepMakesTheNextLookSoon) {
  sleep();
  (void)policy.woke(false);
  EXPECT_EQ(polled_turn(), State::Aside);
  EXPECT_EQ(policy.check_after_ns(), Policy::check_ns_min);
}

TEST_P(WithEitherDuty, WaitsForTheLockAfterTwoLooksOrSixteenWithOneEndpoint) {
  for (int i = 0; i < 3; ++i) {
    seen.has_several = true;
    EXPECT_EQ(polled_turn(), State::Aside);
    EXPECT_EQ(held_checks(), Policy::held_checks_max);
    seen.has_several = false;
    EXPECT_EQ(polled_turn(), State::Aside);
    EXPECT_EQ(held_checks(), Policy::held_checks_max_alone);
  }
}

TEST_P(WithEitherDuty, LooksThatFindTheLockHeldAreCountedAnewInEachTurn) {
  seen.has_several = true;
  EXPECT_EQ(polled_turn(), State::Aside);
  EXPECT_FALSE(policy.found_lock_held());
  EXPECT_EQ(polled_turn(), State::Aside);  // the next look found it free
  EXPECT_FALSE(policy.found_lock_held());
  EXPECT_TRUE(policy.found_lock_held());
}

// --- working ---

TEST_P(WithEitherDuty, YieldsSixteenTimesBeforeItPauses) {
  for (unsigned i = 0; i < Policy::yields_max; ++i) {
    EXPECT_EQ(turn(), State::Working);
    policy.worked(false);
    EXPECT_EQ(policy.retry_after_ns(), 0) << i;
  }
  EXPECT_EQ(turn(), State::Working);
  policy.worked(false);
  EXPECT_EQ(policy.retry_after_ns(), Policy::pause_ns_min);
}

TEST_P(WithEitherDuty, PausesDoubleWithEveryFourthAttemptUpToSixteenMilliseconds) {
  (void)turn();
  for (unsigned i = 0; i < Policy::yields_max; ++i) (void)policy.retry_after_ns();
  for (unsigned i = 1; i < 4; ++i) EXPECT_EQ(policy.retry_after_ns(), 20'000) << i;
  for (int64_t ns = 40'000; ns < Policy::pause_ns_max; ns *= 2)
    for (unsigned i = 0; i < 4; ++i) EXPECT_EQ(policy.retry_after_ns(), ns) << i;
  for (unsigned i = 0; i < 1000; ++i) EXPECT_EQ(policy.retry_after_ns(), Policy::pause_ns_max) << i;
}

TEST_P(WithEitherDuty, WhatComesMakesItYieldAgain) {
  (void)turn();
  for (unsigned i = 0; i < 100; ++i) (void)policy.retry_after_ns();
  policy.worked(false);
  EXPECT_NE(policy.retry_after_ns(), 0);
  policy.worked(true);
  EXPECT_EQ(policy.retry_after_ns(), 0);
}

TEST_P(WithEitherDuty, ASleepMakesItYieldAgain) {
  (void)turn();
  for (unsigned i = 0; i < 100; ++i) (void)policy.retry_after_ns();
  policy.falls_asleep();
  (void)policy.woke(false);
  (void)turn();
  EXPECT_EQ(policy.retry_after_ns(), 0);
}

TEST_P(WithEitherDuty, StandingAsideDoesNotMakeItYieldAgain) {
  (void)turn();
  for (unsigned i = 0; i < 100; ++i) (void)policy.retry_after_ns();
  (void)polled_turn();
  (void)turn();
  EXPECT_NE(policy.retry_after_ns(), 0);
}

// --- asleep ---

TEST_P(WithEitherDuty, SleepsWhenAllIsArmedAndWorksAtOnceWhenItWakes) {
  sleep();
  EXPECT_EQ(policy.state(), State::Asleep);
  EXPECT_EQ(policy.woke(false), 0);
  EXPECT_EQ(turn(), State::Working);
}

TEST_P(WithEitherDuty, PausesAfterANoticeOfBackgroundWork) {
  sleep();
  policy.notified();
  EXPECT_EQ(policy.woke(false), Policy::pause_ns_after_wake);
  EXPECT_EQ(turn(), State::Working);
}

TEST_P(WithEitherDuty, ANoticeLastsUntilTheNextSleep) {
  sleep();
  policy.notified();
  (void)policy.woke(false);
  sleep();
  EXPECT_EQ(policy.woke(false), 0);
}

TEST_P(WithEitherDuty, ANoticeBeforeTheSleepDoesNotCount) {
  (void)turn();
  policy.notified();
  policy.falls_asleep();
  EXPECT_EQ(policy.woke(false), 0);
}

TEST_F(WithEverything, DoesNotGiveWayToThreadsThatSleepOnTheSameEndpoint) {
  sleep();
  EXPECT_EQ(policy.woke(true), 0);
}

TEST_F(WithBackgroundWork, GivesWayToThreadsThatSleepOnTheSameEndpoint) {
  sleep();
  EXPECT_EQ(policy.woke(true), Policy::yield_ns);
  sleep();
  policy.notified();
  EXPECT_EQ(policy.woke(true), Policy::pause_ns_after_wake);
}

// --- resting ---

TEST_F(WithBackgroundWork, RestsTwentyMillisecondsAfterTheLastBackgroundWork) {
  EXPECT_EQ(turn(), State::Working);
  EXPECT_EQ(idle_turn(), State::Aside);
  EXPECT_EQ(idle_turn(Policy::rest_after_ns - 1), State::Aside);
  EXPECT_EQ(idle_turn(1), State::Resting);
  EXPECT_EQ(policy.state(), State::Resting);
}

TEST_F(WithBackgroundWork, RestsTwentyMillisecondsAfterTheFirstTurnWithoutWork) {
  EXPECT_EQ(idle_turn(), State::Aside);
  EXPECT_EQ(idle_turn(Policy::rest_after_ns - 1), State::Aside);
  EXPECT_EQ(idle_turn(1), State::Resting);
}

TEST_F(WithBackgroundWork, RestsThoughTheProgramPolls) {
  EXPECT_EQ(turn(), State::Working);
  seen.is_polled = true;
  EXPECT_EQ(idle_turn(Policy::rest_after_ns), State::Resting);
}

TEST_F(WithBackgroundWork, BackgroundWorkPostponesTheRest) {
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(idle_turn(Policy::rest_after_ns - 1), State::Aside);
    EXPECT_EQ(turn(), State::Working);
  }
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(polled_turn(), State::Aside) << "the program does the work";
    EXPECT_EQ(idle_turn(Policy::rest_after_ns - 1), State::Aside);
  }
}

TEST_F(WithBackgroundWork, TheRestBeginsAnewAfterARest) {
  EXPECT_EQ(turn(), State::Working);
  EXPECT_EQ(idle_turn(Policy::rest_after_ns), State::Resting);
  EXPECT_EQ(policy.woke(false), 0);
  EXPECT_EQ(idle_turn(1'000 * ms), State::Aside) << "it slept for a second";
  EXPECT_EQ(policy.check_after_ns(), Policy::check_ns_min);
  EXPECT_EQ(idle_turn(Policy::rest_after_ns - 1), State::Aside);
  EXPECT_EQ(idle_turn(1), State::Resting);
}

TEST_F(WithBackgroundWork, ANoticeEndsTheRestAfterAPause) {
  EXPECT_EQ(turn(), State::Working);
  EXPECT_EQ(idle_turn(Policy::rest_after_ns), State::Resting);
  policy.notified();
  EXPECT_EQ(policy.woke(true), Policy::pause_ns_after_wake);
  EXPECT_EQ(turn(1'000 * ms), State::Working);
  EXPECT_EQ(idle_turn(Policy::rest_after_ns - 1), State::Aside);
}

TEST_F(WithBackgroundWork, ANoticeBeforeTheRestDoesNotCount) {
  EXPECT_EQ(turn(), State::Working);
  policy.notified();
  EXPECT_EQ(idle_turn(Policy::rest_after_ns), State::Resting);
  EXPECT_EQ(policy.woke(false), 0);
}

// The same rules as the thread's functions had them: what each does, and for how long.
class Former {
 public:
  explicit Former(Duty duty, uint64_t now) : duty_(duty), worked_at(now) {}
  State turn(const Policy::Turn& seen) {
    if (seen.is_polled && seen.has_served) check_ns = 1'000'000;
    if (duty_ == Duty::BackgroundWork && !seen.has_background_work) {
      if (seen.now - worked_at >= 20'000'000) {
        notified = false;
        return State::Resting;
      }
      return aside(seen.has_several);
    }
    if (duty_ == Duty::BackgroundWork) worked_at = seen.now;
    if (seen.is_polled) return aside(seen.has_several);
    check_ns = 1'000'000;
    return State::Working;
  }
  int64_t check() {
    const int64_t paused = check_ns;
    check_ns = std::min(2 * check_ns, int64_t{4'000'000});
    return paused;
  }
  bool held() { return !(++checks < checks_max); }
  void came() { unarmed = 0; }
  void armed() {
    unarmed = 0;
    notified = false;
  }
  int64_t unarmed_pause() {
    if (unarmed++ < 16) return 0;
    const unsigned doublings = std::min((unarmed - 16) / 4, 10U);
    return std::min(int64_t{20'000} << doublings, int64_t{16'000'000});
  }
  int64_t woke(bool has_sleepers) {
    check_ns = 1'000'000;
    const bool yields_cpu = duty_ == Duty::BackgroundWork && has_sleepers;
    return notified ? 200'000 : yields_cpu ? 100'000 : 0;
  }
  void rested(uint64_t now) { worked_at = now; }

  bool notified = false;

 private:
  State aside(bool has_several) {
    checks = 0;
    checks_max = has_several ? 2 : 16;
    return State::Aside;
  }
  Duty duty_;
  unsigned checks = 0, checks_max = 0, unarmed = 0;
  int64_t check_ns = 1'000'000;
  uint64_t worked_at;
};

// Random programs, whose mix of events changes: the same decision in each turn.
TEST(ProgressSchedule, DecidesAsTheFormerArithmeticDid) {
  unsigned states[4] = {};
  unsigned ahead = 0;
  int64_t longest = 0;
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    const Duty duty = seed % 2 == 0 ? Duty::Everything : Duty::BackgroundWork;
    uint64_t now = random() >> 8;
    ProgressSchedule schedule(duty);
    Former former(duty, now);
    uint64_t step = 1, polled = 1, served = 1, work = 1, came = 1, busy = 1, held = 1, noticed = 1,
             sleepers = 1;
    const auto one_of = [&](uint64_t count) { return random() % count == 0; };
    const auto notices = [&] {
      if (!one_of(noticed)) return;
      schedule.notified();
      former.notified = true;
    };
    for (unsigned i = 0; i < 4'000; ++i) {
      if (i % 250 == 0) {
        step = uint64_t{1} << random() % 25;
        for (uint64_t* each : {&polled, &served, &work, &came, &busy, &held, &noticed, &sleepers})
          *each = uint64_t{1} << random() % 8;
      }
      Policy::Turn seen;
      seen.is_polled = one_of(polled);
      seen.has_served = seen.is_polled && one_of(served);
      seen.has_several = one_of(2);
      seen.has_background_work = duty == Duty::BackgroundWork && one_of(work);
      seen.now = duty == Duty::BackgroundWork ? now : 0;
      notices();
      const State state = schedule.turn(seen);
      ASSERT_EQ(state, former.turn(seen)) << seed << ' ' << i;
      ASSERT_EQ(schedule.state(), state);
      ++states[static_cast<unsigned>(state)];
      if (state == State::Aside) {
        for (bool taken = false; !taken;) {
          const int64_t pause = schedule.check_after_ns();
          ASSERT_EQ(pause, former.check()) << seed << ' ' << i;
          now += static_cast<uint64_t>(pause);
          notices();
          if (!one_of(held)) break;
          taken = schedule.found_lock_held();
          ahead += taken ? 1 : 0;
          ASSERT_EQ(taken, former.held()) << seed << ' ' << i;
        }
      } else if (state == State::Working) {
        const bool has_come = one_of(came);
        schedule.worked(has_come);
        if (has_come) former.came();
        notices();
        if (one_of(busy)) {
          const int64_t pause = schedule.retry_after_ns();
          longest = std::max(longest, pause);
          ASSERT_EQ(pause, former.unarmed_pause()) << seed << ' ' << i;
          now += static_cast<uint64_t>(pause);
        } else {
          schedule.falls_asleep();
          former.armed();
          ++states[static_cast<unsigned>(State::Asleep)];
        }
      }
      if (schedule.state() == State::Asleep || state == State::Resting) {
        notices();
        now += random() % (2 * step);
        const bool has_sleepers = one_of(sleepers);
        const int64_t pause = schedule.woke(has_sleepers);
        ASSERT_EQ(pause, former.woke(has_sleepers)) << seed << ' ' << i;
        now += static_cast<uint64_t>(pause);
      }
      if (state == State::Resting) former.rested(now);
      else now += random() % (2 * step);
    }
  }
  for (const unsigned count : states) EXPECT_GT(count, 1'000U);
  EXPECT_GT(ahead, 1'000U);
  EXPECT_EQ(longest, Policy::pause_ns_max);
}

}  // namespace
}  // namespace weft::os
