// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A memory file of one process that the other processes of its user find by a name while it lives (memfd_create(2), unix(7), proc(5)). Must not know what
// lies in it.
//
// The name is that of a socket in the abstract name space, which says where the file is: @PREFIX/PID:FD:NONCE. It goes with its process, however that
// ends; a forked child that keeps the socket keeps a name that leads nowhere.
// Processes find each other within one network namespace, one pid namespace and one user; who may not look into the other's /proc does not.
// Anybody may bind such a name: what it leads to counts only when it is a memory file of this user.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "os/fd.hpp"
#include "os/shared_memory.hpp"

namespace weft::os {

class PublishedMemory {
 public:
  // A zeroed file of `bytes` (sparse), mapped and writable, and not found by anybody yet.
  static Result<PublishedMemory> create(const char* label, size_t bytes);
  // One file for all processes: that which another process has published under `prefix`, or a new one; from now on others find it here, too, and it stays
  // while one of them lives. Any of them may write anything into it. The file of another process counts only when it was made with the same `label`.
  // May take 50 ms while another process joins; two that join at once after that may have a file each.
  static Result<PublishedMemory> join(const char* label, std::string_view prefix, size_t bytes);
  // From now on others find it under `prefix`, a text of at most 64 characters.
  Result<void> publish(std::string_view prefix);
  const Mapping& mapping() const noexcept { return mapping_; }
  // False in a forked child.
  bool belongs_here() const noexcept;

 private:
  Fd file_;
  Fd name_;
  Mapping mapping_;
  int owner_pid_ = 0;
};

// While it lives nobody else publishes under that prefix. Within a bounded time: a name that somebody holds for long counts for nothing.
Fd hold_prefix(std::string_view prefix, int64_t timeout_ms = 500) noexcept;

struct FoundMemory {
  Mapping mapping;  // read-only
  int pid = 0;      // of who published it
};
// What other processes have published under `prefix` and is at least `bytes` long.
std::vector<FoundMemory> find_published_memory(std::string_view prefix, size_t bytes);

}  // namespace weft::os
