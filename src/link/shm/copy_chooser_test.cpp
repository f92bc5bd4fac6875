// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of the choice between ways to copy, on times that are made up: it finds the best way under noise, follows a change, and trials cost little.
#include "link/shm/copy_chooser.hpp"

#include <gtest/gtest.h>

#include <array>
#include <random>

namespace weft::link::shm {
namespace {

constexpr uint32_t all_paths = 7;
constexpr uint64_t message = 1 << 20;

// What a message takes by each way, with noise: most messages a little more than the least, some far more.
struct Machine {
  explicit Machine(uint64_t seed) : random(seed) {}
  uint64_t take(CopyPath path) {
    const double noise = 1 + static_cast<double>(random() % 1000) / 1000 * spread;
    const double burst = random() % 100 < outliers ? static_cast<double>(2 + random() % 30) : 1;
    factor = noise * burst;
    return of(path);
  }
  uint64_t of(CopyPath path) const {  // what the last message takes that way
    return static_cast<uint64_t>(static_cast<double>(cost[static_cast<size_t>(path)]) * factor);
  }
  std::mt19937_64 random;
  std::array<uint64_t, 3> cost{};
  double spread = 0.3, factor = 1;
  unsigned outliers = 5;
};

// Messages until the best way is the one that is expected and stays so; `most` when that does not happen.
int run(CopyChooser& chooser, Machine& machine, int messages, CopyPath best) {
  int steady_from = messages;
  for (int i = 0; i < messages; ++i) {
    const CopyPath path = chooser.path();
    chooser.note(path, machine.take(path), message);
    if (chooser.best() != best) steady_from = messages;
    else if (steady_from == messages) steady_from = i;
  }
  return steady_from;
}

TEST(CopyChooser, FindsTheBestPathUnderNoise) {
  int late = 0;
  int worse = 0;
  constexpr int worlds = 600;
  for (uint64_t seed = 1; seed <= worlds; ++seed) {
    Machine machine(seed);
    for (uint64_t& cost : machine.cost) cost = 20'000 + machine.random() % 100'000;
    const auto best = static_cast<CopyPath>(std::min_element(machine.cost.begin(), machine.cost.end()) -
                                            machine.cost.begin());
    CopyChooser chooser(static_cast<CopyPath>(seed % 3), all_paths);
    (void)run(chooser, machine, 6000, best);
    const uint64_t least = machine.cost[static_cast<size_t>(best)];
    const uint64_t chosen = machine.cost[static_cast<size_t>(chooser.best())];
    if (chosen > least) ++late;
    // Another way only where that makes little difference.
    if (chosen > least + least / 5) ++worse;
  }
  EXPECT_LE(worse, worlds / 100);
  EXPECT_LE(late, worlds / 4);
}

// What trials cost beyond the best way: 1 % of the time, and the first trials.
TEST(CopyChooser, TrialsCostLessThanAPercent) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Machine machine(seed);
    for (uint64_t& cost : machine.cost) cost = 20'000 + machine.random() % 400'000;
    const auto best = static_cast<CopyPath>(std::min_element(machine.cost.begin(), machine.cost.end()) -
                                            machine.cost.begin());
    CopyChooser chooser(best, all_paths);
    constexpr int messages = 100'000;
    int64_t lost = 0;
    uint64_t least = 0;
    uint64_t took = 0;
    for (int i = 0; i < messages; ++i) {
      const CopyPath path = chooser.path();
      const uint64_t ticks = machine.take(path);
      lost += static_cast<int64_t>(ticks) - static_cast<int64_t>(machine.of(chooser.best()));
      chooser.note(path, ticks, message);
      took += ticks;
      least += machine.of(best);
    }
    EXPECT_LT(static_cast<double>(lost), static_cast<double>(took) * 0.01) << "seed " << seed;
    EXPECT_LT(static_cast<double>(took), static_cast<double>(least) * 1.07)
        << "seed " << seed;  // 1/16 is no difference
    EXPECT_LT(static_cast<double>(chooser.lost_ticks()), static_cast<double>(chooser.ticks()) * 0.01)
        << "seed " << seed;
    EXPECT_GT(chooser.trials(), 2u) << "seed " << seed;
  }
}

TEST(CopyChooser, FollowsAChangeOfPlacement) {
  int slow = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Machine machine(seed);
    machine.cost = {40'000, 70'000, 55'000};  // near: the ring
    CopyChooser chooser(CopyPath::Ring, all_paths);
    (void)run(chooser, machine, 3000, CopyPath::Ring);
    ASSERT_EQ(chooser.best(), CopyPath::Ring) << "seed " << seed;
    machine.cost = {110'000, 80'000, 55'000};  // far: both sides
    if (run(chooser, machine, 6000, CopyPath::Both) > 3000) ++slow;
    EXPECT_EQ(chooser.best(), CopyPath::Both) << "seed " << seed;
    machine.cost = {30'000, 70'000, 55'000};  // the time of what is used does not change
    if (run(chooser, machine, 20'000, CopyPath::Ring) > 15'000) ++slow;
    EXPECT_EQ(chooser.best(), CopyPath::Ring) << "seed " << seed;
  }
  EXPECT_LE(slow, 5);
}

TEST(CopyChooser, EqualPathsAreNotSwappedAllTheTime) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Machine machine(seed);
    machine.cost = {50'000, 50'000, 50'000};
    CopyChooser chooser(CopyPath::Ring, all_paths);
    (void)run(chooser, machine, 50'000, CopyPath::Ring);
    EXPECT_LE(chooser.changes(), 10u) << "seed " << seed;
  }
}

// Each side copies a message: both are done at about the same time, so one seems to take twice as long and the next one nothing.
TEST(CopyChooser, CopiesThatEndInPairsAreMeasuredTogether) {
  for (const uint64_t ring : {35'000, 60'000}) {
    int wrong = 0;
    for (uint64_t seed = 1; seed <= 100; ++seed) {
      Machine machine(seed);
      machine.cost = {ring, 90'000, 47'000};
      CopyChooser chooser(seed % 2 == 0 ? CopyPath::Ring : CopyPath::Both, all_paths);
      bool second = false;
      for (int i = 0; i < 6000; ++i) {
        const CopyPath path = chooser.path();
        uint64_t ticks = machine.take(path);
        second = path == CopyPath::Both && !second;
        if (path == CopyPath::Both) ticks = second ? 500 : 2 * ticks;
        chooser.note(path, ticks, message);
      }
      if (chooser.best() != (ring < 47'000 ? CopyPath::Ring : CopyPath::Both)) ++wrong;
    }
    EXPECT_LE(wrong, 3) << ring;
  }
}

// After a change to the ring the sender has filled it already: the first MiB comes in no time, which is not what a stream takes.
TEST(CopyChooser, WhatWasSentAheadIsNotMeasured) {
  constexpr uint64_t short_message = 1 << 16;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Machine machine(seed);
    machine.cost = {6'000, 7'000, 4'000};
    CopyChooser chooser(CopyPath::Both, all_paths);
    uint64_t ahead = 0;
    int wrong = 0;
    for (int i = 0; i < 20'000; ++i) {
      const CopyPath path = chooser.path();
      const uint64_t ticks = machine.take(path);
      ahead = path == CopyPath::Ring ? ahead + short_message : 0;
      chooser.note(path, path == CopyPath::Ring && ahead <= 1 << 20 ? 500 : ticks, short_message);
      wrong += chooser.best() != CopyPath::Both ? 1 : 0;
    }
    EXPECT_LE(wrong, 2000) << "seed " << seed;
  }
}

TEST(CopyChooser, AWayThatIsExcludedIsLeft) {
  Machine machine(1);
  machine.cost = {90'000, 60'000, 30'000};
  CopyChooser chooser(CopyPath::Ring, all_paths);
  (void)run(chooser, machine, 2000, CopyPath::Both);
  ASSERT_EQ(chooser.best(), CopyPath::Both);
  chooser.exclude(CopyPath::Both);
  EXPECT_EQ(chooser.best(), CopyPath::Receiver);
  for (int i = 0; i < 5000; ++i) {
    ASSERT_NE(chooser.path(), CopyPath::Both);
    chooser.note(chooser.path(), machine.take(chooser.path()), message);
  }
}

TEST(CopyChooser, OnePathIsNeverTriedAgainstItself) {
  Machine machine(1);
  machine.cost = {90'000, 60'000, 30'000};
  CopyChooser chooser(CopyPath::Ring, 1);
  (void)run(chooser, machine, 5000, CopyPath::Ring);
  EXPECT_EQ(chooser.trials(), 0u);
}

// Messages that were on their way when a trial began come by the old way; a sender that never follows ends the trial.
TEST(CopyChooser, ATrialThatNobodyFollowsEnds) {
  Machine machine(1);
  machine.cost = {50'000, 60'000, 30'000};
  CopyChooser chooser(CopyPath::Ring, all_paths);
  for (int i = 0; i < 20'000; ++i) chooser.note(CopyPath::Ring, machine.take(CopyPath::Ring), message);
  EXPECT_EQ(chooser.best(), CopyPath::Ring);
  EXPECT_EQ(chooser.trial_messages(), 0u);
  EXPECT_LE(chooser.lost_ticks(), chooser.ticks() / 100);
}

TEST(CopyChooser, ATrialOfWhichNothingIsMeasuredEnds) {
  Machine machine(1);
  machine.cost = {50'000, 60'000, 30'000};
  CopyChooser chooser(CopyPath::Ring, all_paths);
  while (chooser.path() == CopyPath::Ring)
    chooser.note(CopyPath::Ring, machine.take(CopyPath::Ring), message);
  int passed = 0;
  for (; chooser.path() != CopyPath::Ring && passed < 1000; ++passed) chooser.pass();
  EXPECT_LT(passed, 200);
}

TEST(CopyChooser, Classes) {
  EXPECT_EQ(copy_class_of(1), 0u);
  EXPECT_EQ(copy_class_of(8192), 0u);
  EXPECT_EQ(copy_class_of(8193), 1u);
  EXPECT_EQ(copy_class_of(16384), 1u);
  EXPECT_EQ(copy_class_of(65536), 3u);
  EXPECT_EQ(copy_class_of(262144), 5u);
  EXPECT_EQ(copy_class_of(262145), 6u);
  EXPECT_EQ(copy_class_of(1 << 20), 7u);
  EXPECT_EQ(copy_class_of(UINT64_MAX), copy_classes - 1);
}

}  // namespace
}  // namespace weft::link::shm
