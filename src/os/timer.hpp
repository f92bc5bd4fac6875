// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A clock that makes a descriptor readable (timerfd_create(2)). Must not know what it is for.
#pragma once

#include <cstdint>

#include "base/result.hpp"
#include "os/fd.hpp"
#include "os/origin.hpp"

namespace weft::os {

// Readable when its time has come, until it is set again. An inherited one is not set.
class Timer {
 public:
  static Result<Timer> create();
  Timer() = default;
  void set(uint64_t in_ns) noexcept;  // 0: never
  const Fd& fd() const noexcept { return fd_; }
  void close() noexcept { fd_.reset(); }

 private:
  explicit Timer(Fd fd) noexcept : fd_(static_cast<Fd&&>(fd)) {}
  Fd fd_;
  Origin origin_;
};

}  // namespace weft::os
