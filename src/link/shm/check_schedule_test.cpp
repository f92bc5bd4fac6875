// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of when a poll looks around, with a clock of the test.
#include "link/shm/check_schedule.hpp"

#include <gtest/gtest.h>

namespace weft::link::shm {
namespace {

constexpr uint64_t ms = 1'000'000;

// Empty polls until the schedule asks for the clock.
uint32_t polls_until_check(CheckSchedule& checks) {
  uint32_t polls = 1;
  while (!checks.found_nothing()) ++polls;
  return polls;
}

TEST(ShmCheckSchedule, AProgramThatSpinsLooksAtTheClockRarely) {
  CheckSchedule checks;
  uint64_t now = 10 * ms;
  EXPECT_EQ(polls_until_check(checks), 1U);
  EXPECT_TRUE(checks.is_due(now, false));
  uint32_t most = 0;
  for (int i = 0; i < 20; ++i) {
    most = polls_until_check(checks);
    EXPECT_FALSE(checks.is_due(++now, false));
  }
  EXPECT_EQ(most, CheckSchedule::idle_polls_per_check_max);
  EXPECT_TRUE(checks.is_due(now + ms, false));
}

TEST(ShmCheckSchedule, AProgramThatSleepsBetweenItsPollsLooksSoon) {
  CheckSchedule checks;
  uint64_t now = 10 * ms;
  for (int i = 0; i < 20; ++i) {
    (void)polls_until_check(checks);
    (void)checks.is_due(++now, false);
  }
  for (int i = 0; i < 4; ++i) {
    (void)polls_until_check(checks);
    EXPECT_TRUE(checks.is_due(now += 5 * ms, false));
  }
  EXPECT_EQ(polls_until_check(checks), 1U);
}

TEST(ShmCheckSchedule, WhatWaitsIsLookedAtInEveryPoll) {
  CheckSchedule checks;
  EXPECT_TRUE(checks.is_due(10 * ms, true));
  checks.hurry();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(polls_until_check(checks), 1U);
    EXPECT_FALSE(checks.is_due(10 * ms + 1, true));
  }
}

TEST(ShmCheckSchedule, AfterASleepTheNextPollLooks) {
  CheckSchedule checks;
  for (int i = 0; i < 20; ++i) {
    (void)polls_until_check(checks);
    (void)checks.is_due(10 * ms + 1, false);
  }
  checks.check_at_once();
  EXPECT_FALSE(checks.may_find_nothing());
  EXPECT_TRUE(checks.found_nothing());
  EXPECT_TRUE(checks.is_due(10 * ms + 2, false));
}

TEST(ShmCheckSchedule, ABusyProgramLooksAround) {
  CheckSchedule checks;
  for (uint32_t i = 1; i < CheckSchedule::busy_polls_per_check; ++i) {
    ASSERT_TRUE(checks.may_find_something());
    ASSERT_FALSE(checks.found_something());
  }
  EXPECT_FALSE(checks.may_find_something());
  EXPECT_TRUE(checks.found_something());
}

}  // namespace
}  // namespace weft::link::shm
