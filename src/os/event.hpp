// Wake-up descriptors, random bytes and the clock of timeouts: thin owners over eventfd(2), epoll(7),
// getrandom(2). Must not know what they wake.
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

// A set of descriptors that is one descriptor itself: readable when any of them is. An inherited one is not changed.
class Epoll {
 public:
  static Result<Epoll> create();
  // 0 or a negative errno. Adding what is there is not an error.
  int add(int fd) noexcept;
  void remove(int fd) noexcept;
  // True: something is readable. timeout_ms < 0: no limit. A signal handler's interruption counts as nothing.
  bool wait(int timeout_ms) noexcept;
  int fd() const noexcept { return fd_.get(); }

 private:
  explicit Epoll(Fd fd) noexcept : fd_(static_cast<Fd&&>(fd)) {}
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
