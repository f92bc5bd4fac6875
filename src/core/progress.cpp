// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Counting sleepers and bindings of endpoints. Must not know frames, links or system calls.
#include "core/progress.hpp"

#include <cstddef>

#include "base/assert.hpp"

namespace weft::core {

bool Progressor::begin_sleep() noexcept {
  if (arm()) {
    ++sleepers_;
    return true;
  }
  if (sleepers_ == 0) disarm();
  return false;
}

void Progressor::end_sleep() noexcept {
  WEFT_ASSERT(sleepers_ != 0);
  disarm();
  if (--sleepers_ == 0) return;
  // Others still sleep on this endpoint, and disarm() has silenced it. Arm it again for them; what came
  // meanwhile is taken here, and the queues that it goes to wake their sleepers themselves. A flood ends
  // the attempt: arm() has armed the link as far as it could, and slices bound what the others' sleeps miss.
  for (int attempt = 0; attempt < 16 && !arm(); ++attempt) progress();
}

void ProgressorList::add(Progressor& progressor) {
  for (size_t i = 0; i < list_.size(); ++i) {
    if (list_[i] == &progressor) {
      WEFT_ASSERT(bindings_[i] != 0);
      ++bindings_[i];
      return;
    }
  }
  list_.reserve(list_.size() + 1);
  publish();
  bindings_.push_back(1);
  list_.push_back(&progressor);
  publish();
}

bool ProgressorList::remove(Progressor& progressor) noexcept {
  for (size_t i = 0; i < list_.size(); ++i) {
    if (list_[i] != &progressor) continue;
    WEFT_ASSERT(bindings_[i] != 0);
    if (--bindings_[i] != 0) return false;
    list_.erase(list_.begin() + std::ptrdiff_t(i));
    bindings_.erase(bindings_.begin() + std::ptrdiff_t(i));
    publish();
    return true;
  }
  return false;
}

void ProgressorList::publish() noexcept {
  WEFT_ASSERT(list_.size() == bindings_.size());
  begin_ = list_.data();
  end_ = begin_ + list_.size();
  only_ = list_.size() == 1 ? list_.front() : nullptr;
}

void ProgressorList::progress_all() const noexcept {
  for (Progressor* const* p = begin_; p != end_; ++p) (*p)->poll();
}

}  // namespace weft::core
