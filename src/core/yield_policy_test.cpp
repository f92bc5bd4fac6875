// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The policy over a clock of the test: who shares the CPU decides how long a yield takes.
#include "core/yield_policy.hpp"

#include <gtest/gtest.h>

namespace weft::core {
namespace {

constexpr uint64_t us = 1'000;
constexpr uint64_t ms = 1'000'000;

// A thread that polls: a poll takes poll_ns, a yield yield_ns.
struct Poller {
  YieldPolicy policy;
  uint64_t poll_ns = 10;
  uint64_t yield_ns = 300;
  bool switches = true;  // in a yield
  bool shared = false;
  bool poller_ran = false;  // in a long yield
  uint64_t now = 1000 * ms;
  uint64_t yields = 0;
  uint64_t checks = 0;
  bool arrived = true;

  explicit Poller(YieldMode mode = YieldMode::Auto) : policy(mode) {}

  void check() {
    now += policy.polls() * poll_ns;
    ++checks;
    const bool yields_now = policy.wants_yield(now, arrived, shared);
    arrived = false;
    if (!yields_now) return;
    ++yields;
    const uint64_t began = now;
    now += yield_ns;
    policy.yielded(began, now, switches, poller_ran);
  }
  void poll_in_vain_for(uint64_t ns) {
    for (const uint64_t until = now + ns; now < until;) check();
  }
  uint64_t yields_in(uint64_t ns) {
    const uint64_t before = yields;
    poll_in_vain_for(ns);
    return yields - before;
  }
};

TEST(YieldPolicy, SpinsBeforeTheFirstYield) {
  Poller poller;
  EXPECT_EQ(poller.yields_in(90 * us), 0u);
  EXPECT_EQ(poller.yields_in(30 * us), 1u);
}

TEST(YieldPolicy, AnArrivalStartsTheTimeAgain) {
  Poller poller;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(poller.yields_in(80 * us), 0u);
    poller.arrived = true;
  }
}

TEST(YieldPolicy, ReadsTheClockEveryFewMicroseconds) {
  for (const uint64_t poll_ns : {10, 100, 1000, 5000}) {
    Poller poller;
    poller.poll_ns = poll_ns;
    poller.poll_in_vain_for(10 * ms);
    const uint64_t before = poller.checks;
    poller.poll_in_vain_for(10 * ms);
    const uint64_t between_checks_ns = 10 * ms / (poller.checks - before);
    EXPECT_GE(between_checks_ns, 5 * us) << poll_ns;
    EXPECT_LE(between_checks_ns, std::max<uint64_t>(25 * us, YieldPolicy::polls_min * poll_ns + us))
        << poll_ns;
  }
}

TEST(YieldPolicy, OnACpuOfItsOwnYieldsTakeLittleTime) {
  Poller poller;
  const uint64_t yields = poller.yields_in(100 * ms);
  EXPECT_LE(yields * poller.yield_ns, 1 * ms);
  EXPECT_GE(yields, 100u);  // another poller that comes is noticed soon
}

// The neighbour computes: a yield gives it the CPU for a slice.
TEST(YieldPolicy, AThreadThatComputesGetsFewYields) {
  Poller poller;
  poller.yield_ns = 4 * ms;
  poller.poll_in_vain_for(20 * ms);
  poller.arrived = true;
  EXPECT_LE(poller.yields_in(1000 * ms), 6u);
  EXPECT_LE(poller.yields_in(10'000 * ms), 22u);
}

// An exchange whose answers come late only when the peer's CPU is taken from it.
TEST(YieldPolicy, ArrivalsDoNotBringYieldsBack) {
  Poller poller;
  poller.yield_ns = 4 * ms;
  poller.poll_in_vain_for(5000 * ms);
  uint64_t yields = 0;
  for (int i = 0; i < 100; ++i) {
    poller.arrived = true;
    yields += poller.yields_in(4 * ms);
  }
  EXPECT_LE(yields, 1u);
}

// The neighbour polls, too, and yields in its turn.
TEST(YieldPolicy, APollerOnTheSameCpuIsYieldedToEarly) {
  Poller poller;
  poller.yield_ns = 20 * us;
  poller.poll_in_vain_for(1 * ms);
  EXPECT_EQ(poller.policy.polls(), YieldPolicy::polls_min);
  EXPECT_GE(poller.yields_in(10 * ms), 400u);
  for (int i = 0; i < 10; ++i) {
    poller.arrived = true;
    EXPECT_EQ(poller.policy.polls(), YieldPolicy::polls_min);
    const uint64_t before = poller.yields;
    poller.check();
    EXPECT_EQ(poller.yields, before + 1);
  }
}

// A yield of a few microseconds may be a slow system call.
TEST(YieldPolicy, ShortYieldsAreJudgedByTheContextSwitches) {
  for (const bool switches : {false, true}) {
    Poller poller;
    poller.yield_ns = 4 * us;
    poller.switches = switches;
    poller.poll_in_vain_for(1 * ms);
    const uint64_t yields = poller.yields_in(10 * ms);
    if (switches) EXPECT_GE(yields, 1000u);
    else EXPECT_LE(yields, 110u);
  }
}

// A kernel thread ran once.
TEST(YieldPolicy, OneShortYieldIsNoPoller) {
  Poller poller;
  poller.yield_ns = 20 * us;
  while (poller.yields == 0) poller.check();
  poller.yield_ns = 300;
  EXPECT_LE(poller.yields_in(1 * ms), 12u);
}

TEST(YieldPolicy, ThePollerThatGoesIsNoticed) {
  Poller poller;
  poller.yield_ns = 20 * us;
  poller.poll_in_vain_for(1 * ms);
  poller.yield_ns = 300;
  poller.poll_in_vain_for(1 * ms);
  EXPECT_LE(poller.yields_in(10 * ms), 110u);
  // A thread that computes comes instead.
  poller.yield_ns = 20 * us;
  poller.poll_in_vain_for(1 * ms);
  poller.yield_ns = 4 * ms;
  poller.poll_in_vain_for(20 * ms);
  EXPECT_LE(poller.yields_in(1000 * ms), 6u);
}

// Who says that it polls here is believed at once, and also when others that compute run before it.
TEST(YieldPolicy, APollerThatIsKnownNeedsNoProof) {
  Poller poller;
  poller.shared = true;
  poller.check();
  EXPECT_EQ(poller.yields, 1u);
  poller.yield_ns = 4 * ms;
  EXPECT_GE(poller.yields_in(100 * ms), 20u);
  poller.poller_ran = true;
  EXPECT_GE(poller.yields_in(100 * ms), 20u);
  poller.shared = false;
  EXPECT_EQ(poller.yields_in(90 * us), 0u);
  poller.shared = true;
  poller.poll_in_vain_for(20 * us);
  EXPECT_EQ(poller.policy.polls(), YieldPolicy::polls_min);
}

// The other poller has gone, and a thread that computes has come: known by the first long yield, after which the caller forgets the poller.
TEST(YieldPolicy, APollerThatDidNotRunIsNoReasonToYield) {
  Poller poller;
  poller.shared = true;
  poller.yield_ns = 4 * ms;
  poller.check();
  poller.shared = false;
  EXPECT_LE(poller.yields_in(1000 * ms), 6u);
}

TEST(YieldPolicy, APollerThatDoesNotRunIsAskedForMoreRarely) {
  Poller poller;
  poller.shared = true;
  poller.poll_in_vain_for(10 * ms);
  EXPECT_EQ(poller.policy.polls(), YieldPolicy::polls_max);
  poller.yield_ns = 20 * us;
  poller.poll_in_vain_for(1 * ms);
  EXPECT_EQ(poller.policy.polls(), YieldPolicy::polls_min);
}

TEST(YieldPolicy, NeverYields) {
  Poller poller(YieldMode::Never);
  poller.shared = true;
  EXPECT_EQ(poller.yields_in(1000 * ms), 0u);
}

TEST(YieldPolicy, AlwaysYieldsAfterSixtyFourPolls) {
  Poller poller(YieldMode::Always);
  poller.yield_ns = 4 * ms;
  for (int i = 0; i < 1000; ++i) {
    poller.check();
    ASSERT_EQ(poller.policy.polls(), YieldPolicy::polls_min);
  }
  EXPECT_EQ(poller.yields, 1000u);
  poller.yield_ns = 300;
  poller.poll_in_vain_for(10 * ms);
  EXPECT_EQ(poller.policy.polls(), YieldPolicy::polls_max);
}

}  // namespace
}  // namespace weft::core
