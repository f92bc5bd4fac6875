// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Counters: values, thresholds, signals, and all of it with threads.
#include "core/counter.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace weft::core {
namespace {

struct Mark final : Threshold {
  std::vector<int>* log = nullptr;
  int id = 0;
  std::atomic<int> times{0};
  void reached() noexcept override {
    ++times;
    if (log != nullptr) log->push_back(id);
  }
};

struct CountingSignal final : Signal {
  std::atomic<int> notified{0};
  void notify() noexcept override { ++notified; }
};

TEST(Counter, AddsSetsAndCountsErrorsApart) {
  Counter counter;
  counter.add(3);
  counter.add_error(2);
  EXPECT_EQ(counter.value(), 3u);
  EXPECT_EQ(counter.errors(), 2u);
  counter.set(10);
  counter.set_error(0);
  EXPECT_EQ(counter.value(), 10u);
  EXPECT_EQ(counter.errors(), 0u);
}

TEST(Counter, ThresholdsFireOnceInOrderOfValueThenOfArrival) {
  Counter counter;
  std::vector<int> log;
  Mark marks[4];
  const uint64_t at[4] = {5, 2, 5, 9};
  for (int i = 0; i < 4; ++i) {
    marks[i].log = &log;
    marks[i].id = i;
    marks[i].at = at[i];
    counter.when(marks[i]);
  }
  counter.add(1);
  EXPECT_TRUE(log.empty());
  counter.add(1);
  EXPECT_EQ(log, (std::vector<int>{1}));
  counter.add(6);
  EXPECT_EQ(log, (std::vector<int>{1, 0, 2}));
  counter.set(9);
  EXPECT_EQ(log, (std::vector<int>{1, 0, 2, 3}));
  counter.add(100);
  EXPECT_EQ(log.size(), 4u);
}

TEST(Counter, AThresholdThatIsReachedAlreadyFiresAtOnce) {
  Counter counter;
  counter.add(5);
  Mark mark;
  mark.at = 5;
  counter.when(mark);
  EXPECT_EQ(mark.times, 1);
  Mark zero;
  counter.when(zero);
  EXPECT_EQ(zero.times, 1);
}

TEST(Counter, ACancelledThresholdDoesNotFire) {
  Counter counter;
  Mark first;
  Mark second;
  first.at = 1;
  second.at = 2;
  counter.when(first);
  counter.when(second);
  EXPECT_TRUE(counter.cancel(first));
  EXPECT_FALSE(counter.cancel(first));
  counter.add(2);
  EXPECT_EQ(first.times, 0);
  EXPECT_EQ(second.times, 1);
  EXPECT_FALSE(counter.cancel(second));
}

// fi_trigger(3): a triggered operation may itself trigger the next on the same counter.
TEST(Counter, ACallbackMayUseTheCounter) {
  Counter counter;
  struct Chain final : Threshold {
    Counter* counter = nullptr;
    int times = 0;
    void reached() noexcept override {
      if (++times == 5) return;
      at += 1;
      counter->when(*this);
      counter->add(1);
    }
  } chain;
  chain.counter = &counter;
  chain.at = 1;
  counter.when(chain);
  counter.add(1);
  EXPECT_EQ(chain.times, 5);
  EXPECT_EQ(counter.value(), 5u);
}

// fi_trigger(3), deferred work queues: successes and errors together.
TEST(Counter, AThresholdMayCountErrorsToo) {
  Counter counter;
  std::vector<int> log;
  Mark plain;
  Mark sum;
  Mark later;
  plain.log = sum.log = later.log = &log;
  plain.id = 1, plain.at = 4;
  sum.id = 2, sum.at = 5, sum.with_errors = true;
  later.id = 3, later.at = 9, later.with_errors = true;
  for (Mark* mark : {&plain, &sum, &later}) counter.when(*mark);
  counter.add_error(3);
  counter.add(1);
  EXPECT_TRUE(log.empty());
  counter.add_error(1);
  EXPECT_EQ(log, (std::vector<int>{2}));
  counter.set_error(0);
  counter.add(3);
  EXPECT_EQ(log, (std::vector<int>{2, 1}));
  counter.set_error(5);
  EXPECT_EQ(log, (std::vector<int>{2, 1, 3}));
  Mark cancelled;
  cancelled.at = 100;
  cancelled.with_errors = true;
  counter.when(cancelled);
  EXPECT_TRUE(counter.cancel(cancelled));
  counter.add_error(200);
  EXPECT_EQ(cancelled.times, 0);
}

TEST(Counter, TheSignalIsNotifiedForTheValueAndForErrors) {
  Counter counter;
  CountingSignal signal;
  counter.set_signal(&signal);
  counter.add(1);
  counter.add_error(1);
  EXPECT_EQ(signal.notified, 0);
  counter.arm(5);
  counter.add(3);
  EXPECT_EQ(signal.notified, 0);
  counter.add(1);
  EXPECT_EQ(signal.notified, 1);
  counter.add(1);
  EXPECT_EQ(signal.notified, 1);
  counter.arm(100);
  counter.add_error(1);
  EXPECT_EQ(signal.notified, 2);
  counter.arm(8);
  counter.arm(100);  // the lower value counts
  counter.set(8);
  EXPECT_EQ(signal.notified, 3);
  counter.arm(200);
  counter.disarm();
  counter.set(300);
  EXPECT_EQ(signal.notified, 3);
}

TEST(CounterThreads, SumsOfValueAndErrorsFireExactlyOnce) {
  constexpr uint64_t each = 2000;
  Counter counter;
  std::vector<Mark> marks(2 * each);
  std::thread adds([&] {
    for (uint64_t i = 0; i < each; ++i) counter.add(1);
  });
  std::thread errors([&] {
    for (uint64_t i = 0; i < each; ++i) counter.add_error(1);
  });
  for (uint64_t i = 0; i < marks.size(); ++i) {
    marks[i].at = i + 1;
    marks[i].with_errors = true;
    counter.when(marks[i]);
  }
  adds.join();
  errors.join();
  for (const Mark& mark : marks) EXPECT_EQ(mark.times, 1) << mark.at;
}

TEST(CounterThreads, EveryThresholdFiresExactlyOnce) {
  constexpr int marks_each = 200;
  constexpr int adds_each = 2000;
  Counter counter;
  std::vector<Mark> marks(2 * marks_each);
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < adds_each; ++i) counter.add(1);
    });
    threads.emplace_back([&, t] {
      for (int i = 0; i < marks_each; ++i) {
        Mark& mark = marks[size_t(t) * marks_each + size_t(i)];
        mark.at = uint64_t(i) * 20 + 1;
        counter.when(mark);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(counter.value(), 2u * adds_each);
  for (const Mark& mark : marks) EXPECT_EQ(mark.times, 1) << "at " << mark.at;
}

TEST(CounterThreads, CancelOrFireButNeverBoth) {
  for (int round = 0; round < 300; ++round) {
    Counter counter;
    Mark mark;
    mark.at = 1;
    counter.when(mark);
    bool cancelled = false;
    std::thread adder([&] { counter.add(1); });
    cancelled = counter.cancel(mark);
    adder.join();
    EXPECT_EQ(mark.times, cancelled ? 0 : 1);
  }
}

}  // namespace
}  // namespace weft::core
