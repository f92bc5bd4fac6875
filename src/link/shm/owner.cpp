// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "link/shm/owner.hpp"

#include "os/poll_set.hpp"
#include "os/unix_socket.hpp"

namespace weft::link::shm {

void Owner::acquire() noexcept {
  pid_ = os::process_id();
  user_ = ::geteuid();
}

bool Owner::is_here() const noexcept { return os::process_id() == pid_; }

bool Owner::has_bound(std::string_view name, int& error) const noexcept {
  const auto owner = os::owner_of_name(name, &error);
  return owner && is_own(*owner);
}

bool Owner::belongs_to_other(std::string_view name) const noexcept {
  const auto owner = os::owner_of_name(name);
  return owner && !is_own(*owner);
}

bool Owner::memory_is_sound(const os::Fd& file) const noexcept {
  return os::memory_is_sound(file, ::geteuid()) || os::memory_is_sound(file, user_);
}

os::Fd Owner::open_memory_of(int32_t pid, int fd, const os::Fd& ours) const noexcept {
  os::Fd file = os::open_memory_of(pid, fd, ::geteuid(), ours);
  if (!file && user_ != ::geteuid()) file = os::open_memory_of(pid, fd, user_, ours);
  return file;
}

os::Mapping Owner::map_readable_memory_of(int32_t pid, int fd, const os::Fd& ours,
                                          size_t bytes) const noexcept {
  os::Mapping map = os::map_readable_memory_of(pid, fd, ::geteuid(), ours, bytes);
  if (!map && user_ != ::geteuid()) map = os::map_readable_memory_of(pid, fd, user_, ours, bytes);
  return map;
}

}  // namespace weft::link::shm
