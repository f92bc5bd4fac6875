// The rare ways of a completion queue: errors, a full ring, sleepers. Must not know system calls, locks or
// endpoints' kinds.
#include "core/completion_queue.hpp"

#include <bit>
#include <new>

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

// From now on all that comes goes to held_, so that the order stays; refill_slow() ends it when held_ is
// empty again.
// False: lost, and so is all that comes after it.
bool CompletionQueue::hold(const CompletionError& entry) noexcept {
  limit_ = 0;
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
  if (armed_) ring_bell();
}

// The ring is empty and something is held: the error that is next, or completions that go to the ring now.
int CompletionQueue::refill_slow() noexcept {
  if (held_.empty()) {
    if (overrun_) return -FI_EOVERRUN;
    limit_ = mask_ + 1;
    return refill<AnyEndpoint>();
  }
  if (held_.front().err != 0) return -FI_EAVAIL;
  head_ = 0;
  tail_ = 0;
  while (!held_.empty() && held_.front().err == 0 && tail_ <= mask_) {
    slots_[tail_].completion = held_.front().base;
    tail_ = tail_ + 1;
    held_.pop_front();
  }
  if (held_.empty() && !overrun_) limit_ = mask_ + 1;
  return 0;
}

int CompletionQueue::read_error(CompletionError& out) noexcept {
  if (head_ != tail_ || held_.empty() || held_.front().err == 0) return -FI_EAGAIN;
  out = held_.front();
  held_.pop_front();
  --errors_;
  if (held_.empty() && !overrun_) limit_ = mask_ + 1;
  return 0;
}

void CompletionQueue::ring_bell() noexcept {
  armed_ = false;
  signal_->notify();
}

}  // namespace weft::core
