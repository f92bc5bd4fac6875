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
#include "os/sleeper.hpp"
#include "os/thread.hpp"

namespace weft::os {

// States, with the lock that covers the endpoints held only while the thread works:
//   aside    the program has polled since the last look: the thread looks again after look_ns_min to look_ns_max. At
//            each look it serves the endpoints that were not polled. A look that finds the lock held is left out, a few times in a row
//   working  progress() of the endpoints, until they may be slept on
//   asleep   on the endpoints' descriptors, all armed
//   resting  Duty::BackgroundWork only: no endpoint has background work, the thread waits for the signal that one has
// Asleep and resting it is notified of new background work. The program has just called then, so the thread waits for pause_ns_after_wake before it looks.
class ProgressThread final : core::Signal {
 public:
  enum class Duty : uint8_t {
    Everything,      // FI_PROGRESS_AUTO
    BackgroundWork,  // FI_PROGRESS_MANUAL: only while an endpoint has_background_work()
  };

  static constexpr int64_t look_ns_min = 1'000'000;
  static constexpr int64_t look_ns_max = 4'000'000;
  // Looks in a row that may find the lock held, where there are several endpoints: a program that polls one of them holds it nearly all the time.
  static constexpr unsigned held_looks_max = 2;
  static constexpr unsigned held_looks_max_alone =
      16;  // where the one who holds it polls the only endpoint, as a rule
  // After the last background work, until the thread rests: a program that sends now and then wakes it once, not for every message.
  static constexpr uint64_t rest_after_ns = 20'000'000;
  static constexpr int64_t pause_ns_after_wake = 200'000;
  // With Duty::BackgroundWork a thread of the program that sleeps on the same endpoint is woken by the same event, and goes first.
  static constexpr int64_t yield_ns = 100'000;

  // `lock` covers the endpoints and outlives the thread. The thread starts with the first endpoint, or the first background work.
  ProgressThread(Lock& lock, Duty duty);
  ~ProgressThread();  // without the lock
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  Duty duty() const noexcept { return duty_; }
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
  // Takes and gives back the lock. Not while a thread of the process forks.
  using Guard = std::unique_lock<Lock>;
  static void take(Guard& guard) noexcept;
  static void take_ahead(Guard& guard) noexcept;
  static bool try_take(Guard& guard) noexcept;
  static void give(Guard& guard) noexcept;
  // With the lock held, which they give back while they sleep.
  void stand_aside(Guard& guard) noexcept;
  void rest(Guard& guard) noexcept;
  void pause_after_wake(Guard& guard) noexcept;
  void work(Guard& guard) noexcept;
  bool has_background_work() const noexcept;
  bool has_other_sleepers() const noexcept;
  bool was_polled() const noexcept;

  Lock& lock_;
  const Duty duty_;
  std::unique_ptr<Sleeper> sleeper_;
  core::ProgressorList endpoints_;
  Origin origin_;
  Thread thread_;
  std::atomic<bool> stop_{false};
  int64_t look_ns_ = look_ns_min;
  uint64_t worked_at_ns_ = 0;
  unsigned unarmed_ = 0;   // times in a row that the endpoints could not be slept on
  bool notified_ = false;  // of background work, since the thread slept
};

}  // namespace weft::os
