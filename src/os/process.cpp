// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// pidfd_open(2), process_vm_readv(2), membarrier(2).
#include "os/process.hpp"

#include <fcntl.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "os/shortage.hpp"

namespace weft::os {

Fd open_process(pid_t pid) noexcept { return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

Result<Liveness> open_liveness() {
  if (Fd self = open_process(::getpid())) return Liveness{std::move(self), {}};
  if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
    return Error{errno, "no pidfd of this process: " + with_remedy(errno)};
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
    return Error{errno, "nothing to tell of our death by: pipe: " + with_remedy(errno)};
  return Liveness{Fd(ends[0]), Fd(ends[1])};
}

bool can_report_exit(const Fd& fd) noexcept {
  // F_GETPIPE_SZ would wait for the lock of the pipe, and fstat(2) for a file system.
  struct statx kind {};
  if (fd && ::statx(fd.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &kind) == 0 &&
      S_ISFIFO(kind.stx_mode))
    return true;
  // EBADF: no pidfd. A pidfd of somebody else's child is ECHILD.
  constexpr auto by_pidfd = static_cast<idtype_t>(3);  // P_PIDFD
  siginfo_t info{};
  return fd && (::waitid(by_pidfd, static_cast<id_t>(fd.get()), &info, WEXITED | WNOHANG | WNOWAIT) == 0 ||
                errno == ECHILD);
}

bool has_exited(const Fd& liveness) noexcept {
  pollfd probe{liveness.get(), POLLIN, 0};
  return liveness && ::poll(&probe, 1, 0) == 1;
}

namespace {

// Advances an iovec list by `bytes`; returns the entries left.
size_t advance(iovec* list, size_t count, size_t bytes) noexcept {
  size_t first = 0;
  while (first < count && bytes >= list[first].iov_len) bytes -= list[first++].iov_len;
  if (first < count) {
    list[first].iov_base = static_cast<std::byte*>(list[first].iov_base) + bytes;
    list[first].iov_len -= bytes;
  }
  std::move(list + first, list + count, list);
  return count - first;
}

// Cuts an iovec list to `bytes` in all; returns the entries left.
size_t limit(iovec* list, size_t count, size_t bytes) noexcept {
  size_t used = 0;
  for (; used < count && bytes > 0; ++used) {
    list[used].iov_len = std::min(list[used].iov_len, bytes);
    bytes -= list[used].iov_len;
  }
  return used;
}

}  // namespace

namespace {

using Transfer = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

// Moves everything by as many calls as it takes; each of them moves as much as both lists of it hold.
ssize_t transfer(Transfer call, pid_t pid, const iovec* local, size_t local_count, const iovec* remote,
                 size_t remote_count, size_t bytes) noexcept {
  constexpr size_t list_max = process_list_max;
  constexpr size_t call_bytes_max = size_t{1} << 30;  // one call moves less than 2 GiB (MAX_RW_COUNT)
  if (local_count > list_max || remote_count > list_max) return -EINVAL;
  std::array<iovec, list_max> here{};
  std::array<iovec, list_max> there{};
  std::copy_n(local, local_count, here.begin());
  std::copy_n(remote, remote_count, there.begin());
  local_count = limit(here.data(), local_count, bytes);
  remote_count = limit(there.data(), remote_count, bytes);
  size_t done = 0;
  while (done < bytes) {
    std::array<iovec, list_max> slice = there;
    const size_t slice_count = limit(slice.data(), remote_count, std::min(call_bytes_max, bytes - done));
    const ssize_t moved = call(pid, here.data(), local_count, slice.data(), slice_count, 0);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return moved == 0 ? -EFAULT : -errno;
    done += static_cast<size_t>(moved);
    local_count = advance(here.data(), local_count, static_cast<size_t>(moved));
    remote_count = advance(there.data(), remote_count, static_cast<size_t>(moved));
    if (local_count == 0 || remote_count == 0) break;
  }
  return done == bytes ? static_cast<ssize_t>(done) : -EFAULT;
}

}  // namespace

ssize_t read_process(pid_t pid, const iovec* local, size_t local_count, const iovec* remote,
                     size_t remote_count, size_t bytes) noexcept {
  return transfer(::process_vm_readv, pid, local, local_count, remote, remote_count, bytes);
}

ssize_t write_process(pid_t pid, const iovec* local, size_t local_count, const iovec* remote,
                      size_t remote_count, size_t bytes) noexcept {
  return transfer(::process_vm_writev, pid, local, local_count, remote, remote_count, bytes);
}

uint64_t pid_namespace() noexcept {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

bool is_running(pid_t pid) noexcept { return ::kill(pid, 0) == 0 || errno != ESRCH; }

bool register_for_fence() noexcept {
  static const bool registered =
      ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
  return registered;
}

bool fence_registered_processes() noexcept {
  return ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
}

void raise_descriptor_limit() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace weft::os
