// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The timers of queue pairs: a binary heap by due time, each QP in it at most once. Room for all QPs is made with them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "proto/roce/queue_pair.hpp"

namespace weft::proto::roce {

class Timers {
 public:
  void reserve(size_t count) {
    if (count > heap_.size()) heap_.resize(std::max(count, 2 * heap_.size()));
  }
  uint64_t next_due() const noexcept { return count_ == 0 ? UINT64_MAX : heap_[0]->due; }
  QueuePair* front() const noexcept {
    WEFT_ASSERT(count_ != 0);
    return heap_[0];
  }

  // UINT64_MAX takes it out.
  void set(QueuePair& qp, uint64_t due) noexcept {
    if (qp.due == due) return;
    qp.due = due;
    if (qp.timer_index == SIZE_MAX) {
      WEFT_ASSERT(count_ < heap_.size());
      heap_[count_] = &qp;
      qp.timer_index = count_++;
    }
    WEFT_ASSERT(qp.timer_index < count_ && heap_[qp.timer_index] == &qp);
    size_t at = up(qp.timer_index);
    at = down(at);
    if (due != UINT64_MAX) return;
    WEFT_ASSERT(heap_[at] == &qp);
    // The last one takes its place.
    QueuePair* last = heap_[--count_];
    qp.timer_index = SIZE_MAX;
    if (last == &qp) return;
    heap_[at] = last;
    last->timer_index = at;
    down(up(at));
  }

 private:
  void exchange(size_t a, size_t b) noexcept {
    std::swap(heap_[a], heap_[b]);
    heap_[a]->timer_index = a;
    heap_[b]->timer_index = b;
  }
  size_t up(size_t at) noexcept {
    for (; at > 0 && heap_[at]->due < heap_[(at - 1) / 2]->due; at = (at - 1) / 2) exchange(at, (at - 1) / 2);
    return at;
  }
  size_t down(size_t at) noexcept {
    for (;;) {
      size_t least = at;
      for (size_t child = 2 * at + 1; child <= 2 * at + 2; ++child)
        if (child < count_ && heap_[child]->due < heap_[least]->due) least = child;
      if (least == at) return at;
      exchange(at, least);
      at = least;
    }
  }

  std::vector<QueuePair*> heap_;  // its first count_ places
  size_t count_ = 0;
};

}  // namespace weft::proto::roce
