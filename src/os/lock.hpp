// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The domain's lock: one compare-and-swap to take, one plain store to give back. Must not know what it
// protects.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/assert.hpp"

namespace weft::os {

// Not recursive, not fair, for threads of one process. Contended, it spins for a moment and then sleeps on
// a futex.
class Lock {
 public:
  Lock() noexcept;
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  void lock() noexcept {
    uint32_t free = 0;
    if (!held_.compare_exchange_strong(free, 1, std::memory_order_acquire, std::memory_order_relaxed))
        [[unlikely]]
      lock_slow();
  }
  bool try_lock() noexcept {
    uint32_t free = 0;
    return held_.compare_exchange_strong(free, 1, std::memory_order_acquire, std::memory_order_relaxed);
  }
  // lock() for a thread that would starve behind threads that release the lock and take it again at once: unlock() lets it go first, and waits up
  // to yield_to_ahead_ns for that.
  void lock_ahead() noexcept {
    if (!try_lock()) wait(true);
  }
  // The load of waiters_ may pass the store of held_. That is safe: a sleeper raises waiters_, forces a
  // barrier on every running thread (membarrier(2)), and only then looks at held_ for the last time. Where
  // the kernel has no such barrier it sleeps in short slices.
  void unlock() noexcept {
    WEFT_ASSERT(held_.load(std::memory_order_relaxed) == 1);
    held_.store(0, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (waiters_.load(std::memory_order_relaxed) != 0) [[unlikely]]
      wake();
  }

 private:
  static constexpr uint64_t yield_to_ahead_ns = 1'000'000;

  void lock_slow() noexcept;
  void wait(bool ahead) noexcept;
  void wake() noexcept;
  void yield_to_ahead() noexcept;

  std::atomic<uint32_t> held_{0};
  std::atomic<uint32_t> waiters_{0};
  std::atomic<bool> ahead_{false};  // a thread waits in lock_ahead()
};

}  // namespace weft::os
