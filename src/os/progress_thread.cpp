// The loop of a progress thread; fork(2) while one runs.
#include "os/progress_thread.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>
#include <vector>

#include "base/lasting.hpp"
#include "os/clock.hpp"

namespace weft::os {
namespace {

constexpr unsigned yields_max = 16;  // then the thread sleeps between two attempts
constexpr int64_t retry_ns_min = 20'000;
constexpr int64_t retry_ns_max = 1'000'000;
constexpr uint64_t fork_patience_ns = 20'000'000;

}  // namespace

// fork(2) copies the locks as they are. None may be held by a progress thread then: the child has no such thread to give it back.
struct ProgressThread::Registry {
  std::mutex mutex;
  std::vector<ProgressThread*> threads;

  static Registry& get() {
    static Registry& registry = make_lasting<Registry>();
    return registry;
  }
  static void before_fork() noexcept {
    Registry& registry = get();
    registry.mutex.lock();
    const uint64_t until = monotonic_ns() + fork_patience_ns;
    for (ProgressThread* thread : registry.threads) {
      // The thread that forks may hold the lock itself, in a signal handler.
      while (!(thread->held_by_fork_ = thread->lock_.try_lock()) && monotonic_ns() < until) yield_processor();
    }
  }
  static void after_fork() noexcept {
    Registry& registry = get();
    for (ProgressThread* thread : registry.threads)
      if (std::exchange(thread->held_by_fork_, false)) thread->lock_.unlock();
    registry.mutex.unlock();
  }
  [[maybe_unused]] static const int registered;
};
const int ProgressThread::Registry::registered = ::pthread_atfork(before_fork, after_fork, after_fork);

ProgressThread::ProgressThread(Lock& lock, Duty duty) : lock_(lock), duty_(duty) {
  Registry& registry = Registry::get();
  std::scoped_lock guard(registry.mutex);
  registry.threads.push_back(this);
}

ProgressThread::~ProgressThread() {
  stop_.store(true, std::memory_order_release);
  if (thread_.running()) sleeper_->notify();
  thread_.join();
  Registry& registry = Registry::get();
  std::scoped_lock guard(registry.mutex);
  std::erase(registry.threads, this);
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
  if (duty_ == Duty::BackgroundWork) {
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
  // In a forked child, or without a thread, the program's own calls are all there is.
  if (!origin_.is_here() || !start()) return;
  sleeper_->notify();
}

bool ProgressThread::has_background_work() const noexcept {
  return std::any_of(endpoints_.begin(), endpoints_.end(),
                     [](core::Progressor* endpoint) { return endpoint->has_background_work(); });
}

bool ProgressThread::has_other_sleepers() const noexcept {
  return std::any_of(endpoints_.begin(), endpoints_.end(),
                     [](const core::Progressor* endpoint) { return endpoint->sleepers() != 0; });
}

uint64_t ProgressThread::count_polls() const noexcept {
  uint64_t polls = 0;
  for (const core::Progressor* endpoint : endpoints_) polls += endpoint->polls();
  return polls;
}

void ProgressThread::run() noexcept {
  Guard guard(lock_);
  worked_at_ns_ = monotonic_ns();
  while (!stop_.load(std::memory_order_acquire)) {
    const uint64_t polls = count_polls();
    const bool polled = std::exchange(polls_seen_, polls) != polls;
    if (duty_ == Duty::BackgroundWork && !has_background_work()) {
      if (monotonic_ns() - worked_at_ns_ >= rest_after_ns) rest(guard);
      else stand_aside(guard);
    } else {
      worked_at_ns_ = duty_ == Duty::BackgroundWork ? monotonic_ns() : 0;
      if (polled) stand_aside(guard);
      else work(guard);
    }
  }
}

void ProgressThread::stand_aside(Guard& guard) noexcept {
  guard.unlock();
  do {
    sleeper_->pause(look_ns_);
    look_ns_ = std::min(2 * look_ns_, look_ns_max);
    // Whoever holds the lock is at work.
  } while (!stop_.load(std::memory_order_acquire) && !guard.try_lock());
  if (!guard.owns_lock()) guard.lock();
}

void ProgressThread::rest(Guard& guard) noexcept {
  for (core::Progressor* endpoint : endpoints_) endpoint->notify_background_work(this);
  guard.unlock();
  sleeper_->pause(-1);
  guard.lock();
  worked_at_ns_ = monotonic_ns();
  look_ns_ = look_ns_min;
}

void ProgressThread::work(Guard& guard) noexcept {
  look_ns_ = look_ns_min;
  for (core::Progressor* endpoint : endpoints_)
    if (duty_ == Duty::Everything || endpoint->has_background_work()) endpoint->progress();
  sleeper_->drain();
  if (stop_.load(std::memory_order_acquire)) return;  // its notice may be gone
  if (sleeper_->arm(endpoints_)) {
    unarmed_ = 0;
    sleeper_->enter();
    guard.unlock();
    sleeper_->sleep(Sleeper::slice_ms);
    guard.lock();
    (void)sleeper_->leave();
    sleeper_->disarm(endpoints_);
    if (!has_other_sleepers()) return;
    guard.unlock();
    sleeper_->pause(yield_ns);
    guard.lock();
    return;
  }
  // There is work at once, or a peer has no room for what waits.
  guard.unlock();
  if (++unarmed_ <= yields_max) yield_processor();
  else sleeper_->pause(std::min(retry_ns_min << std::min(unarmed_ - yields_max, 8U), retry_ns_max));
  guard.lock();
}

}  // namespace weft::os
