// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sleeping on endpoints: timeouts, wake-ups by descriptor, by notice and by interruption, several sleepers.
#include "os/sleeper.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "core/completion_queue.hpp"
#include "os/lock.hpp"

namespace weft::os {
namespace {

using Clock = std::chrono::steady_clock;

long elapsed_ms(Clock::time_point since) {
  return long(std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - since).count());
}

// An endpoint whose frames come from another thread: a count and an eventfd.
class Inbox final : public core::Progressor {
 public:
  explicit Inbox(core::CompletionQueue& queue) : queue_(queue), event_(std::move(*Event::create())) {}
  void deliver() {
    frames_.fetch_add(1);
    if (asleep_.exchange(false)) event_.notify();
  }
  void progress() noexcept override {
    for (int n = frames_.exchange(0); n > 0; --n) queue_.push({});
  }
  int wait_fd() noexcept override { return event_.fd(); }
  bool arm() noexcept override {
    asleep_.store(true);
    return frames_.load() == 0;
  }
  void disarm() noexcept override {
    asleep_.store(false);
    event_.drain();
  }

 private:
  core::CompletionQueue& queue_;
  Event event_;
  std::atomic<int> frames_{0};
  std::atomic<bool> asleep_{false};
};

class SleeperTest : public testing::Test {
 protected:
  SleeperTest() : sleeper(std::move(*Sleeper::create(Sleeper::Kind::descriptor))), queue(64), inbox(queue) {
    queue.set_signal(sleeper.get());
    queue.add(inbox);
  }
  ~SleeperTest() override {
    queue.remove(inbox);
    sleeper->forget(inbox);
  }
  long read(int timeout_ms) {
    fi_cq_entry entry;
    return sleeper->wait(
        lock, queue.progressors(), -FI_EAGAIN, timeout_ms,
        [&]() -> long { return queue.read<fi_cq_entry, false>(&entry, 1, nullptr); },
        [&] {
          queue.arm();
          return true;
        });
  }

  std::unique_ptr<Sleeper> sleeper;
  core::CompletionQueue queue;
  Inbox inbox;
  Lock lock;
};

TEST_F(SleeperTest, TheTimeIsKept) {
  const auto start = Clock::now();
  EXPECT_EQ(read(130), -FI_EAGAIN);
  EXPECT_GE(elapsed_ms(start), 120);
  EXPECT_LT(elapsed_ms(start), 1000);
  EXPECT_EQ(read(0), -FI_EAGAIN);
}

TEST_F(SleeperTest, AFrameWakesByItsDescriptor) {
  std::thread peer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    inbox.deliver();
  });
  const auto start = Clock::now();
  EXPECT_EQ(read(-1), 1);
  EXPECT_LT(elapsed_ms(start), 90) << "woken by the frame, not by the end of a slice";
  peer.join();
}

TEST_F(SleeperTest, APushByAnotherThreadWakes) {
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::scoped_lock guard(lock);
    queue.push({});
  });
  const auto start = Clock::now();
  EXPECT_EQ(read(-1), 1);
  EXPECT_LT(elapsed_ms(start), 90);
  other.join();
}

// fi_cq(3), fi_cq_signal.
TEST_F(SleeperTest, AnInterruptEndsTheWaitWithoutData) {
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    sleeper->interrupt();
  });
  EXPECT_EQ(read(-1), -FI_EAGAIN);
  other.join();
  EXPECT_EQ(read(0), -FI_EAGAIN);
}

TEST_F(SleeperTest, SeveralSleepersShareWhatComes) {
  constexpr int threads = 3;
  constexpr int each = 100;
  std::atomic<int> got{0};
  std::vector<std::thread> readers;
  readers.reserve(4);
  for (int t = 0; t < threads; ++t) {
    readers.emplace_back([&] {
      while (got.load() < threads * each) {
        if (read(20) == 1) ++got;
      }
    });
  }
  for (int i = 0; i < threads * each; ++i) {
    inbox.deliver();
    if (i % 7 == 0) std::this_thread::yield();
  }
  const auto start = Clock::now();
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(got, threads * each);
  EXPECT_LT(elapsed_ms(start), 5000);
}

// Two queues of one endpoint, each with a sleeper: what wakes one must not be lost for the other.
TEST_F(SleeperTest, TwoQueuesOfOneEndpoint) {
  auto second = std::move(*Sleeper::create(Sleeper::Kind::descriptor));
  core::CompletionQueue other(64);
  other.set_signal(second.get());
  other.add(inbox);  // drives the same endpoint, whose completions go to the first queue
  std::atomic<bool> stop{false};
  std::thread idle([&] {
    fi_cq_entry entry;
    while (!stop.load()) {
      second->wait(
          lock, other.progressors(), -FI_EAGAIN, 50,
          [&]() -> long { return other.read<fi_cq_entry, false>(&entry, 1, nullptr); },
          [&] {
            other.arm();
            return true;
          });
    }
  });
  const auto start = Clock::now();
  for (int i = 0; i < 20; ++i) {
    std::thread peer([&] { inbox.deliver(); });
    EXPECT_EQ(read(2000), 1);
    peer.join();
  }
  EXPECT_LT(elapsed_ms(start), 1500) << "frames waited for the end of slices";
  stop.store(true);
  idle.join();
  other.remove(inbox);
  second->forget(inbox);
}

TEST(Sleeper, YieldSpins) {
  auto sleeper = std::move(*Sleeper::create(Sleeper::Kind::yield));
  Lock lock;
  const core::ProgressorList nobody;
  int attempts = 0;
  const long status = sleeper->wait(
      lock, nobody, -1, -1, [&]() -> long { return ++attempts == 500 ? 7 : -1; }, [] { return true; });
  EXPECT_EQ(status, 7);
}

TEST(Sleeper, ACondWaiterIsWoken) {
  auto sleeper = std::move(*Sleeper::create(Sleeper::Kind::mutex_cond));
  std::atomic<bool> ready{false};
  std::thread other([&] {
    while (!ready.load()) std::this_thread::yield();
    sleeper->notify();
  });
  pthread_mutex_lock(sleeper->mutex());
  ready.store(true);
  pthread_cond_wait(sleeper->cond(), sleeper->mutex());
  pthread_mutex_unlock(sleeper->mutex());
  other.join();
}

}  // namespace
}  // namespace weft::os
