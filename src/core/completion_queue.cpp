// The rare ways of a completion queue: errors, a full ring, sleepers. Must not know system calls, locks or
// endpoints' kinds.
#include "core/completion_queue.hpp"

#include <bit>

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
void CompletionQueue::hold(const CompletionError& entry) noexcept {
  limit_ = 0;
  held_.push_back(entry);
}

void CompletionQueue::push_slow(const Completion& completion) noexcept {
  CompletionError entry;
  entry.base = completion;
  hold(entry);
}

void CompletionQueue::push_error(const CompletionError& error) noexcept {
  hold(error);
  ++errors_;
  if (armed_) ring_bell();
}

// The ring is empty and something is held: the error that is next, or completions that go to the ring now.
int CompletionQueue::refill_slow() noexcept {
  if (held_.empty()) {
    limit_ = mask_ + 1;
    return refill();
  }
  if (held_.front().err != 0) return -FI_EAVAIL;
  head_ = 0;
  tail_ = 0;
  while (!held_.empty() && held_.front().err == 0 && tail_ <= mask_) {
    slots_[tail_].completion = held_.front().base;
    tail_ = tail_ + 1;
    held_.pop_front();
  }
  if (held_.empty()) limit_ = mask_ + 1;
  return 0;
}

int CompletionQueue::read_error(CompletionError& out) noexcept {
  if (head_ != tail_ || held_.empty() || held_.front().err == 0) return -FI_EAGAIN;
  out = held_.front();
  held_.pop_front();
  --errors_;
  if (held_.empty()) limit_ = mask_ + 1;
  return 0;
}

void CompletionQueue::ring_bell() noexcept {
  armed_ = false;
  signal_->notify();
}

}  // namespace weft::core
