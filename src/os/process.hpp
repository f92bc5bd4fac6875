// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Other processes: liveness by pidfd, cross-memory attach (CMA), the asymmetric fence. Must not know protocols.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "base/result.hpp"
#include "os/fd.hpp"

namespace weft::os {

// A pidfd of the process: readable once it has exited. An empty Fd when there is none (no such process, old kernel, no descriptor left).
Fd open_process(pid_t pid) noexcept;
// What others learn our death from. `shown` goes to them: it becomes readable, or hung up, when this process is gone.
struct Liveness {
  Fd shown;
  Fd kept;  // while this is open we live; empty with a pidfd, which needs nothing
};
// A pidfd of this process; where pidfd_open(2) is refused (a filter, an old kernel), a pipe, which a forked child holds open, too.
Result<Liveness> open_liveness();
// Whether the descriptor is of a kind that tells of a death: a pidfd or a pipe. Asks the kernel only, as os::is_memory() does.
bool can_report_exit(const Fd& fd) noexcept;
// Whether the process behind it has exited.
bool has_exited(const Fd& liveness) noexcept;

// Copies between our memory and another process's (process_vm_readv(2), process_vm_writev(2)). The number of bytes moved, or a negative
// errno: -EPERM when ptrace scope or a container forbids it, -ESRCH when the process is gone. Moves everything or fails.
inline constexpr size_t process_list_max = 18;  // entries of each list
ssize_t read_process(pid_t pid, const iovec* local, size_t local_count, const iovec* remote,
                     size_t remote_count, size_t bytes) noexcept;

ssize_t write_process(pid_t pid, const iovec* local, size_t local_count, const iovec* remote,
                      size_t remote_count, size_t bytes) noexcept;
// Which pid namespace this process is in; 0 when that cannot be told. Processes of one namespace know each other by the same numbers.
uint64_t pid_namespace() noexcept;
// Whether a process of our pid namespace has that number now.
bool is_running(pid_t pid) noexcept;

// The asymmetric fence (membarrier(2), global expedited): a process that registered needs no fence of its own on its fast path; the one that
// is about to sleep pays for both. False when the kernel or a filter refuses; then both sides fence.
bool register_for_fence() noexcept;
bool fence_registered_processes() noexcept;

// Raises the soft limit of open descriptors to the hard one (RLIMIT_NOFILE).
void raise_descriptor_limit() noexcept;

}  // namespace weft::os
