// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The rare ways of a completion queue: errors, a full ring, sleepers. Must not know system calls, locks or
// endpoints' kinds.
#include "core/completion_queue.hpp"

#include <bit>
#include <new>

#include "base/assert.hpp"

namespace weft::core {

CompletionQueue::CompletionQueue(size_t size) {
  if (size == 0) size = size_default;
  if (size > size_max) size = size_max;
  const size_t slots = std::bit_ceil(size);
  storage_ = std::make_unique<Slot[]>(slots);
  slots_ = storage_.get();
  mask_ = uint32_t(slots - 1);
  limit_ = uint32_t(slots);
}

// From now on all that comes goes to held_, so that the order stays; hold_no_more() ends it when held_ is
// empty again.
// False: lost, and so is all that comes after it.
bool CompletionQueue::hold(const CompletionError& entry) noexcept {
  limit_ = 0;
  state_.holding = true;
  polls_left_ = 1;  // the poll that is under way looks at what is held
  WEFT_ASSERT(held_.size() >= errors_);
  if (overrun_) return false;
  try {
    held_.push_back(entry);
  } catch (const std::bad_alloc&) {
    overrun_ = true;
  }
  return !overrun_;
}

void CompletionQueue::push_slow(const Completion& completion) noexcept {
  CompletionError entry;
  entry.base = completion;
  (void)hold(entry);
}

void CompletionQueue::push_error(const CompletionError& error) noexcept {
  if (hold(error)) ++errors_;
  if (state_.armed) notify_signal();
}

void CompletionQueue::hold_no_more() noexcept {
  WEFT_ASSERT(held_.empty() && errors_ == 0 && !overrun_);
  limit_ = mask_ + 1;
  state_.holding = false;
  polls_left_ = polls_max_;
}

// The ring is empty, and something is held or was. A negative error: it is next. 0: completions went to the ring, or nothing is held any more.
int CompletionQueue::release_held() noexcept {
  WEFT_ASSERT(head_ == tail_ && state_.holding && limit_ == 0);
  if (held_.empty()) {
    if (overrun_) return -FI_EOVERRUN;
    hold_no_more();
    return 0;
  }
  if (held_.front().err != 0) {
    // A program that posts, cancels and reads in turns finds an error at every read; its endpoints make progress all the same.
    WEFT_ASSERT(errors_ != 0);
    progressors_.drive();
    return -FI_EAVAIL;
  }
  head_ = 0;
  tail_ = 0;
  while (!held_.empty() && held_.front().err == 0 && tail_ <= mask_) {
    slots_[tail_].completion = held_.front().base;
    tail_ = tail_ + 1;
    held_.pop_front();
  }
  if (held_.empty() && !overrun_) hold_no_more();
  return 0;
}

// 0: the ring has something now, perhaps since the lock was let go.
int CompletionQueue::check_again() noexcept {
  if (state_.holding) {
    polls_left_ = 1;
    if (head_ == tail_) {
      if (const int status = release_held(); status != 0) return status;
    }
  }
  return head_ == tail_ ? -FI_EAGAIN : 0;
}

int CompletionQueue::read_error(CompletionError& out) noexcept {
  if (head_ != tail_ || held_.empty() || held_.front().err == 0) {
    if (is_due()) progressors_.drive();
    return -FI_EAGAIN;
  }
  out = held_.front();
  held_.pop_front();
  WEFT_ASSERT(errors_ != 0);
  --errors_;
  if (held_.empty() && !overrun_) hold_no_more();
  progressors_.drive();  // a queue that the error had filled takes frames again
  return 0;
}

void CompletionQueue::notify_signal() noexcept {
  WEFT_ASSERT(state_.armed && signal_ != nullptr);
  state_.armed = false;
  signal_->notify();
}

}  // namespace weft::core
