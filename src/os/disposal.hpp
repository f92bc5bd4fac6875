// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Lets go of descriptors that a peer sent. That may sleep for as long as the peer likes: a socket with SO_LINGER and unsent data, a file of a
// FUSE daemon that does not answer. It happens on a thread that lives for this alone (docs/decisions/0015). Must not know who sent what.
#pragma once

#include <pthread.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "os/fd.hpp"

namespace weft::os {

class Disposal {
 public:
  Disposal() = default;
  Disposal(const Disposal&) = delete;
  Disposal& operator=(const Disposal&) = delete;
  ~Disposal() { finish(); }

  static constexpr size_t fds_max = 256;  // more than one datagram carries (SCM_MAX_FD is 253)

  // Closes the descriptor soon. Asked only while not busy().
  void close(Fd fd) noexcept;
  // Takes the first datagram off the socket and drops it with what it carries. Asked only while not busy().
  void drop_datagram(const Fd& socket) noexcept;
  // Whether something is still being let go of. Starts what waits, and interrupts what has slept for long.
  bool busy() noexcept;
  // How long what is let go of now has taken; 0: nothing is.
  uint64_t age_ns() const noexcept;
  // Waits for a bounded time until nothing is left; a thread that nothing interrupts is left behind.
  void finish() noexcept;
  // After fork(2), in the child: the thread is the parent's.
  void forget() noexcept;

 private:
  struct Job;

  void start() noexcept;
  void leave_behind() noexcept;

  std::array<int, fds_max> waiting_{};
  size_t waiting_count_ = 0;
  int socket_ = -1;  // whose first datagram is to go; -1: none
  Job* job_ = nullptr;
  uint64_t started_ns_ = 0;
  bool interrupted_ = false;
  uint32_t stuck_ = 0;  // threads left behind
};

}  // namespace weft::os
