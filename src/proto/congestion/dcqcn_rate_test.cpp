// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The rate of a queue pair under CNPs: cut, recovery, end, whatever the times of the calls.
#include "proto/congestion/dcqcn_rate.hpp"

#include <gtest/gtest.h>

#include <random>

namespace weft::proto::congestion {
namespace {

constexpr uint64_t tick = DcqcnRate::tick_ns;
constexpr uint64_t most_in_a_tick =
    DcqcnRate::rate_max / DcqcnRate::unit;  // packets; a queue pair that uses all that it may

// Limited at a rate of `packets` in each tick, before the cut.
DcqcnRate limited(uint64_t packets, uint64_t at) {
  DcqcnRate pace;
  pace.on_cnp(at, 0);
  EXPECT_FALSE(pace.is_limited());
  pace.on_cnp(at + tick, packets);
  EXPECT_TRUE(pace.is_limited());
  return pace;
}

TEST(DcqcnRate, TheSecondNoticeCutsTheMeasuredRateByHalf) {
  DcqcnRate pace = limited(100, 7);
  EXPECT_EQ(pace.rate(), 100 * DcqcnRate::unit / 2);
  EXPECT_EQ(pace.packets(), 0u);
  EXPECT_EQ(pace.next_at(), 7 + 2 * tick);
  pace.advance(7 + 2 * tick);
  EXPECT_EQ(pace.packets(), 50u);
  pace.spend(20);
  EXPECT_EQ(pace.packets(), 30u);
  pace.advance(7 + 3 * tick);
  EXPECT_LE(pace.packets(), 90u);  // what is not used is not saved
}

TEST(DcqcnRate, CnpsOfOneTickCountOnce) {
  DcqcnRate pace = limited(100, 0);
  const uint32_t rate = pace.rate();
  for (uint64_t at = tick + 1; at < 2 * tick; at += 1000) pace.on_cnp(at, 200);
  EXPECT_EQ(pace.rate(), rate);
  pace.on_cnp(2 * tick, 200);
  EXPECT_LT(pace.rate(), rate);
}

TEST(DcqcnRate, CnpsWithoutEndLeaveTheLeastRate) {
  DcqcnRate pace = limited(100, 0);
  uint64_t sent = 100;
  for (uint64_t n = 2; n < 1000; ++n) {
    pace.on_cnp(n * tick, sent += most_in_a_tick);
    ASSERT_TRUE(pace.is_limited());
  }
  EXPECT_EQ(pace.rate(), DcqcnRate::rate_min);
  EXPECT_LE(pace.next_at(), 999 * tick + 17 * tick);
}

TEST(DcqcnRate, QuietTicksBringTheRateBackAndEndTheLimit) {
  DcqcnRate pace = limited(64, 0);
  uint64_t at = tick;
  for (uint32_t n = 0; n < DcqcnRate::recovery_ticks + 1; ++n) pace.advance(at += tick);
  EXPECT_GE(pace.rate(), 62 * DcqcnRate::unit);  // fast recovery: all but a 32nd
  EXPECT_LE(pace.rate(), 64 * DcqcnRate::unit + 1);
  while (pace.is_limited() && at < 1000 * tick) {
    pace.advance(at += tick);
    pace.spend(pace.packets());
  }
  EXPECT_LT(at, 200 * tick);  // 10 ms
}

TEST(DcqcnRate, RareCnpsCutLittle) {
  DcqcnRate pace = limited(200, 0);
  uint64_t at = tick;
  uint64_t sent = 200;
  for (int n = 0; n < 40; ++n) {
    at += 20 * tick;
    const uint32_t before = pace.rate();
    pace.on_cnp(at, sent += 20 * most_in_a_tick);
    if (n > 10 && pace.is_limited()) {
      EXPECT_GT(pace.rate(), before * 8 / 10);
    }
  }
}

TEST(DcqcnRate, WhatIsNotUsedEnds) {
  DcqcnRate pace = limited(10, 0);
  pace.advance(tick + DcqcnRate::idle_ticks_max * tick + 2 * tick);
  EXPECT_FALSE(pace.is_limited());
  // A CNP that nothing follows is forgotten, and a late second one measures anew.
  pace.on_cnp(1'000'000'000, 10);
  pace.on_cnp(9'000'000'000, 110);
  EXPECT_FALSE(pace.is_limited());
}

// What is under way when a limit begins was cut before: the rate is not cut, and does not sink by itself either.
TEST(DcqcnRate, ALimitThatBeginsWithoutACutEnds) {
  DcqcnRate pace;
  pace.on_cnp(0, 0);
  EXPECT_FALSE(pace.on_cnp(tick, 10, false));
  EXPECT_EQ(pace.rate(), DcqcnRate::rate_max);
  uint64_t at = tick;
  while (pace.is_limited() && at < 10 * tick) {
    pace.advance(at += tick);
    EXPECT_TRUE(!pace.is_limited() || pace.rate() == DcqcnRate::rate_max);
  }
  EXPECT_FALSE(pace.is_limited());
}

TEST(DcqcnRate, AnyOrderOfCallsKeepsItsBounds) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    DcqcnRate pace;
    uint64_t now = random() % 1000, sent = 0;
    for (int step = 0; step < 2000; ++step) {
      now += random() % (round % 2 == 0 ? 3 * tick : tick / 4);
      if (random() % 5 == 0) pace.on_cnp(now, sent);
      pace.advance(now);
      if (!pace.is_limited()) {
        sent += random() % 300;
        continue;
      }
      ASSERT_GE(pace.rate(), DcqcnRate::rate_min);
      ASSERT_LT(pace.rate(), DcqcnRate::rate_max);
      ASSERT_GT(pace.next_at(), now - tick);
      ASSERT_LE(pace.next_at(), now + 17 * tick);
      const uint32_t packets = pace.packets();
      sent += packets;
      pace.spend(packets);
      ASSERT_EQ(pace.packets(), 0u);
    }
  }
}

}  // namespace
}  // namespace weft::proto::congestion
