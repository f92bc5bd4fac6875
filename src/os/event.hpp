// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Wake-up descriptors, random bytes and the clock of timeouts: thin owners over eventfd(2) and getrandom(2). Must not know what they wake.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.hpp"
#include "os/fd.hpp"
#include "os/origin.hpp"

namespace weft::os {

// An eventfd: readable while there are notices that nobody took. Of an inherited one nothing is taken (Origin).
class Event {
 public:
  static Result<Event> create();
  void notify(uint64_t notices = 1) noexcept;  // any thread
  void take_one() noexcept;                    // one notice, if there is one; the others stay
  void drain() noexcept;                       // all of them
  int fd() const noexcept { return fd_.get(); }

 private:
  explicit Event(Fd fd) noexcept : fd_(static_cast<Fd&&>(fd)) {}
  Fd fd_;
  Origin origin_;
};

// False: the system gives none now.
bool random_bytes(void* bytes, size_t len) noexcept;

// Milliseconds of a clock that never goes back.
int64_t now_ms() noexcept;

// Lets another thread run. True: one did, as far as time tells.
bool yield_processor() noexcept;

}  // namespace weft::os
