// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The loop of a progress thread; fork(2) while one runs.
#include "os/progress_thread.hpp"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <new>
#include <utility>

#include "os/clock.hpp"

namespace weft::os {
namespace {

constexpr int64_t fork_check_ns = 100'000;
constexpr uint64_t fork_timeout_ns = 20'000'000;

// A child of fork(2) has no such threads, so none may hold a lock, or be in the middle of an endpoint, when the process is copied. A thread announces
// itself before it takes a lock; who forks announces that, and waits until no thread is inside. No lock is held meanwhile: handlers of the program, which
// run in between, may wait for threads that wait for ours.
std::atomic<int> inside{0};
std::atomic<int> forks_in_progress{0};

void before_fork() noexcept {
  forks_in_progress.fetch_add(1, std::memory_order_seq_cst);
  const uint64_t until = monotonic_ns() + fork_timeout_ns;
  // The thread that forks may be in a signal handler, and hold the lock that a thread of ours waits for.
  while (inside.load(std::memory_order_seq_cst) != 0 && monotonic_ns() < until) yield_processor();
}
void after_fork_in_parent() noexcept { forks_in_progress.fetch_sub(1, std::memory_order_seq_cst); }
void after_fork_in_child() noexcept {
  inside.store(0, std::memory_order_relaxed);
  forks_in_progress.store(0, std::memory_order_relaxed);
}
[[maybe_unused]] const int registered =
    ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);

bool enter() noexcept {
  inside.fetch_add(1, std::memory_order_seq_cst);
  if (forks_in_progress.load(std::memory_order_seq_cst) == 0) return true;
  inside.fetch_sub(1, std::memory_order_seq_cst);
  return false;
}
void enter_after_forks() noexcept {
  while (!enter()) {
    const timespec pause{0, fork_check_ns};
    (void)::nanosleep(&pause, nullptr);
  }
}
void leave() noexcept { inside.fetch_sub(1, std::memory_order_seq_cst); }

}  // namespace

void ProgressThread::acquire(Guard& guard) noexcept {
  enter_after_forks();
  guard.lock();
}

void ProgressThread::acquire_ahead(Guard& guard) noexcept {
  enter_after_forks();
  guard.mutex()->lock_ahead();
  guard = Guard(*guard.release(), std::adopt_lock);
}

bool ProgressThread::try_acquire(Guard& guard) noexcept {
  if (!enter()) return false;
  if (guard.try_lock()) return true;
  leave();
  return false;
}

void ProgressThread::release(Guard& guard) noexcept {
  guard.unlock();
  leave();
}

ProgressThread::ProgressThread(Lock& lock, Duty duty) : lock_(lock), schedule_(duty) {}

ProgressThread::~ProgressThread() {
  stop_.store(true, std::memory_order_release);
  if (thread_.running()) sleeper_->notify();
  thread_.join();
}

bool ProgressThread::start() noexcept {
  if (sleeper_ == nullptr) {
    auto made = Sleeper::create(Sleeper::Kind::descriptor);
    if (!made) return false;
    sleeper_ = std::move(*made);
  }
  return thread_.start(
      "weft-progress", [](void* self) { static_cast<ProgressThread*>(self)->run(); }, this);
}

int ProgressThread::add(core::Progressor& progressor) noexcept {
  try {
    endpoints_.add(progressor);
  } catch (const std::bad_alloc&) {
    return -ENOMEM;
  }
  if (duty() == Duty::BackgroundWork) {
    progressor.notify_background_work(this);
    return 0;
  }
  if (!start()) {
    endpoints_.remove(progressor);
    return -EAGAIN;
  }
  sleeper_->notify();  // asleep or aside, it does not know this endpoint yet
  return 0;
}

void ProgressThread::remove(core::Progressor& progressor) noexcept {
  progressor.notify_background_work(nullptr);
  if (sleeper_ != nullptr) sleeper_->forget(progressor);
  endpoints_.remove(progressor);
}

void ProgressThread::notify() noexcept {
  if (!origin_.is_here()) return;
  schedule_.notified();
  if (start()) sleeper_->notify();
  else ask_for_notice();  // no descriptors or no thread now: the next send tries again
}

void ProgressThread::ask_for_notice() noexcept {
  for (core::Progressor* endpoint : endpoints_) endpoint->notify_background_work(this);
}

bool ProgressThread::has_background_work() const noexcept {
  return std::any_of(endpoints_.begin(), endpoints_.end(),
                     [](core::Progressor* endpoint) { return endpoint->has_background_work(); });
}

bool ProgressThread::has_other_sleepers() const noexcept {
  return std::any_of(endpoints_.begin(), endpoints_.end(),
                     [](const core::Progressor* endpoint) { return endpoint->sleepers() != 0; });
}

bool ProgressThread::was_polled() const noexcept {
  return std::any_of(endpoints_.begin(), endpoints_.end(),
                     [](const core::Progressor* endpoint) { return endpoint->was_polled(); });
}

// A program that polls one endpoint and waits there for what another one of the same domain has to do would wait for
// ever, if its polls kept the thread away from both.
bool ProgressThread::serve_unpolled() noexcept {
  bool came = false;
  for (core::Progressor* endpoint : endpoints_) {
    if (endpoint->was_polled()) continue;
    if (duty() == Duty::Everything || endpoint->has_background_work()) came = endpoint->advance() || came;
  }
  return came;
}

ProgressSchedule::Turn ProgressThread::check() noexcept {
  ProgressSchedule::Turn turn;
  turn.is_polled = was_polled();
  turn.has_served = turn.is_polled && serve_unpolled();
  for (core::Progressor* endpoint : endpoints_) endpoint->mark_polls();
  turn.has_several = endpoints_.size() > 1;
  if (duty() == Duty::BackgroundWork) {
    turn.has_background_work = has_background_work();
    turn.now = monotonic_ns();
  }
  return turn;
}

void ProgressThread::run() noexcept {
  using State = ProgressSchedule::State;
  Guard guard(lock_, std::defer_lock);
  acquire(guard);
  while (!stop_.load(std::memory_order_acquire)) {
    switch (schedule_.turn(check())) {
      case State::Aside:
        stand_aside(guard);
        break;
      case State::Resting:
        rest(guard);
        break;
      default:
        work(guard);
        break;
    }
  }
  release(guard);
}

void ProgressThread::stand_aside(Guard& guard) noexcept {
  sleeper_->unwatch_all();
  release(guard);
  do {
    sleeper_->pause(schedule_.check_after_ns());
    if (stop_.load(std::memory_order_acquire)) break;
    if (try_acquire(guard)) return;
  } while (!schedule_.found_lock_held());
  acquire_ahead(guard);
}

void ProgressThread::rest(Guard& guard) noexcept {
  ask_for_notice();
  release(guard);
  sleeper_->pause(-1);
  pause_after_wake(guard);
}

// After a sleep.
void ProgressThread::pause_after_wake(Guard& guard) noexcept {
  acquire(guard);
  const int64_t pause_ns = schedule_.woke(duty() == Duty::BackgroundWork && has_other_sleepers());
  if (pause_ns == 0) return;
  release(guard);
  sleeper_->pause(pause_ns);
  acquire(guard);
}

void ProgressThread::work(Guard& guard) noexcept {
  bool came = false;
  for (core::Progressor* endpoint : endpoints_) came = endpoint->advance() || came;
  schedule_.worked(came);
  sleeper_->drain();
  if (stop_.load(std::memory_order_acquire)) return;  // its notice may be gone
  if (sleeper_->arm(endpoints_)) {
    schedule_.falls_asleep();
    ask_for_notice();
    sleeper_->enter();
    release(guard);
    sleeper_->sleep(Sleeper::slice_ms);
    acquire(guard);
    (void)sleeper_->leave();
    sleeper_->disarm(endpoints_);
    release(guard);
    pause_after_wake(guard);
    return;
  }
  const int64_t pause_ns = schedule_.retry_after_ns();
  release(guard);
  if (pause_ns == 0) yield_processor();
  else sleeper_->pause(pause_ns);
  acquire(guard);
}

}  // namespace weft::os
