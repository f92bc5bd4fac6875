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
  void consume_one() noexcept;                 // one notice, if there is one; the others stay
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

// sched_yield(2).
void yield_processor() noexcept;
// How often the calling thread lost its CPU while it could have run on, sched_yield(2) included (getrusage(2)).
uint64_t involuntary_switches() noexcept;
// The number of the CPU that the calling thread runs on; it may be another one at once.
unsigned current_cpu() noexcept;

}  // namespace weft::os
