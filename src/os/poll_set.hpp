// A set of descriptors to wait for, each with a pointer (epoll(7)). Must not know what they are.
#pragma once

#include <span>

#include "base/result.hpp"
#include "os/fd.hpp"
#include "os/origin.hpp"

namespace weft::os {

// An inherited one (Origin) is left alone by the calls below: nothing is added, changed or removed, and nothing is ready.
class PollSet : public Fd {
 public:
  PollSet() = default;
  explicit PollSet(int fd) noexcept : Fd(fd) {}
  bool is_here() const noexcept { return origin_.is_here(); }

 private:
  Origin origin_;
};

Result<PollSet> open_poll_set();
// Adds a descriptor for reading, and for writing when `writing`. False when it cannot be added.
bool add_to_poll_set(const PollSet& set, const Fd& fd, void* tag, bool writing = false) noexcept;
// Changes the tag, and what is waited for.
void change_in_poll_set(const PollSet& set, const Fd& fd, void* tag, bool writing) noexcept;
bool add_to_poll_set(const PollSet& set, int fd, void* tag) noexcept;
void remove_from_poll_set(const PollSet& set, const Fd& fd) noexcept;
void remove_from_poll_set(const PollSet& set, int fd) noexcept;
// The tags of what is ready now, without waiting. Returns how many were written.
size_t poll_now(const PollSet& set, std::span<void*> tags) noexcept;

// 64 unpredictable bits.
uint64_t random_bits() noexcept;
int process_id() noexcept;

}  // namespace weft::os
