// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Whether something was made in this process or inherited by fork(2). An inherited descriptor is shared with the parent: what is read from it, or
// changed in a poll set or a timer, is missing or different there. Must not know what it is about.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft::os {

// Counts the calls of fork(2) between the process that loaded the library and this one.
extern std::atomic<uint32_t> forks_behind;

class Origin {
 public:
  // A load and a comparison. A process that was made by clone(2) itself counts as its parent.
  bool is_here() const noexcept { return forks_ == forks_behind.load(std::memory_order_relaxed); }

 private:
  uint32_t forks_ = forks_behind.load(std::memory_order_relaxed);
};

}  // namespace weft::os
