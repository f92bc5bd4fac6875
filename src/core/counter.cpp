// Thresholds of counters. Must not know endpoints' kinds or system calls.
#include "core/counter.hpp"

namespace weft::core {

void Counter::add_error(uint64_t n) noexcept {
  errors_.fetch_add(n, std::memory_order_seq_cst);
  ring_bell();
}

void Counter::set(uint64_t value) noexcept {
  value_.store(value, std::memory_order_seq_cst);
  if (value >= nearest_.load(std::memory_order_seq_cst)) fire();
}

void Counter::set_error(uint64_t value) noexcept {
  errors_.store(value, std::memory_order_seq_cst);
  ring_bell();
}

// Sorted by value, equal ones in the order of arrival. Under the mutex.
void Counter::insert(Threshold& threshold) noexcept {
  Threshold** place = &first_;
  while (*place != nullptr && (*place)->at <= threshold.at) place = &(*place)->next;
  threshold.next = *place;
  threshold.queued = true;
  *place = &threshold;
  nearest_.store(first_->at, std::memory_order_seq_cst);
}

// The order that makes it safe against add() without a lock: here the store of nearest_ is before the load
// of value_, there the addition is before the load of nearest_. All four are sequentially consistent (on
// x86 the addition is), so one of the two sides sees the other.
void Counter::when(Threshold& threshold) noexcept {
  {
    std::scoped_lock guard(mutex_);
    insert(threshold);
  }
  if (value_.load(std::memory_order_seq_cst) >= threshold.at) fire();
}

// Under the mutex.
bool Counter::unlink(Threshold& threshold) noexcept {
  for (Threshold** place = &first_; *place != nullptr; place = &(*place)->next) {
    if (*place != &threshold) continue;
    *place = threshold.next;
    threshold.queued = false;
    nearest_.store(first_ != nullptr ? first_->at : UINT64_MAX, std::memory_order_seq_cst);
    return true;
  }
  return false;
}

bool Counter::cancel(Threshold& threshold) noexcept {
  std::scoped_lock guard(mutex_);
  return unlink(threshold);
}

// One at a time, so that a callback may cancel or queue others; outside the mutex, so that it may use the
// counter.
Threshold* Counter::take_reached() noexcept {
  std::scoped_lock guard(mutex_);
  Threshold* threshold = first_;
  if (threshold == nullptr || value_.load(std::memory_order_seq_cst) < threshold->at) return nullptr;
  first_ = threshold->next;
  threshold->queued = false;
  nearest_.store(first_ != nullptr ? first_->at : UINT64_MAX, std::memory_order_seq_cst);
  return threshold;
}

void Counter::fire() noexcept {
  while (Threshold* threshold = take_reached()) threshold->reached();
}

void Counter::arm(uint64_t at) noexcept {
  if (signal_ == nullptr) return;
  armed_.store(true, std::memory_order_seq_cst);
  {
    std::scoped_lock guard(mutex_);
    bell_.counter = this;
    if (bell_.queued) {
      if (bell_.at <= at) return;
      unlink(bell_);
    }
    bell_.at = at;
    insert(bell_);
  }
  if (value_.load(std::memory_order_seq_cst) >= at) fire();
}

void Counter::disarm() noexcept {
  armed_.store(false, std::memory_order_seq_cst);
  cancel(bell_);
}

void Counter::Bell::reached() noexcept { counter->ring_bell(); }

void Counter::ring_bell() noexcept {
  if (armed_.exchange(false, std::memory_order_seq_cst)) signal_->notify();
}

}  // namespace weft::core
