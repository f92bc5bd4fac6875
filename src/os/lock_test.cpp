// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The domain's lock: exclusion, and that a waiter is always woken.
#include "os/lock.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
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

// Another thread releases the lock and takes it again at once, for ever.
TEST(LockThreads, AThreadAheadGoesFirst) {
  Lock lock;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> rounds{0};
  std::thread other([&] {
    while (!stop) {
      std::scoped_lock guard(lock);
      const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(20);
      while (std::chrono::steady_clock::now() < end) {
      }
      ++rounds;
    }
  });
  uint64_t fewest = UINT64_MAX;
  for (int i = 0; i < 20; ++i) {
    const uint64_t before = rounds;
    lock.lock_ahead();
    fewest = std::min<uint64_t>(fewest, rounds - before);
    lock.unlock();
  }
  stop = true;
  other.join();
  EXPECT_LT(fewest, 100u);
}

}  // namespace
}  // namespace weft::os
