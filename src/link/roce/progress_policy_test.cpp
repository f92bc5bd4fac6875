// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The rules of docs/verbs.md ("Calls that wait", "Programs that sleep", "The progress thread"), by a clock of the test.
#include "link/roce/progress_policy.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace weft::link::roce {
namespace {

using Policy = ProgressPolicy;
using Answer = Policy::Answer;
using Check = Policy::Check;

constexpr uint64_t us = 1'000;
constexpr uint64_t ms = 1'000'000;
constexpr uint64_t never = UINT64_MAX;

// The queue pairs of the test.
struct Pairs {
  uint64_t due = never;
  bool is_probe = false;  // what is due
  uint64_t otherwise = never;
  bool owes_alone = true;
  bool awaits = false;
  uint64_t timeout = never;  // of the peer: an acknowledgement may wait for half of it

  uint64_t next_due() const { return due; }
  bool is_probe_next(uint64_t& then) const {
    if (is_probe) then = otherwise;
    return is_probe;
  }
  bool owes_acknowledgement_alone() const { return owes_alone; }
  bool awaits_acknowledgement() const { return awaits; }
  bool may_wait(uint64_t ns) const { return ns <= timeout / 2; }
};

// A device without sockets: policy, clock, queue pairs and the thread.
struct Progress : ::testing::Test {
  Progress() { policy.settings.has_thread = true; }

  void wait(uint64_t ns) { now += ns; }
  // The program polls and finds so many packets.
  Answer poll(int packets, bool by_socket = true, bool is_one_sided = false) {
    policy.poll_begins();
    policy.takes(now);
    const Answer answer = policy.took(now, {packets, by_socket && packets != 0, is_one_sided}, pairs);
    if (answer == Answer::WakeAndSend) notify();
    if (answer != Answer::Wait) policy.released();
    return answer;
  }
  void notify() {
    ++notices;
    policy.thread_notified();
  }
  // The program posts to a reliable queue pair. True: the packets wait.
  bool post() {
    if (policy.posted(now)) {
      if (policy.batch(now)) notify();
      return true;
    }
    policy.released();
    return false;
  }
  // The thread falls asleep. Returns for how long; `never` if nothing wakes it.
  uint64_t sleep(const Policy::Armed& armed = {}, bool has_unsent = false, bool has_news = false) {
    plan = policy.plan_sleep(now, pairs, has_unsent, has_news);
    policy.falls_asleep(plan, now, armed);
    return plan.until == never ? never : plan.until - std::min(plan.until, now);
  }
  // A packet wakes the armed thread, which takes it. False: it stands aside.
  bool wake(int packets = 1, bool is_one_sided = false) {
    policy.woke();
    Policy::Turn turn;
    if (!policy.turn_begins(turn, now, true)) {
      policy.stand_aside();
      return false;
    }
    turn.packets = packets;
    turn.is_one_sided = is_one_sided;
    if (policy.leaves_to_program(turn, pairs)) return true;
    policy.released();
    if (!policy.goes_on(turn, false)) return true;
    if (!policy.turn_begins(turn, now, false)) {
      policy.stand_aside();
      return false;
    }
    turn.packets = 0;
    turn.is_one_sided = false;
    (void)policy.goes_on(turn, false);
    return true;
  }
  void stand_aside() {
    policy.stand_aside();
    ASSERT_TRUE(policy.stands_aside());
  }
  // The thread sleeps as planned, then looks. The program polls just before.
  Check sleep_and_check(bool polls) {
    const uint64_t ns = sleep();
    wait(ns);
    if (polls) policy.program_checks(now);
    policy.woke();
    return policy.check(now);
  }

  uint64_t now = 1'000 * ms;
  Pairs pairs;
  Policy policy;
  Policy::Sleep plan;
  int notices = 0;  // the thread was woken
};

using RoceProgressPolicy = Progress;

// --- calls that wait: acknowledgements ---

TEST_F(RoceProgressPolicy, AcknowledgementOfAPollWaitsWhileTheThreadStandsAside) {
  stand_aside();
  EXPECT_EQ(poll(1), Answer::Wait);
  EXPECT_TRUE(policy.holds_packets());
  EXPECT_FALSE(post());  // it leaves with what is posted
  EXPECT_FALSE(policy.holds_packets());
  EXPECT_EQ(poll(1), Answer::Wait);
  EXPECT_EQ(poll(0), Answer::Send);  // a poll that finds its queue empty
  EXPECT_FALSE(policy.holds_packets());
}

TEST_F(RoceProgressPolicy, AcknowledgementOfALargePollDoesNotWait) {
  stand_aside();
  EXPECT_EQ(poll(Policy::late_packets_max + 1), Answer::Send);
  EXPECT_EQ(poll(Policy::late_packets_max), Answer::Wait);
}

TEST_F(RoceProgressPolicy, AcknowledgementDoesNotWaitWhereMoreIsToBeSent) {
  stand_aside();
  pairs.owes_alone = false;
  EXPECT_EQ(poll(1), Answer::Send);
}

TEST_F(RoceProgressPolicy, AcknowledgementsOfSharedMemoryWaitAfterOneSidedOperationsOnly) {
  stand_aside();
  EXPECT_EQ(poll(1, false, false), Answer::Send);
  EXPECT_EQ(poll(1, false, true), Answer::Wait);
}

TEST_F(RoceProgressPolicy, AcknowledgementWaitsWhereTheArmedThreadWakesSoon) {
  pairs.due = now + Policy::check_ns_max;
  (void)sleep();
  EXPECT_EQ(poll(1), Answer::Wait);
  EXPECT_EQ(poll(0), Answer::Send);
  policy.woke();
  wait(Policy::active_ns);  // the program was active, and is not
  pairs.due = now + Policy::check_ns_max + 1;
  (void)sleep();
  EXPECT_EQ(poll(1), Answer::Send);
  EXPECT_EQ(notices, 0);
}

// The thread has to plan its sleep anew; then acknowledgements wait.
TEST_F(RoceProgressPolicy, OneSidedOperationWakesAThreadThatSleepsLong) {
  (void)sleep();
  EXPECT_EQ(poll(1, true, true), Answer::WakeAndSend);
  policy.woke();
  EXPECT_EQ(sleep(), Policy::check_ns_max);  // the program has just polled
  EXPECT_EQ(poll(1, true, true), Answer::Wait);
  EXPECT_EQ(notices, 1);
}

TEST_F(RoceProgressPolicy, AcknowledgementWaitsForHalfOfTheTimeoutAtMost) {
  stand_aside();
  pairs.timeout = 2 * Policy::check_ns_max - 1;
  EXPECT_EQ(poll(1), Answer::Send);
  pairs.timeout = 2 * Policy::check_ns_max;
  EXPECT_EQ(poll(1), Answer::Wait);
}

TEST_F(RoceProgressPolicy, NothingWaitsWithoutAThreadOrByTheSetting) {
  Policy manual;
  manual.stand_aside();
  manual.takes(now);
  EXPECT_EQ(manual.took(now, {1, true, false}, pairs), Answer::Send);
  policy.settings.may_wait = false;
  stand_aside();
  EXPECT_EQ(poll(1), Answer::Send);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(post()) << i;
}

TEST_F(RoceProgressPolicy, OneOf16PollsThatFindACompletionTakesPackets) {
  for (int round = 0; round < 2; ++round) {
    for (int i = 1; i < 16; ++i) EXPECT_FALSE(policy.poll_finds_completion()) << i;
    EXPECT_TRUE(policy.poll_finds_completion());
  }
}

// Packet sockets: what was sent in one call comes packet by packet.
TEST_F(RoceProgressPolicy, AcknowledgementSurvivesPollsFor30UsWhereThePeersIsToCome) {
  policy.settings.one_by_one = true;
  pairs.awaits = true;
  stand_aside();
  EXPECT_EQ(poll(1), Answer::Wait);
  wait(29 * us);
  EXPECT_EQ(poll(0), Answer::Wait);
  EXPECT_EQ(poll(1), Answer::Wait);  // and the second one does not make it longer
  wait(us);
  EXPECT_EQ(poll(0), Answer::Send);
  pairs.awaits = false;
  EXPECT_EQ(poll(1), Answer::Wait);
  EXPECT_EQ(poll(0), Answer::Send);
}

// --- calls that wait: packets ---

TEST_F(RoceProgressPolicy, ThirdPostingWithoutAPollWaits) {
  stand_aside();
  EXPECT_FALSE(post());
  EXPECT_FALSE(post());
  EXPECT_TRUE(post());
  EXPECT_TRUE(post());
  EXPECT_TRUE(policy.batches());
  policy.released();
  policy.polled(now);  // also one that takes a completion
  EXPECT_FALSE(post());
  EXPECT_FALSE(post());
  EXPECT_TRUE(post());
}

TEST_F(RoceProgressPolicy, PostingsDoNotWaitForAThreadThatDoesNotStandAside) {
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(post()) << i;
}

TEST_F(RoceProgressPolicy, ThreadLooksWithin200UsAtWhatWasPosted) {
  stand_aside();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(sleep_and_check(true), Check::Nothing);
  EXPECT_EQ(sleep(), Policy::check_ns_max);
  for (int i = 0; i < 2; ++i) (void)post();
  EXPECT_EQ(notices, 0);
  EXPECT_TRUE(post());
  EXPECT_EQ(notices, 1);  // it would have come too late
  EXPECT_FALSE(policy.may_skip_checks());
  policy.woke();
  EXPECT_EQ(policy.check(now), Check::Send);
  policy.released();
  EXPECT_TRUE(post());
  EXPECT_EQ(sleep(), Policy::check_ns_min);
  EXPECT_TRUE(post());
  EXPECT_EQ(notices, 1);
  // While the program goes on so no look is later than that.
  policy.released();
  for (int i = 0; i < 8; ++i) {
    EXPECT_LE(sleep(), Policy::no_room_ns);
    wait(plan.until - now);
    EXPECT_TRUE(post());
    policy.released();
    policy.program_checks(now);
    policy.woke();
    EXPECT_EQ(policy.check(now), Check::Nothing);
  }
  EXPECT_EQ(notices, 1);
}

// --- calls that wait: the thread's acknowledgement of a one-sided operation ---

TEST_F(RoceProgressPolicy, ThreadLeavesAcknowledgementToAProgramThatReplied) {
  EXPECT_TRUE(wake(1, true));
  EXPECT_FALSE(policy.holds_packets());  // nothing is known of the program
  wait(10 * us);
  (void)post();  // the reply
  wait(100 * us);
  EXPECT_TRUE(wake(1, true));
  EXPECT_TRUE(policy.defers_acknowledgement());
  EXPECT_EQ(sleep(), Policy::late_ns);
  wait(Policy::late_ns);
  EXPECT_TRUE(wake(0));
  EXPECT_FALSE(policy.holds_packets());
  // It did not reply to that one.
  EXPECT_TRUE(wake(1, true));
  EXPECT_FALSE(policy.holds_packets());
}

TEST_F(RoceProgressPolicy, ThreadAcknowledgesWhereTheReplyWasLongAgoOrMoreCame) {
  (void)wake(1, true);
  (void)post();
  wait(Policy::replying_ns);
  EXPECT_TRUE(wake(1, true));
  EXPECT_FALSE(policy.holds_packets());
  (void)post();
  wait(100 * us);
  EXPECT_TRUE(wake(Policy::alone_packets_max + 1, true));
  EXPECT_FALSE(policy.holds_packets());
}

TEST_F(RoceProgressPolicy, ThreadAcknowledgesAtOnceByTheSetting) {
  policy.settings.may_wait = false;
  (void)wake(1, true);
  wait(10 * us);
  (void)post();
  wait(100 * us);
  EXPECT_TRUE(wake(1, true));
  EXPECT_FALSE(policy.holds_packets());
}

// --- the thread aside ---

TEST_F(RoceProgressPolicy, ThreadStandsAsideAfterThreeWakeUpsToAProgramThatPolls) {
  (void)poll(1, false);
  EXPECT_TRUE(wake(0));  // the program has taken the packet
  EXPECT_TRUE(wake(0));
  EXPECT_FALSE(wake(0));
  EXPECT_TRUE(policy.stands_aside());
}

// A turn that finds packets is followed by another one, which counts until it ends.
TEST_F(RoceProgressPolicy, ThreadStandsAsideInTheSecondTurnOfAWakeUp) {
  (void)poll(1, false);
  EXPECT_TRUE(wake(1));
  EXPECT_FALSE(wake(1));
}

TEST_F(RoceProgressPolicy, ThreadStaysWhereNobodyHasPolledFor100Us) {
  (void)poll(1, false);
  wait(Policy::active_ns);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(wake()) << i;
  (void)post();
  wait(Policy::active_ns - 1);
  EXPECT_TRUE(wake());
  EXPECT_FALSE(wake());
}

TEST_F(RoceProgressPolicy, ThreadStaysForOneSidedOperationsThatNobodyPollsFor) {
  (void)poll(1, false);
  wait(Policy::polling_ns);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(wake(1, true)) << i;
  (void)poll(1, false);  // for a completion: takes them, too
  EXPECT_TRUE(wake(1, true));
  EXPECT_FALSE(wake(1, true));
}

TEST_F(RoceProgressPolicy, ThreadStaysForAProgramThatSleepsOnEvents) {
  int thread = 0;
  (void)poll(1, false);
  EXPECT_FALSE(policy.expect_sleep(&thread));  // the thread has not stood aside
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(wake()) << i;
  // After so many polls it counts as one that does not.
  for (unsigned i = 1; i < Policy::polls_of_a_sleeper; ++i) policy.polled(now);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(wake()) << i;
  policy.polled(now);
  EXPECT_TRUE(wake());
  EXPECT_FALSE(wake());
}

TEST_F(RoceProgressPolicy, LooksAreRarerWhileTheProgramPolls) {
  stand_aside();
  for (const uint64_t expected : {50 * us, 100 * us, 200 * us, 400 * us, 800 * us, ms, ms}) {
    EXPECT_EQ(sleep(), expected);
    wait(expected);
    policy.program_checks(now);
    policy.woke();
    EXPECT_EQ(policy.check(now), Check::Nothing);
  }
}

// A look begins without the lock.
TEST_F(RoceProgressPolicy, ThreadLooksAwayWhileTheProgramTakesPackets) {
  stand_aside();
  (void)sleep();
  for (const uint64_t expected : {100 * us, 200 * us, 400 * us, 800 * us, ms, ms}) {
    wait(policy.check_ns());
    policy.program_checks(now - Policy::taking_ns + 1);
    ASSERT_TRUE(policy.may_skip_checks());
    EXPECT_TRUE(policy.skips_checks(now));
    EXPECT_EQ(policy.check_ns(), expected);
  }
  wait(policy.check_ns());
  policy.program_checks(now - Policy::taking_ns);
  EXPECT_FALSE(policy.skips_checks(now));
}

// To be woken may take the program's processor for a while: the program is judged by the time that the sleep was to end.
TEST_F(RoceProgressPolicy, ProgramIsJudgedByTheTimeThatTheThreadWasDue) {
  stand_aside();
  wait(sleep());
  policy.takes(now - us);
  wait(10 * ms);
  EXPECT_TRUE(policy.skips_checks(now));
  wait(policy.check_ns() + 10 * ms);
  policy.woke();
  EXPECT_EQ(policy.check(now), Check::Take);
  policy.checked(now, 0, false);
  EXPECT_FALSE(policy.stands_aside());
}

TEST_F(RoceProgressPolicy, ThreadDoesNotLookAwayFromWhatWaits) {
  stand_aside();
  (void)sleep();
  EXPECT_EQ(poll(1), Answer::Wait);
  wait(Policy::late_ns - 1);
  EXPECT_TRUE(policy.skips_checks(now));
  wait(1);
  EXPECT_FALSE(policy.skips_checks(now));
  policy.woke();
  EXPECT_EQ(policy.check(now), Check::Send);
  policy.released();
  for (int i = 0; i < 3; ++i) (void)post();
  EXPECT_FALSE(policy.may_skip_checks());
}

// A program that begins to batch while the thread plans its next look.
TEST_F(RoceProgressPolicy, ThreadThatLooksAwaySeesWhatBeganToWaitMeanwhile) {
  stand_aside();
  (void)sleep();
  (void)policy.batch(now);
  policy.woke();
  EXPECT_EQ(policy.check(now), Check::Send);  // from here on the thread does not know of a batch
  for (const uint64_t expected : {100 * us, Policy::no_room_ns, Policy::no_room_ns}) {
    wait(policy.check_ns());
    policy.program_checks(now);
    EXPECT_TRUE(policy.skips_checks(now));  // it had passed may_skip_checks()
    EXPECT_EQ(policy.check_ns(), expected);
  }
}

TEST_F(RoceProgressPolicy, ThreadComesForwardWhereNobodyHasPolledOrPosted) {
  stand_aside();
  (void)poll(1, false);
  (void)sleep();
  wait(Policy::taking_ns);
  EXPECT_EQ(policy.check(now), Check::Take);
  policy.checked(now, 0, false);
  EXPECT_TRUE(policy.stands_aside());  // it has polled less than 100 us ago
  policy.woke();
  (void)sleep();
  wait(Policy::active_ns);
  policy.woke();
  EXPECT_EQ(policy.check(now), Check::Take);
  policy.checked(now, 0, false);
  EXPECT_FALSE(policy.stands_aside());
}

TEST_F(RoceProgressPolicy, ThreadComesForwardForOneSidedOperationsThatNobodyTook) {
  stand_aside();
  (void)poll(1, false);
  (void)sleep();
  wait(Policy::taking_ns);
  EXPECT_EQ(policy.check(now), Check::Take);
  policy.checked(now, 1, true);
  EXPECT_FALSE(policy.stands_aside());
}

TEST_F(RoceProgressPolicy, LookThatFindsPacketsIsFollowedByAnEarlyOne) {
  stand_aside();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(sleep_and_check(true), Check::Nothing);
  (void)poll(1, false);
  wait(Policy::taking_ns);
  (void)sleep();
  now = plan.until;
  (void)post();  // polls no more, but is active
  EXPECT_EQ(policy.check(now), Check::Take);
  policy.checked(now, 1, false);
  EXPECT_EQ(sleep(), Policy::check_ns_min);
}

TEST_F(RoceProgressPolicy, TimesOfTheThreadGrowWithTheScale) {
  policy.set_scale(10);
  stand_aside();
  for (const uint64_t expected : {500 * us, ms, 2 * ms, 4 * ms, 8 * ms, 10 * ms, 10 * ms}) {
    EXPECT_EQ(sleep(), expected);
    wait(expected);
    policy.program_checks(now);
    policy.woke();
    EXPECT_EQ(policy.check(now), Check::Nothing);
  }
  pairs.timeout = 2 * 10 * ms - 1;
  EXPECT_EQ(poll(1), Answer::Send);
}

// --- how long the thread sleeps ---

TEST_F(RoceProgressPolicy, ArmedThreadSleepsUntilATimerOrForEver) {
  EXPECT_EQ(sleep(), never);
  EXPECT_TRUE(policy.is_armed());
  EXPECT_TRUE(plan.arms);
  pairs.due = now + 5 * ms;
  EXPECT_EQ(sleep(), 5 * ms);
  EXPECT_EQ(sleep({true, false, now + 3 * ms}), 3 * ms);  // of shared memory
  EXPECT_EQ(sleep({false, false, never}), Policy::no_room_ns);
  EXPECT_EQ(sleep({false, true, never}), 0U);  // a packet is there
  EXPECT_EQ(sleep({}, true), Policy::no_room_ns);
  pairs.due = now - ms;
  EXPECT_EQ(sleep(), 0U);
}

TEST_F(RoceProgressPolicy, ArmedThreadLooksSoonAfterAProgramThatWasActive) {
  (void)post();
  EXPECT_EQ(sleep(), Policy::check_ns_max);
  wait(Policy::active_ns);
  EXPECT_EQ(sleep(), never);
}

TEST_F(RoceProgressPolicy, ThreadWritesTheStatisticsPageEach100Ms) {
  EXPECT_TRUE(policy.is_due<Timer::Statistics>(now));
  policy.shown(now);
  EXPECT_FALSE(policy.is_due<Timer::Statistics>(now));
  EXPECT_EQ(sleep({}, false, true), Policy::show_ns);
  EXPECT_EQ(sleep({}, false, false), never);  // nothing has happened
}

// A timer that the program is late for must not keep the thread awake.
TEST_F(RoceProgressPolicy, ThreadAsideSleepsFor20UsAtLeast) {
  stand_aside();
  pairs.due = now - ms;
  EXPECT_EQ(sleep(), Policy::least_sleep_ns);
  EXPECT_FALSE(policy.is_armed());
  EXPECT_FALSE(plan.arms);
}

TEST_F(RoceProgressPolicy, ProbesAreLeftToAProgramThatPolls) {
  stand_aside();
  pairs.due = now + 30 * us;
  EXPECT_EQ(sleep(), 30 * us);
  pairs.is_probe = true;
  EXPECT_EQ(sleep(), Policy::check_ns_min);
  pairs.otherwise = now + 40 * us;
  EXPECT_EQ(sleep(), 40 * us);
}

TEST_F(RoceProgressPolicy, TimersWakeTheArmedThreadAndNotTheOneAside) {
  pairs.due = now + 5 * ms;
  (void)sleep();
  EXPECT_FALSE(policy.is_before_thread(now + 5 * ms));
  EXPECT_TRUE(policy.is_before_thread(now + 5 * ms - 1));
  EXPECT_TRUE(policy.wakes_for_timer(now, pairs));
  notify();
  EXPECT_FALSE(policy.is_before_thread(now));  // once
  stand_aside();
  (void)sleep();
  EXPECT_FALSE(policy.is_before_thread(0));
}

TEST_F(RoceProgressPolicy, ProbeAloneWakesTheThreadOnceIn10Ms) {
  (void)sleep();
  pairs.due = now + 100 * us;
  pairs.is_probe = true;
  EXPECT_TRUE(policy.wakes_for_timer(now, pairs));
  wait(Policy::probe_wake_ns - 1);
  EXPECT_FALSE(policy.wakes_for_timer(now, pairs));
  wait(1);
  EXPECT_TRUE(policy.wakes_for_timer(now, pairs));
  // A timer that is none is behind it.
  pairs.otherwise = now + ms;
  EXPECT_TRUE(policy.wakes_for_timer(now, pairs));
}

TEST_F(RoceProgressPolicy, ProbeDoesNotWakeAThreadThatWakesSoon) {
  pairs.due = now + Policy::check_ns_max;
  (void)sleep();
  pairs.due = now + 100 * us;
  pairs.is_probe = true;
  EXPECT_FALSE(policy.wakes_for_timer(now, pairs));
}

TEST_F(RoceProgressPolicy, TimersRunLateWhilePacketsCome) {
  EXPECT_FALSE(Policy::is_overdue(now, now - Policy::overdue_ns));
  EXPECT_TRUE(Policy::is_overdue(now, now - Policy::overdue_ns - 1));
}

// --- polls of sockets ---

TEST_F(RoceProgressPolicy, QuietSocketsArePolledEach10UsBesideRings) {
  policy.sockets_polled(now, 1, true);
  EXPECT_FALSE(policy.rests_sockets());
  wait(Policy::quiet_ns);
  policy.sockets_polled(now, 0, true);
  EXPECT_FALSE(policy.rests_sockets());
  wait(1);
  policy.sockets_polled(now, 0, true);
  EXPECT_TRUE(policy.rests_sockets());
  EXPECT_FALSE(policy.is_due<Timer::Sockets>(now + Policy::quiet_check_ns - 1));
  EXPECT_TRUE(policy.is_due<Timer::Sockets>(now + Policy::quiet_check_ns));
  policy.sockets_polled(now, 0, false);  // without rings
  EXPECT_FALSE(policy.rests_sockets());
  policy.rest_sockets(now + us);
  EXPECT_TRUE(policy.rests_sockets());
  policy.woke();
  EXPECT_TRUE(policy.is_due<Timer::Sockets>(now));
}

TEST_F(RoceProgressPolicy, EveryFourthPollOfEmptyRingsAsksForTheTime) {
  for (int round = 0; round < 3; ++round) {
    policy.takes(now);
    int in_vain = 0;
    for (; policy.may_poll_in_vain(); ++in_vain) policy.polled_in_vain();
    EXPECT_EQ(in_vain, 3);
  }
  policy.takes(now);
  while (!policy.poll_finds_completion()) {
  }
  EXPECT_FALSE(policy.may_poll_in_vain());
}

// --- programs that sleep ---

TEST_F(RoceProgressPolicy, ArmedQueueBringsTheThreadForward) {
  int thread = 0;
  stand_aside();
  EXPECT_TRUE(policy.expect_sleep(&thread));
  EXPECT_FALSE(policy.stands_aside());
  EXPECT_FALSE(policy.expect_sleep(&thread));
}

TEST_F(RoceProgressPolicy, ThreadOfTheProgramThatSleepsTakesPacketsItself) {
  int thread = 0, other = 0;
  Policy::ProgramSleep nap{&thread};
  EXPECT_TRUE(policy.program_sleep_begins(nap));  // it was armed
  EXPECT_TRUE(policy.stands_aside() && policy.is_sleeping(&thread));
  EXPECT_FALSE(policy.is_sleeping(&other));
  EXPECT_FALSE(policy.waiter_begins());  // who sleeps already takes the packets
  policy.woke();
  EXPECT_EQ(sleep(), Policy::check_ns_min);
  EXPECT_FALSE(policy.program_sleep_ends(nap, now, false));
  EXPECT_TRUE(policy.stands_aside());
  EXPECT_FALSE(policy.expect_sleep(&thread));  // which will do so again
  EXPECT_TRUE(policy.stands_aside());
  EXPECT_TRUE(policy.expect_sleep(&other));  // the other one sleeps in poll(2)
  EXPECT_FALSE(policy.stands_aside());
}

TEST_F(RoceProgressPolicy, AcknowledgementDoesNotWaitForAThreadThatKeepsTheTimersOnly) {
  int thread = 0;
  Policy::ProgramSleep nap{&thread};
  (void)policy.program_sleep_begins(nap);
  EXPECT_EQ(poll(1), Answer::Send);
}

// It looks every 1 ms at most while the program sleeps and wakes, and not at all while it sleeps on.
TEST_F(RoceProgressPolicy, ThreadSleepsLongWhileTheProgramSleepsOn) {
  int thread = 0;
  for (int i = 0; i < 3; ++i) {
    Policy::ProgramSleep nap{&thread};
    (void)policy.program_sleep_begins(nap);
    if (i == 1) {
      EXPECT_EQ(sleep(), Policy::check_ns_max);
    }
    if (i == 2) {
      (void)sleep();  // another sleep than at the last look
      EXPECT_FALSE(policy.is_armed());
      EXPECT_EQ(sleep(), never);
      EXPECT_TRUE(policy.is_armed());
      EXPECT_FALSE(plan.arms);  // the sleeper has
      pairs.due = now + 5 * ms;
      EXPECT_EQ(sleep(), 5 * ms);
      pairs.due = never;
      (void)sleep();
      // What ends then has a thread that looks.
      EXPECT_TRUE(policy.program_sleep_ends(nap, now, false));
      notify();
      policy.woke();
      EXPECT_EQ(sleep(), Policy::check_ns_max);
      break;
    }
    (void)policy.program_sleep_ends(nap, now, false);
  }
}

TEST_F(RoceProgressPolicy, ThreadBesideASleeperRunsTimersAndSendsWhatWaits) {
  policy.shown(now);
  EXPECT_FALSE(policy.checks_beside_sleeper(now, now + 1, false));
  EXPECT_TRUE(policy.checks_beside_sleeper(now, now, false));
  EXPECT_TRUE(policy.checks_beside_sleeper(now, never, true));
  EXPECT_TRUE(policy.checks_beside_sleeper(now + Policy::show_ns, never, false));
  (void)policy.batch(now);
  EXPECT_TRUE(policy.checks_beside_sleeper(now, never, false));
}

TEST_F(RoceProgressPolicy, ThreadComesForwardAfterASleepWhereAnotherWaits) {
  int thread = 0;
  Policy::ProgramSleep nap{&thread};
  (void)policy.program_sleep_begins(nap);
  EXPECT_TRUE(policy.program_sleep_ends(nap, now, true));  // has armed a queue
  EXPECT_FALSE(policy.stands_aside());
  (void)policy.program_sleep_begins(nap);
  policy.count_waiter(true);
  EXPECT_TRUE(policy.program_sleep_ends(nap, now, false));
  EXPECT_FALSE(policy.stands_aside());
  EXPECT_FALSE(policy.waiter_begins());
  stand_aside();
  EXPECT_TRUE(policy.expect_sleep(&thread));
  policy.count_waiter(false);
  stand_aside();
  EXPECT_FALSE(policy.expect_sleep(&thread));
}

TEST_F(RoceProgressPolicy, WaiterBringsTheThreadForward) {
  stand_aside();
  EXPECT_TRUE(policy.waiter_begins());
  EXPECT_FALSE(policy.stands_aside());
}

// Polling takes the packets of all queue pairs.
TEST_F(RoceProgressPolicy, SleeperGivesUpAfterThreeWakeUpsBesideAThreadThatPolls) {
  int thread = 0;
  Policy::ProgramSleep nap{&thread};
  (void)policy.program_sleep_begins(nap);
  for (unsigned i = 0; i < Policy::vain_max; ++i) {
    EXPECT_FALSE(nap.is_vain());
    nap.polled_at = policy.polled_at();
    wait(us);
    policy.polled(now);
    nap.woke(policy.polled_at());
  }
  EXPECT_TRUE(nap.is_vain());
  EXPECT_TRUE(policy.program_sleep_ends(nap, now, false));
  EXPECT_TRUE(policy.stands_aside());
  EXPECT_TRUE(policy.expect_sleep(&thread));  // it is not expected to sleep in the device again
}

TEST_F(RoceProgressPolicy, SleeperStaysWhereNobodyPolls) {
  int thread = 0;
  Policy::ProgramSleep nap{&thread};
  (void)policy.program_sleep_begins(nap);
  for (unsigned i = 0; i < 10 * Policy::vain_max; ++i) {
    nap.polled_at = policy.polled_at();
    if (i % 2 == 0) {
      wait(us);
      policy.polled(now);
    }
    nap.woke(policy.polled_at());
    EXPECT_FALSE(nap.is_vain());
  }
}

TEST_F(RoceProgressPolicy, SleeperIsWokenByProbesAndTheThreadByTimers) {
  int thread = 0;
  Policy::ProgramSleep nap{&thread};
  (void)policy.program_sleep_begins(nap);
  notify();
  (void)sleep();
  (void)sleep();
  EXPECT_EQ(policy.program_plans(now, pairs, {}, false).limit_ns, never);
  pairs.due = now + 2 * ms;
  Policy::ProgramPlan with = policy.program_plans(now, pairs, {}, false);
  EXPECT_TRUE(with.wakes_thread);
  EXPECT_EQ(with.limit_ns, never);
  pairs.is_probe = true;
  with = policy.program_plans(now, pairs, {}, false);
  EXPECT_FALSE(with.wakes_thread);
  EXPECT_EQ(with.limit_ns, 2 * ms);
  EXPECT_EQ(policy.program_plans(now, pairs, {}, true).limit_ns, Policy::no_room_ns);
  EXPECT_EQ(policy.program_plans(now, pairs, {false, false, never}, false).limit_ns, Policy::no_room_ns);
  EXPECT_EQ(policy.program_plans(now, pairs, {false, true, never}, false).limit_ns, 0U);
  EXPECT_TRUE(policy.program_plans(now, pairs, {true, false, now + ms}, false).wakes_thread);
}

// A signal handler of the sleeping thread calls, or has left the last call by siglongjmp(3).
TEST_F(RoceProgressPolicy, CallOfTheSleepersHandlerEndsItsSleep) {
  int thread = 0, other = 0;
  Policy::ProgramSleep nap{&thread};
  (void)policy.program_sleep_begins(nap);
  policy.forget(&other);
  EXPECT_TRUE(policy.has_sleeper());
  policy.forget(&thread);
  EXPECT_FALSE(policy.has_sleeper());
}

TEST_F(RoceProgressPolicy, ThreadSpinsForProgramsThatSleepInPoll) {
  int thread = 0;
  EXPECT_FALSE(policy.expects_sleeper());
  (void)policy.expect_sleep(&thread);
  EXPECT_TRUE(policy.expects_sleeper() && policy.spins_for_sleeper());
  Policy::ProgramSleep nap{&thread};
  (void)policy.program_sleep_begins(nap);
  EXPECT_TRUE(policy.expects_sleeper());
  EXPECT_FALSE(policy.spins_for_sleeper());
  EXPECT_FALSE(policy.program_sleep_ends(nap, now, false));
  for (unsigned i = 0; i < Policy::polls_of_a_sleeper; ++i) policy.polled(now);
  EXPECT_FALSE(policy.expects_sleeper());
}

}  // namespace
}  // namespace weft::link::roce
