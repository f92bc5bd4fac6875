// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A file descriptor that is readable as often as it was posted: an eventfd(2) of EFD_SEMAPHORE. Programs poll it, set O_NONBLOCK, and read it
// by ibv_get_cq_event(3) and ibv_get_async_event(3). Must not know what it counts.
#pragma once

#include <cstdint>

#include "base/result.hpp"
#include "os/fd.hpp"

namespace weft::verbs {

class Semaphore {
 public:
  static Result<Semaphore> create();
  int fd() const noexcept { return fd_.get(); }
  // Any thread; never blocks.
  void post(uint64_t times = 1) noexcept;
  // Takes one; sleeps for it unless the program has set O_NONBLOCK. False and errno: EAGAIN, EINTR.
  bool wait() noexcept;
  // Takes up to `times` without sleeping, whatever the program has set.
  void acquire(uint64_t times) noexcept;

 private:
  explicit Semaphore(os::Fd fd) noexcept : fd_(static_cast<os::Fd&&>(fd)) {}
  os::Fd fd_;
};

}  // namespace weft::verbs
