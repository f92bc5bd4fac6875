// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Anonymous shared memory files (memfd): they have no name, so nothing stays behind when a process dies. Must not know what lies in them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "base/result.hpp"
#include "os/fd.hpp"

namespace weft::os {

// A mapping of a part of a file, unmapped at the end of its life.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* at, size_t bytes) noexcept : at_(at), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  template <class T>
  T* as(size_t offset = 0) const noexcept {
    return reinterpret_cast<T*>(static_cast<std::byte*>(at_) + offset);
  }
  explicit operator bool() const noexcept { return at_ != nullptr; }
  size_t size() const noexcept { return bytes_; }

 private:
  void* at_ = nullptr;
  size_t bytes_ = 0;
};

// A new memory file of `bytes` (sparse). `label` shows in /proc/PID/maps only.
Result<Fd> create_memory(const char* label, size_t bytes);
// Makes the file at least `bytes` long. ENOMEM above the limit on file size (RLIMIT_FSIZE): the kernel would end the process (SIGXFSZ).
Result<void> grow_memory(const Fd& file, size_t bytes);
// Whether the limit on file size allows a file of that length.
Result<void> check_file_limit(size_t bytes);
// The file's length in bytes, 0 on error.
size_t memory_size(const Fd& file) noexcept;
// Whether the descriptor is a memory file or another file in memory (tmpfs, hugetlbfs). Asks the kernel only, never a file system that may
// not answer; what it refuses must not be looked at in another way, nor closed where a sleep hurts.
bool is_memory(const Fd& file) noexcept;
// Whether it is a memory file as create_memory() makes them, of that user: of ordinary pages, sealed against shrinking and against more
// seals, and not against writing. A mapping of it faults only when the machine or our control group is out of memory. Asked after
// is_memory() only.
bool memory_is_sound(const Fd& file, uid_t owner) noexcept;
// Descriptor `fd` of process `pid`, by /proc, when that process and the file are that user's and the file is sound. Empty otherwise. `ours`
// is a memory file, to compare with.
Fd open_memory_of(pid_t pid, int fd, uid_t owner, const Fd& ours) noexcept;
// A memory file that others may only read: the mapping of it, readable and writable, is the last one that is.
struct ReadableMemory {
  Fd file;
  Mapping mapping;
};
Result<ReadableMemory> create_readable_memory(const char* label, size_t bytes);
// All of such a file of another process, as open_memory_of() finds it, mapped for reading; its pages are there. Empty when it is not exactly
// `bytes` long, or could be changed in size.
Mapping map_readable_memory_of(pid_t pid, int fd, uid_t owner, const Fd& ours, size_t bytes) noexcept;
// Reads what lies at an offset, without mapping it. False: there is less.
bool read_memory(const Fd& file, size_t offset, void* to, size_t bytes) noexcept;
// Maps [offset, offset + bytes) readable and writable, shared.
Result<Mapping> map_memory(const Fd& file, size_t offset, size_t bytes);
// Whether the kernel has pages for the first `bytes` of a mapping, which a first touch would otherwise find out by a fault. True where it
// cannot be asked (before Linux 5.14).
bool have_pages(const Mapping& map, size_t bytes) noexcept;
// The same of the pages that [offset, offset + bytes) touches.
bool have_pages(const Mapping& map, size_t offset, size_t bytes) noexcept;
// have_pages(), then one access to each page: where the hypervisor has page tables of its own, the first access costs as much as a fault. `to_write`:
// the mapping is used for writing; the contents stay. Costs nothing worth mentioning where the pages were accessed before.
void warm_pages(const Mapping& map, size_t offset, size_t bytes, bool to_write) noexcept;
// Gives the pages of a range back to the kernel; they read as zero afterwards.
void discard_memory(const Fd& file, size_t offset, size_t bytes) noexcept;

}  // namespace weft::os
