// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "link/shm/peer_memory.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include "arch/cpu.hpp"
#include "os/process.hpp"

namespace weft::link::shm {

void PeerMemory::probe(int32_t pid, uint64_t address, uint64_t value) noexcept {
  pid_ = pid;
  address_ = address;
  value_ = value;
  can_read_ = is_there();
}

bool PeerMemory::is_there() const noexcept {
  uint64_t value = 0;
  return read_word(value) == sizeof(value) && value == value_;
}

bool PeerMemory::was_there(uint64_t lately) noexcept {
  const uint64_t now = arch::ticks();
  if (proven_at_ != 0 && now - proven_at_ < lately) return true;
  const bool there = is_there();
  proven_at_ = there ? now : 0;
  return there;
}

bool PeerMemory::is_replaced() const noexcept {
  if (address_ == 0) return false;
  uint64_t value = 0;
  const ssize_t status = read_word(value);
  return status == -EFAULT || (status == sizeof(value) && value != value_);
}

ssize_t PeerMemory::read(const iovec* local, size_t local_count, const iovec* remote, size_t remote_count,
                         size_t bytes) const noexcept {
  std::array<iovec, os::process_list_max> here;
  std::array<iovec, os::process_list_max> there;
  if (local_count >= here.size() || remote_count >= there.size()) return -EINVAL;
  uint64_t value = 0;
  here[0] = {&value, sizeof(value)};
  there[0] = {reinterpret_cast<void*>(address_), sizeof(value)};
  std::copy_n(local, local_count, here.begin() + 1);
  std::copy_n(remote, remote_count, there.begin() + 1);
  const ssize_t moved = os::read_process(pid_, here.data(), local_count + 1, there.data(), remote_count + 1,
                                         sizeof(value) + bytes);
  if (moved < 0) return moved;
  return value == value_ ? static_cast<ssize_t>(bytes) : -ESRCH;
}

ssize_t PeerMemory::write(const iovec* local, size_t local_count, const iovec* remote, size_t remote_count,
                          size_t bytes) const noexcept {
  return os::write_process(pid_, local, local_count, remote, remote_count, bytes);
}

ssize_t PeerMemory::read_word(uint64_t& value) const noexcept {
  const iovec local{&value, sizeof(value)};
  const iovec remote{reinterpret_cast<void*>(address_), sizeof(value)};
  return os::read_process(pid_, &local, 1, &remote, 1, sizeof(value));
}

}  // namespace weft::link::shm
