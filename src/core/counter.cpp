// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Thresholds of counters. Must not know endpoints' kinds or system calls.
#include "core/counter.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace weft::core {

void Counter::add_error(uint64_t n) noexcept {
  errors_.fetch_add(n, std::memory_order_seq_cst);
  if (errors_matter_.load(std::memory_order_seq_cst)) fire();
  notify_signal();
}

void Counter::set(uint64_t value) noexcept {
  value_.store(value, std::memory_order_seq_cst);
  if (value >= nearest_.load(std::memory_order_seq_cst)) fire();
}

void Counter::set_error(uint64_t value) noexcept {
  errors_.store(value, std::memory_order_seq_cst);
  if (errors_matter_.load(std::memory_order_seq_cst)) fire();
  notify_signal();
}

// Says what add() and add_error() have to look after. Under the mutex.
void Counter::publish() noexcept {
  uint64_t nearest = plain_.first != nullptr ? plain_.first->at : UINT64_MAX;
  errors_matter_.store(with_errors_.first != nullptr, std::memory_order_seq_cst);
  if (with_errors_.first != nullptr) {
    const uint64_t at = with_errors_.first->at;
    nearest = std::min(nearest, at - std::min(at, errors_.load(std::memory_order_seq_cst)));
  }
  nearest_.store(nearest, std::memory_order_seq_cst);
}

// Sorted by value, equal ones in the order of arrival. Under the mutex.
void Counter::insert(Threshold& threshold) noexcept {
  WEFT_ASSERT(!threshold.queued);
  Queue& queue = queue_of(threshold);
  Threshold** place = &queue.first;
  if (queue.last != nullptr && queue.last->at <= threshold.at) place = &queue.last->next;
  while (*place != nullptr && (*place)->at <= threshold.at) place = &(*place)->next;
  threshold.next = *place;
  threshold.queued = true;
  *place = &threshold;
  if (threshold.next == nullptr) queue.last = &threshold;
  WEFT_ASSERT(queue.first != nullptr && queue.last != nullptr && queue.last->next == nullptr);
  WEFT_ASSERT(threshold.next == nullptr || threshold.next->at > threshold.at);
  publish();
}

// The order that makes it safe against add() without a lock: here the store of nearest_ is before the load
// of value_, there the addition is before the load of nearest_. All four are sequentially consistent, so one
// of the two sides sees the other. Errors and errors_matter_ work the same way.
void Counter::when(Threshold& threshold) noexcept {
  {
    std::scoped_lock guard(mutex_);
    insert(threshold);
  }
  if (value_.load(std::memory_order_seq_cst) >= nearest_.load(std::memory_order_seq_cst)) fire();
}

// Under the mutex.
bool Counter::unlink(Threshold& threshold) noexcept {
  Queue& queue = queue_of(threshold);
  Threshold* before = nullptr;
  for (Threshold* each = queue.first; each != nullptr; before = each, each = each->next) {
    if (each != &threshold) continue;
    WEFT_ASSERT(threshold.queued);
    (before == nullptr ? queue.first : before->next) = threshold.next;
    if (queue.last == &threshold) queue.last = before;
    threshold.queued = false;
    publish();
    return true;
  }
  WEFT_ASSERT(!threshold.queued);
  return false;
}

bool Counter::cancel(Threshold& threshold) noexcept {
  std::scoped_lock guard(mutex_);
  return unlink(threshold);
}

// One at a time, so that a callback may cancel or queue others; outside the mutex, so that it may use the
// counter. The number of errors may have changed since nearest_ was set, so it is set before value_ is read.
Threshold* Counter::pop_reached() noexcept {
  std::scoped_lock guard(mutex_);
  publish();
  const uint64_t value = value_.load(std::memory_order_seq_cst);
  const uint64_t sum = value + errors_.load(std::memory_order_seq_cst);
  Threshold* by_value = plain_.first;
  Threshold* by_sum = with_errors_.first;
  if (by_value != nullptr && value < by_value->at) by_value = nullptr;
  if (by_sum != nullptr && sum < by_sum->at) by_sum = nullptr;
  Threshold* threshold = by_value;
  if (by_sum != nullptr && (by_value == nullptr || by_sum->at < by_value->at)) threshold = by_sum;
  if (threshold == nullptr) return nullptr;
  WEFT_ASSERT(threshold->queued);
  Queue& queue = queue_of(*threshold);
  queue.first = threshold->next;
  if (queue.first == nullptr) queue.last = nullptr;
  threshold->queued = false;
  publish();
  return threshold;
}

void Counter::fire() noexcept {
  while (Threshold* threshold = pop_reached()) threshold->reached();
}

void Counter::arm(uint64_t at) noexcept {
  if (signal_ == nullptr) return;
  armed_.store(true, std::memory_order_seq_cst);
  {
    std::scoped_lock guard(mutex_);
    signal_threshold_.counter = this;
    if (signal_threshold_.queued) {
      if (signal_threshold_.at <= at) return;
      unlink(signal_threshold_);
    }
    signal_threshold_.at = at;
    insert(signal_threshold_);
  }
  if (value_.load(std::memory_order_seq_cst) >= at) fire();
}

void Counter::disarm() noexcept {
  armed_.store(false, std::memory_order_seq_cst);
  cancel(signal_threshold_);
}

void Counter::SignalThreshold::reached() noexcept { counter->notify_signal(); }

void Counter::notify_signal() noexcept {
  if (armed_.exchange(false, std::memory_order_seq_cst)) signal_->notify();
}

}  // namespace weft::core
