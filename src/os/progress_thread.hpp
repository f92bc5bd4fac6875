// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A thread that calls progress() for endpoints while no thread of the program does (fi_domain(3), FI_PROGRESS_AUTO; docs/progress.md). Must not know
// links or queues.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "core/progress.hpp"
#include "os/lock.hpp"
#include "os/progress_schedule.hpp"
#include "os/sleeper.hpp"
#include "os/thread.hpp"

namespace weft::os {

// The lock that covers the endpoints is held only while the thread works. ProgressSchedule says when that is. At each look the thread serves the
// endpoints that were not polled.
class ProgressThread final : core::Signal {
 public:
  using Duty = ProgressSchedule::Duty;

  // `lock` covers the endpoints and outlives the thread. The thread starts with the first endpoint, or the first background work.
  ProgressThread(Lock& lock, Duty duty);
  ~ProgressThread();  // without the lock
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  Duty duty() const noexcept { return schedule_.duty(); }
  // With the lock held. 0 or a negative errno: no memory, no descriptors, no thread.
  int add(core::Progressor& progressor) noexcept;
  void remove(core::Progressor& progressor) noexcept;
  // With the lock held: drives the endpoints that no thread of the program polls. True: something came. Also for a thread of the program whose polls
  // of other endpoints are empty.
  bool serve_unpolled() noexcept;

 private:
  bool start() noexcept;
  void ask_for_notice() noexcept;
  void notify() noexcept override;  // an endpoint has background work; with the lock held
  void run() noexcept;
  ProgressSchedule::Turn check() noexcept;  // with the lock held
  // Takes and gives back the lock. Not while a thread of the process forks.
  using Guard = std::unique_lock<Lock>;
  static void acquire(Guard& guard) noexcept;
  static void acquire_ahead(Guard& guard) noexcept;
  static bool try_acquire(Guard& guard) noexcept;
  static void release(Guard& guard) noexcept;
  // With the lock held, which they give back while they sleep.
  void stand_aside(Guard& guard) noexcept;
  void rest(Guard& guard) noexcept;
  void pause_after_wake(Guard& guard) noexcept;
  void work(Guard& guard) noexcept;
  bool has_background_work() const noexcept;
  bool has_other_sleepers() const noexcept;
  bool was_polled() const noexcept;

  Lock& lock_;
  ProgressSchedule schedule_;
  std::unique_ptr<Sleeper> sleeper_;
  core::ProgressorList endpoints_;
  Origin origin_;
  Thread thread_;
  std::atomic<bool> stop_{false};
};

}  // namespace weft::os
