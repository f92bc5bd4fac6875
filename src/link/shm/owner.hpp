// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Who opened an endpoint: the process, and the user. What is ours is of that process; what is taken from others is of that user (decision 15), or of
// the one that the process has become since. Must not know peers or addresses.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "os/fd.hpp"
#include "os/shared_memory.hpp"

namespace weft::link::shm {

class Owner {
 public:
  // This process opens the endpoint now.
  void acquire() noexcept;
  int pid() const noexcept { return pid_; }
  // False in a forked child.
  bool is_here() const noexcept;

  bool is_own(uid_t user) const noexcept { return user == ::geteuid() || user == user_; }
  // Whether a process of our user has bound that abstract name. False with `error`: it cannot be told.
  bool has_bound(std::string_view name, int& error) const noexcept;
  bool belongs_to_other(std::string_view name) const noexcept;

  // As the functions of these names in os/shared_memory.hpp. `ours` is a memory file of this process, to compare with.
  bool memory_is_sound(const os::Fd& file) const noexcept;
  os::Fd open_memory_of(int32_t pid, int fd, const os::Fd& ours) const noexcept;
  os::Mapping map_readable_memory_of(int32_t pid, int fd, const os::Fd& ours, size_t bytes) const noexcept;

 private:
  int pid_ = 0;
  uid_t user_ = 0;  // the effective one when the endpoint was opened
};

}  // namespace weft::link::shm
