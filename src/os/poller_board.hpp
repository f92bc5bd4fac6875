// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which threads of which processes make empty polls on which CPU: a page that the processes of one user on one host share (os/published_memory.hpp). A process
// joins when a yield of its CPU has taken long for the first time, so on a machine with CPUs to spare there is none. Must not know what they poll for.
#pragma once

#include <cstdint>

namespace weft::os {

// What one thread knows of the CPU that it polls on.
class PollerWatch {
 public:
  // The calling thread has made an empty poll at `now_ns` of the monotonic clock: others see it. True: another thread made one on this CPU during
  // the last 50 ms. False until this process has joined. Other processes may write anything: a wrong word costs a sched_yield(2).
  bool others_poll_here(uint64_t now_ns) noexcept;
  // The thread has yielded and another one kept the CPU for a slice. True: one that polls ran here since others_poll_here(). Otherwise a thread that
  // computes did, and what this one knew is forgotten.
  bool another_polled() noexcept;
  // Joins the page, once for a process. Any thread; reads /proc, and waits up to 50 ms for another process that joins.
  static void join() noexcept;

 private:
  unsigned cpu_ = ~0u;
  uint64_t other_us_ = 0;  // when another thread last made an empty poll on cpu_; 0: none did
};

}  // namespace weft::os
