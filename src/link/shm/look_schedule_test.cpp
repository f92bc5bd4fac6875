// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of when a poll looks around, with a clock of the test.
#include "link/shm/look_schedule.hpp"

#include <gtest/gtest.h>

namespace weft::link::shm {
namespace {

constexpr uint64_t ms = 1'000'000;

// Empty polls until the schedule asks for the clock.
uint32_t polls_until_look(LookSchedule& looks) {
  uint32_t polls = 1;
  while (!looks.found_nothing()) ++polls;
  return polls;
}

TEST(ShmLookSchedule, AProgramThatSpinsLooksAtTheClockRarely) {
  LookSchedule looks;
  uint64_t now = 10 * ms;
  EXPECT_EQ(polls_until_look(looks), 1U);
  EXPECT_TRUE(looks.is_due(now, false));
  uint32_t most = 0;
  for (int i = 0; i < 20; ++i) {
    most = polls_until_look(looks);
    EXPECT_FALSE(looks.is_due(++now, false));
  }
  EXPECT_EQ(most, LookSchedule::idle_polls_per_look_max);
  EXPECT_TRUE(looks.is_due(now + ms, false));
}

TEST(ShmLookSchedule, AProgramThatSleepsBetweenItsPollsLooksSoon) {
  LookSchedule looks;
  uint64_t now = 10 * ms;
  for (int i = 0; i < 20; ++i) {
    (void)polls_until_look(looks);
    (void)looks.is_due(++now, false);
  }
  for (int i = 0; i < 4; ++i) {
    (void)polls_until_look(looks);
    EXPECT_TRUE(looks.is_due(now += 5 * ms, false));
  }
  EXPECT_EQ(polls_until_look(looks), 1U);
}

TEST(ShmLookSchedule, WhatWaitsIsLookedAtInEveryPoll) {
  LookSchedule looks;
  EXPECT_TRUE(looks.is_due(10 * ms, true));
  looks.hurry();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(polls_until_look(looks), 1U);
    EXPECT_FALSE(looks.is_due(10 * ms + 1, true));
  }
}

TEST(ShmLookSchedule, AfterASleepTheNextPollLooks) {
  LookSchedule looks;
  for (int i = 0; i < 20; ++i) {
    (void)polls_until_look(looks);
    (void)looks.is_due(10 * ms + 1, false);
  }
  looks.look_at_once();
  EXPECT_FALSE(looks.may_find_nothing());
  EXPECT_TRUE(looks.found_nothing());
  EXPECT_TRUE(looks.is_due(10 * ms + 2, false));
}

TEST(ShmLookSchedule, ABusyProgramLooksAround) {
  LookSchedule looks;
  for (uint32_t i = 1; i < LookSchedule::busy_polls_per_look; ++i) {
    ASSERT_TRUE(looks.may_find_something());
    ASSERT_FALSE(looks.found_something());
  }
  EXPECT_FALSE(looks.may_find_something());
  EXPECT_TRUE(looks.found_something());
}

}  // namespace
}  // namespace weft::link::shm
