// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The slow side of the domain's lock: spinning, sleeping, waking. Must not know what it protects.
#include "os/lock.hpp"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdint>
#include <ctime>

#include "arch/cpu.hpp"
#include "base/assert.hpp"
#include "os/clock.hpp"

namespace weft::os {

namespace {

constexpr int spins = 200;
constexpr long slice_ns_with_barrier = 50'000'000;
constexpr long slice_ns_without_barrier = 1'000'000;

bool register_barrier() noexcept {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

bool has_barrier() noexcept {
  static const bool registered = register_barrier();
  return registered;
}

void barrier_on_all_threads() noexcept { syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0); }

uint32_t* word(std::atomic<uint32_t>& value) noexcept { return reinterpret_cast<uint32_t*>(&value); }

}  // namespace

// Registered when the first lock is made: a process with many threads pays for it once, not in its first
// contention.
Lock::Lock() noexcept { (void)has_barrier(); }

void Lock::lock_slow() noexcept {
  for (int i = 0; i < spins; ++i) {
    if (held_.load(std::memory_order_relaxed) == 0 && try_lock()) return;
    arch::pause();
  }
  wait(false);
}

void Lock::wait(bool ahead) noexcept {
  const bool barrier = has_barrier();
  const timespec slice{0, barrier ? slice_ns_with_barrier : slice_ns_without_barrier};
  if (ahead) ahead_.store(true, std::memory_order_relaxed);
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  if (barrier) barrier_on_all_threads();
  // From here on every unlock() sees the waiter. The kernel compares held_ with 1 again before it sleeps.
  while (!try_lock()) {
    syscall(SYS_futex, word(held_), FUTEX_WAIT_PRIVATE, 1, &slice, nullptr, 0);
    if (ahead) ahead_.store(true, std::memory_order_relaxed);  // yield_to_ahead() may have given up
  }
  if (ahead) ahead_.store(false, std::memory_order_relaxed);
  WEFT_ASSERT(waiters_.load(std::memory_order_relaxed) != 0);
  waiters_.fetch_sub(1, std::memory_order_relaxed);
}

void Lock::wake() noexcept {
  const bool ahead = ahead_.load(std::memory_order_relaxed);
  syscall(SYS_futex, word(held_), FUTEX_WAKE_PRIVATE, ahead ? INT_MAX : 1, nullptr, nullptr, 0);
  if (ahead) yield_to_ahead();
}

// The time is bounded: the other thread may have a lower priority than this one and get no CPU while this one yields.
void Lock::yield_to_ahead() noexcept {
  const uint64_t until = monotonic_ns() + yield_to_ahead_ns;
  do {
    ::sched_yield();
  } while (ahead_.load(std::memory_order_relaxed) && monotonic_ns() < until);
  ahead_.store(false, std::memory_order_relaxed);
}

}  // namespace weft::os
