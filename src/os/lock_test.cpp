// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The domain's lock: exclusion, and that a waiter is always woken.
#include "os/lock.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace weft::os {
namespace {

TEST(Lock, TryLockSeesTheHolder) {
  Lock lock;
  EXPECT_TRUE(lock.try_lock());
  EXPECT_FALSE(lock.try_lock());
  lock.unlock();
  EXPECT_TRUE(lock.try_lock());
  lock.unlock();
}

TEST(LockThreads, OneAtATime) {
  constexpr int threads = 4;
  constexpr int rounds = 5000;
  Lock lock;
  long count = 0;
  std::vector<std::thread> all;
  all.reserve(4);
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([&] {
      for (int i = 0; i < rounds; ++i) {
        std::scoped_lock guard(lock);
        ++count;
      }
    });
  }
  for (auto& thread : all) thread.join();
  EXPECT_EQ(count, long(threads) * rounds);
}

// The holder keeps it so long that the other one sleeps; then the wake must come at once, not with the end of a slice.
TEST(LockThreads, ASleeperIsWoken) {
  using Clock = std::chrono::steady_clock;
  Clock::duration fastest = Clock::duration::max();
  for (int round = 0; round < 5; ++round) {
    Lock lock;
    lock.lock();
    Clock::time_point taken;
    std::thread waiter([&] {
      std::scoped_lock guard(lock);
      taken = Clock::now();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const Clock::time_point released = Clock::now();
    lock.unlock();
    waiter.join();
    fastest = std::min(fastest, taken - released);
  }
  EXPECT_LT(fastest, std::chrono::milliseconds(20));
}

}  // namespace
}  // namespace weft::os
