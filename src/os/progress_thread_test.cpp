// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A progress thread: serves endpoints that nobody polls, steps aside for who does, rests when nothing is left, survives fork(2) and closing.
#include "os/progress_thread.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace weft::os {
namespace {

using std::chrono::milliseconds;
using Duty = ProgressThread::Duty;

// Frames come from any thread; progress() counts them. With `work`, calls are needed though no frame came.
class Endpoint final : public core::Progressor {
 public:
  Endpoint() : event_(std::move(*Event::create())) {}
  void deliver() {
    frames_.fetch_add(1);
    if (asleep_.exchange(false)) event_.notify();
  }
  void begin_work() {  // under the lock
    work = true;
    if (signal_ != nullptr) std::exchange(signal_, nullptr)->notify();
  }
  void progress() noexcept override {
    ++calls;
    if (work && --work_left == 0) work = false;
    taken.fetch_add(frames_.exchange(0));
  }
  int wait_fd() noexcept override { return event_.fd(); }
  bool arm() noexcept override {
    if (busy) return false;
    asleep_.store(true);
    return frames_.load() == 0 && !work;
  }
  void disarm() noexcept override {
    asleep_.store(false);
    event_.drain();
  }
  bool has_background_work() noexcept override { return work; }
  void notify_background_work(core::Signal* signal) noexcept override { signal_ = signal; }

  std::atomic<int> taken{0};
  std::atomic<unsigned> calls{0};
  bool busy = false;  // never sleeps
  bool work = false;
  int work_left = 3;

 private:
  Event event_;
  std::atomic<int> frames_{0};
  std::atomic<bool> asleep_{false};
  core::Signal* signal_ = nullptr;
};

template <class F>
bool eventually(F&& done, milliseconds limit = milliseconds(10'000)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

class ProgressThreadTest : public testing::Test {
 protected:
  void open(Duty duty) {
    thread = std::make_unique<ProgressThread>(lock, duty);
    add(endpoint);
  }
  void add(Endpoint& added) {
    std::scoped_lock guard(lock);
    ASSERT_EQ(thread->add(added), 0);
  }
  void remove(Endpoint& removed) {
    std::scoped_lock guard(lock);
    thread->remove(removed);
  }
  void TearDown() override {
    if (thread != nullptr) remove(endpoint);
    thread.reset();
  }

  Lock lock;
  Endpoint endpoint;
  std::unique_ptr<ProgressThread> thread;
};

TEST_F(ProgressThreadTest, FramesAreTakenWithoutACall) {
  open(Duty::Everything);
  for (int i = 1; i <= 20; ++i) {
    endpoint.deliver();
    ASSERT_TRUE(eventually([&] { return endpoint.taken == i; })) << i;
  }
}

TEST_F(ProgressThreadTest, ItSleepsWhenNothingComes) {
  open(Duty::Everything);
  ASSERT_TRUE(eventually([&] { return endpoint.calls != 0; }));
  std::this_thread::sleep_for(milliseconds(20));
  const unsigned before = endpoint.calls;
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_LE(endpoint.calls - before,
            2 * 500 / Sleeper::slice_ms);  // one look after each slice, and one that was under way
}

TEST_F(ProgressThreadTest, ItStepsAsideForWhoPolls) {
  open(Duty::Everything);
  ASSERT_TRUE(eventually([&] { return endpoint.calls != 0; }));
  unsigned polls = 0;
  const unsigned before = endpoint.calls;
  const auto end = std::chrono::steady_clock::now() + milliseconds(300);
  while (std::chrono::steady_clock::now() < end) {
    {
      std::scoped_lock guard(lock);
      endpoint.poll();
    }
    ++polls;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  EXPECT_LE(endpoint.calls - before - polls, polls / 10 + 5);
}

// Standing aside for who polls one endpoint, it serves the others.
TEST_F(ProgressThreadTest, AnEndpointBesideOneThatIsPolledIsServed) {
  open(Duty::Everything);
  Endpoint other;
  add(other);
  const auto poll_for = [&](milliseconds limit, auto&& done) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!done() && std::chrono::steady_clock::now() < end) {
      {
        std::scoped_lock guard(lock);
        endpoint.poll();
      }
      std::this_thread::yield();
    }
    return done();
  };
  for (int i = 1; i <= 5; ++i) {
    (void)poll_for(milliseconds(20), [] { return false; });  // the thread is aside
    other.deliver();
    EXPECT_TRUE(poll_for(milliseconds(5'000), [&] { return other.taken == i; })) << i;
  }
  remove(other);
}

// The program holds the lock but for a moment between two polls: fi_cntr_wait() of an operation whose peer is not connected yet.
TEST_F(ProgressThreadTest, AnEndpointBesideOneThatIsPolledWithoutAPauseIsServed) {
  open(Duty::Everything);
  Endpoint other;
  add(other);
  for (int i = 1; i <= 20; ++i) {
    other.deliver();
    const auto end = std::chrono::steady_clock::now() + milliseconds(2'000);
    while (other.taken != i && std::chrono::steady_clock::now() < end) {
      std::scoped_lock guard(lock);
      endpoint.poll();
      const auto held = std::chrono::steady_clock::now() + std::chrono::microseconds(200);
      while (std::chrono::steady_clock::now() < held) {
      }
    }
    ASSERT_EQ(other.taken, i);
  }
  remove(other);
}

TEST_F(ProgressThreadTest, AProgramThatPollsInVainServesTheOthers) {
  open(Duty::Everything);
  Endpoint other;
  add(other);
  std::this_thread::sleep_for(milliseconds(20));
  {
    std::scoped_lock guard(lock);  // the thread does nothing
    other.deliver();
    const unsigned before = endpoint.calls;
    endpoint.poll();
    EXPECT_EQ(thread->serve_unpolled(), false) << "an endpoint that does not tell";
    EXPECT_EQ(other.taken, 1);
    EXPECT_EQ(endpoint.calls, before + 1) << "not the one that is polled";
  }
  remove(other);
}

TEST_F(ProgressThreadTest, AnEndpointThatCannotSleepIsTriedSeldom) {
  endpoint.busy = true;
  open(Duty::Everything);
  std::this_thread::sleep_for(milliseconds(50));
  const unsigned before = endpoint.calls;
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_GE(endpoint.calls - before, 5U);
  EXPECT_LE(endpoint.calls - before, 2000U);
}

TEST_F(ProgressThreadTest, WithManualProgressItServesBackgroundWorkOnly) {
  open(Duty::BackgroundWork);
  endpoint.deliver();
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(endpoint.calls, 0U);
  for (int round = 0; round < 3; ++round) {
    {
      std::scoped_lock guard(lock);
      endpoint.work_left = 3;
      endpoint.begin_work();
    }
    ASSERT_TRUE(eventually([&] {
      std::scoped_lock guard(lock);
      return !endpoint.work;
    })) << round;
    std::this_thread::sleep_for(milliseconds(60));  // it rests
    const unsigned before = endpoint.calls;
    endpoint.deliver();
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_EQ(endpoint.calls, before);
  }
}

TEST_F(ProgressThreadTest, EndpointsComeAndGo) {
  open(Duty::Everything);
  for (int round = 0; round < 200; ++round) {
    Endpoint other;
    add(other);
    other.deliver();
    if (round % 2 == 0) {
      ASSERT_TRUE(eventually([&] { return other.taken == 1; })) << round;
    }
    remove(other);
  }
}

TEST_F(ProgressThreadTest, OpenedAndClosedAtOnce) {
  for (int round = 0; round < 200; ++round) {
    Lock own;
    Endpoint one;
    ProgressThread made(own, round % 2 == 0 ? Duty::Everything : Duty::BackgroundWork);
    {
      std::scoped_lock guard(own);
      ASSERT_EQ(made.add(one), 0);
      one.begin_work();
    }
    one.deliver();
    std::scoped_lock guard(own);
    made.remove(one);
  }
}

TEST_F(ProgressThreadTest, AForkedChildFindsTheLockFree) {
  endpoint.busy = true;
  open(Duty::Everything);  // the thread takes the lock all the time
  constexpr int rounds = 50;
  for (int round = 0; round < rounds; ++round) {
    endpoint.deliver();
    const pid_t child = fork();
    if (child == 0) {
      ::alarm(10);
      lock.lock();
      thread->remove(endpoint);
      lock.unlock();
      thread.reset();
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << round;
  }
  endpoint.deliver();
  EXPECT_TRUE(eventually([&] { return endpoint.taken == rounds + 1; }));
}

}  // namespace
}  // namespace weft::os
