// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A set of descriptors to wait for (epoll(7)). Must not know what they are.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.hpp"
#include "os/fd.hpp"
#include "os/origin.hpp"

namespace weft::os {

// What a descriptor is watched for. Bits; errors are always watched for.
enum Interest : uint32_t {
  watch_errors = 0,
  watch_reading = 1,
  watch_writing = 2,
  watch_both = watch_reading | watch_writing,
  watch_hangup = 4,  // the other side sends nothing any more
};

// The set is a descriptor itself: readable when any of its descriptors is ready. Each has a pointer, the tag, that ready() gives back. An inherited
// set (Origin) is not changed, and ready() finds nothing in it. Calls that return false leave the reason in errno.
class PollSet : public Fd {
 public:
  static Result<PollSet> create();
  PollSet() = default;
  bool is_here() const noexcept { return origin_.is_here(); }

  // False for a descriptor that is in the set.
  bool add(int fd, void* tag = nullptr, uint32_t interest = watch_reading) noexcept;
  // Only for a descriptor that is in the set.
  bool change(int fd, void* tag, uint32_t interest) noexcept;
  // Changes the descriptor, or adds it.
  bool watch(int fd, uint32_t interest = watch_reading, void* tag = nullptr) noexcept;
  // Nothing happens to a descriptor that is not in the set.
  void remove(int fd) noexcept;

  // The tags of what is ready now, without waiting. Returns how many were written.
  size_t ready(std::span<void*> tags) noexcept;
  // True: something is ready. timeout_ms < 0: no limit. A signal handler's interruption counts as nothing. Waits in an inherited set, too.
  bool wait(int timeout_ms) noexcept;

 private:
  explicit PollSet(int fd) noexcept : Fd(fd) {}
  bool control(int operation, int fd, void* tag, uint32_t interest) noexcept;
  Origin origin_;
};

// The other side of this stream sends nothing any more, whatever is still unread; or the stream has failed.
bool is_hung_up(const Fd& stream) noexcept;

// 64 unpredictable bits.
uint64_t random_bits() noexcept;
int process_id() noexcept;

}  // namespace weft::os
