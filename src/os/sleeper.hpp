// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How a thread sleeps until one of a queue's endpoints has something, or somebody calls notify(). Must not
// know which queue it is.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <vector>

#include "base/assert.hpp"
#include "base/result.hpp"
#include "core/progress.hpp"
#include "os/event.hpp"
#include "os/poll_set.hpp"

namespace weft::os {

// Calls attempt() under `lock` until it returns something else than `again` or the time is over (timeout_ms < 0: never). For a caller that has
// nothing to sleep on; attempt() yields the CPU.
template <class Lock, class Attempt>
long wait_by_polling(Lock& lock, long again, int timeout_ms, Attempt&& attempt) {
  const int64_t deadline = timeout_ms < 0 ? INT64_MAX : now_ms() + timeout_ms;
  for (;;) {
    {
      std::scoped_lock guard(lock);
      if (const long status = attempt(); status != again) return status;
    }
    if (deadline != INT64_MAX && now_ms() >= deadline) return again;
  }
}

class Sleeper final : public core::Signal {
 public:
  enum class Kind { descriptor, mutex_cond, yield };
  // A sleep is cut into slices, so that an endpoint looks after dead peers while its owner sleeps.
  static constexpr int slice_ms = 100;

  static Result<std::unique_ptr<Sleeper>> create(Kind kind);
  ~Sleeper();
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  Kind kind() const noexcept { return kind_; }
  int fd() const noexcept {
    return poll_set_.get();
  }  // FI_WAIT_FD: readable when it is time to read the queue
  pthread_mutex_t* mutex() noexcept { return &mutex_; }  // FI_WAIT_MUTEX_COND: notify() broadcasts
  pthread_cond_t* cond() noexcept { return &cond_; }

  // Any thread, no lock.
  void notify() noexcept override;
  // One sleeping (or the next) wait returns early: fi_cq_signal.
  void interrupt() noexcept;
  bool consume_interrupt() noexcept;

  // The caller holds the lock that covers `list`. True: all are armed, sleep() may follow. False: there is
  // work, or a descriptor is missing.
  bool arm(const core::ProgressorList& list) noexcept;
  void disarm(const core::ProgressorList& list) noexcept;
  // A program sleeps on fd() by itself (fi_trywait), and nobody hears when it wakes: what is armed stays so when other threads have slept here.
  void hold() noexcept { held_.store(true, std::memory_order_relaxed); }
  // Nobody sleeps here for now: what comes to the endpoints does not pay for this set until the next arm().
  void unwatch_all() noexcept;
  void forget(core::Progressor& progressor) noexcept;  // before the endpoint closes its descriptor
  // A descriptor that wakes sleepers while it is readable. 0 or a negative errno.
  int watch(int fd) noexcept { return poll_set_.watch(fd) ? 0 : -errno; }
  void unwatch(int fd) noexcept { poll_set_.remove(fd); }
  // Forgets earlier notices, unless other threads sleep here and have not seen them.
  void drain() noexcept;

  // Without any lock. At most timeout_ms and at most slice_ms (timeout_ms < 0: slice_ms).
  void sleep(int timeout_ms) noexcept;
  // Without any lock. Until notify(), or the time is over; endpoints do not end it. timeout_ns < 0: no limit.
  void pause(int64_t timeout_ns) noexcept;
  // Around a sleep() that is not wait()'s. leave() is true for the last thread that slept here.
  void enter() noexcept { sleeping_.fetch_add(1, std::memory_order_relaxed); }
  bool leave() noexcept {
    WEFT_ASSERT(sleeping_.load(std::memory_order_relaxed) != 0);
    return sleeping_.fetch_sub(1, std::memory_order_relaxed) == 1;
  }

  // Calls attempt() under `lock` until it returns something else than `again`, somebody interrupts, or the
  // time is over; both return `again`. arm_queue() runs under `lock` before each sleep, after the last
  // drain; it returns false when the queue filled.
  template <class Lock, class Attempt, class ArmQueue>
  long wait(Lock& lock, const core::ProgressorList& list, long again, int timeout_ms, Attempt&& attempt,
            ArmQueue&& arm_queue) {
    const int64_t deadline = timeout_ms < 0 ? INT64_MAX : now_ms() + timeout_ms;
    unsigned unarmed = 0;
    for (unsigned round = 0;; ++round) {
      int remaining = slice_ms;
      bool armed = false;
      {
        std::scoped_lock guard(lock);
        const long status = attempt();
        if (status != again && sleeping_.load(std::memory_order_relaxed) != 0) notify();  // there may be more
        if (status != again || consume_interrupt()) return status;
        if (round < spins && timeout_ms != 0) continue;
        if (const int64_t left = deadline - now_ms(); left <= 0) {
          return again;
        } else if (left < remaining) {
          remaining = int(left);
        }
        if (kind_ != Kind::yield) {
          drain();
          if (interrupted_.load(std::memory_order_acquire)) continue;
          armed = arm_queue() && arm(list);
          if (armed) enter();
        }
      }
      if (!armed && kind_ != Kind::yield) {
        // Something came, or an operation waits for its peer. Who waits long must not keep the lock and the CPU.
        if (++unarmed > spins) yield_processor();
        continue;
      }
      unarmed = 0;
      sleep(remaining);
      if (kind_ == Kind::yield) continue;
      std::scoped_lock guard(lock);
      if (leave() && !held_.load(std::memory_order_relaxed))
        disarm(list);  // while others sleep on, what woke this one wakes them too
    }
  }

 private:
  // Attempts before the first sleep: what comes soon costs no system call.
  static constexpr unsigned spins = 64;
  struct Registration {
    core::Progressor* progressor;
    int fd;
    bool armed;
    bool watched;  // the set has fd
  };

  Sleeper(Kind kind, Event event, PollSet set) noexcept;
  Registration* registration(core::Progressor& progressor) noexcept;
  void disarm_all(const core::ProgressorList& list) noexcept;
  void ring_cond() noexcept;

  const Kind kind_;
  Event event_;
  PollSet poll_set_;
  Origin origin_;
  pthread_mutex_t mutex_;
  pthread_cond_t cond_;
  std::atomic<bool> interrupted_{false};
  std::atomic<bool> held_{false};
  std::atomic<unsigned> sleeping_{0};
  std::mutex registrations_mutex_;
  std::vector<Registration> registrations_;
};

}  // namespace weft::os
