// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sleeping and waking. Must not know which queue it is for.
#include "os/sleeper.hpp"

#include <poll.h>
#include <sched.h>

#include <cerrno>
#include <new>
#include <utility>

#include "base/assert.hpp"

namespace weft::os {

Result<std::unique_ptr<Sleeper>> Sleeper::create(Kind kind) {
  Result<Event> event = Event::create();
  if (!event) return event.error();
  Result<PollSet> set = PollSet::create();
  if (!set) return set.error();
  if (!set->add(event->fd())) return Error{errno, "epoll_ctl refuses an eventfd"};
  return std::unique_ptr<Sleeper>(new Sleeper(kind, std::move(*event), std::move(*set)));
}

Sleeper::Sleeper(Kind kind, Event event, PollSet set) noexcept
    : kind_(kind), event_(std::move(event)), poll_set_(std::move(set)) {
  pthread_mutex_init(&mutex_, nullptr);
  pthread_cond_init(&cond_, nullptr);
}

Sleeper::~Sleeper() {
  pthread_cond_destroy(&cond_);
  pthread_mutex_destroy(&mutex_);
}

void Sleeper::notify() noexcept {
  if (kind_ == Kind::yield) return;
  // One notice for each sleeper; each takes its own when it wakes, so that no thread silences another's.
  const unsigned sleepers = sleeping_.load(std::memory_order_relaxed);
  event_.notify(sleepers > 1 ? sleepers : 1);
  if (kind_ == Kind::mutex_cond) ring_cond();
}

// The caller may hold the domain lock, and the program may hold the mutex while it waits for that lock in
// fi_trywait: blocking here could be for ever. So it tries for a moment. A program that passed fi_trywait
// releases the mutex by pthread_cond_wait at once; one that did not will see the event in fi_trywait and
// needs no signal.
void Sleeper::ring_cond() noexcept {
  bool locked = pthread_mutex_trylock(&mutex_) == 0;
  for (const int64_t end = now_ms() + 3; !locked && now_ms() < end;) {
    sched_yield();
    locked = pthread_mutex_trylock(&mutex_) == 0;
  }
  pthread_cond_broadcast(&cond_);
  if (locked) pthread_mutex_unlock(&mutex_);
}

void Sleeper::interrupt() noexcept {
  interrupted_.store(true, std::memory_order_release);
  notify();
}

bool Sleeper::consume_interrupt() noexcept {
  return interrupted_.load(std::memory_order_relaxed) &&
         interrupted_.exchange(false, std::memory_order_acquire);
}

// Under registrations_mutex_. The endpoint makes its descriptor when it is asked for the first time, so a
// program that never sleeps has none.
Sleeper::Registration* Sleeper::registration(core::Progressor& progressor) noexcept {
  for (Registration& known : registrations_) {
    if (known.progressor == &progressor) return &known;
  }
  try {
    registrations_.push_back(Registration{&progressor, -1, false, false});
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  Registration& added = registrations_.back();
  return &added;
}

bool Sleeper::arm(const core::ProgressorList& list) noexcept {
  if (!origin_.is_here()) return false;  // a forked child has nothing that wakes it
  std::scoped_lock guard(registrations_mutex_);
  bool all = true;
  for (core::Progressor* progressor : list) {
    Registration* entry = registration(*progressor);
    if (entry == nullptr) return false;
    if (entry->armed) progressor->end_sleep();
    if (entry->fd < 0) entry->fd = progressor->wait_fd();
    if (entry->fd >= 0 && !entry->watched) entry->watched = poll_set_.watch(entry->fd);
    entry->armed = entry->watched && progressor->begin_sleep();
    WEFT_ASSERT(!entry->armed || entry->fd >= 0);
    all = all && entry->armed;
  }
  // Nobody will sleep now, so peers need not ring.
  if (!all && sleeping_.load(std::memory_order_relaxed) == 0) disarm_all(list);
  return all;
}

void Sleeper::disarm(const core::ProgressorList& list) noexcept {
  std::scoped_lock guard(registrations_mutex_);
  disarm_all(list);
}

// Under registrations_mutex_.
void Sleeper::disarm_all(const core::ProgressorList& list) noexcept {
  for (core::Progressor* progressor : list) {
    for (Registration& entry : registrations_) {
      if (entry.progressor == progressor && std::exchange(entry.armed, false) && origin_.is_here())
        progressor->end_sleep();
    }
  }
}

void Sleeper::unwatch_all() noexcept {
  std::scoped_lock guard(registrations_mutex_);
  for (Registration& entry : registrations_)
    if (std::exchange(entry.watched, false)) poll_set_.remove(entry.fd);
}

void Sleeper::forget(core::Progressor& progressor) noexcept {
  std::scoped_lock guard(registrations_mutex_);
  for (size_t i = 0; i < registrations_.size(); ++i) {
    Registration& entry = registrations_[i];
    if (entry.progressor != &progressor) continue;
    if (entry.armed && origin_.is_here()) progressor.end_sleep();
    if (entry.watched) poll_set_.remove(entry.fd);
    registrations_.erase(registrations_.begin() + std::ptrdiff_t(i));
    return;
  }
}

void Sleeper::drain() noexcept {
  if (sleeping_.load(std::memory_order_relaxed) == 0) event_.drain();
}

void Sleeper::sleep(int timeout_ms) noexcept {
  if (kind_ == Kind::yield) {
    yield_processor();
    return;
  }
  if (poll_set_.wait(timeout_ms < 0 || timeout_ms > slice_ms ? slice_ms : timeout_ms)) event_.consume_one();
}

void Sleeper::pause(int64_t timeout_ns) noexcept {
  pollfd entry{event_.fd(), POLLIN, 0};
  const timespec limit{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  if (::ppoll(&entry, 1, timeout_ns < 0 ? nullptr : &limit, nullptr) > 0) event_.consume_one();
}

}  // namespace weft::os
