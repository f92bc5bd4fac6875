// What a descriptor is watched for in a poll set (epoll(7)), where reading is not all; and a clock that makes a descriptor readable
// (timerfd_create(2)). Must not know what they are for.
#pragma once

#include <cstdint>

#include "base/result.hpp"
#include "os/fd.hpp"
#include "os/origin.hpp"
#include "os/poll_set.hpp"

namespace weft::os {

// Bits. Errors are always watched for.
enum Interest : uint32_t {
  watch_errors = 0,
  watch_reading = 1,
  watch_writing = 2,
  watch_hangup = 4,  // the other side sends nothing any more
};

// Adds the descriptor, or changes what it is watched for. False when the system refuses.
bool watch(const PollSet& set, const Fd& fd, uint32_t interest) noexcept;
void unwatch(const PollSet& set, const Fd& fd) noexcept;

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
