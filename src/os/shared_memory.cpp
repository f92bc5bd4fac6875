// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory files by memfd_create(2); sealed against shrinking, so that no peer can make our mapping fault.
#include "os/shared_memory.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "os/shortage.hpp"

namespace weft::os {

Mapping::Mapping(Mapping&& other) noexcept
    : at_(std::exchange(other.at_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    if (at_ != nullptr) ::munmap(at_, bytes_);
    at_ = std::exchange(other.at_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

Mapping::~Mapping() {
  if (at_ != nullptr) ::munmap(at_, bytes_);
}

Result<Fd> create_memory(const char* label, size_t bytes) {
  Fd file(::memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return Error{errno, "no shared memory file: memfd_create: " + with_remedy(errno)};
  if (auto grown = grow_memory(file, bytes); !grown) return grown.error();
  // And against more seals: who has the descriptor could forbid us to write or to grow.
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
    return Error{errno, std::string("cannot seal a shared memory file: ") + std::strerror(errno)};
  return file;
}

Result<void> check_file_limit(size_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur)
    return {};
  return Error{ENOMEM, "the limit on file size (ulimit -f) is " + std::to_string(limit.rlim_cur) +
                           " bytes, and shared memory needs " + std::to_string(bytes)};
}

Result<void> grow_memory(const Fd& file, size_t bytes) {
  if (auto allowed = check_file_limit(bytes); !allowed) return allowed;
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    return Error{errno, std::string("cannot enlarge a shared memory file: ") + std::strerror(errno)};
  return {};
}

size_t memory_size(const Fd& file) noexcept {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || status.st_size < 0) return 0;
  return static_cast<size_t>(status.st_size);
}

bool is_memory(const Fd& file) noexcept { return ::fcntl(file.get(), F_GET_SEALS) >= 0; }

namespace {

constexpr int sealed = F_SEAL_SHRINK | F_SEAL_SEAL;
constexpr int sealed_for_reading = sealed | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;

// Whether it has these seals and none of the others, is of ordinary pages and that user's.
bool is_of_kind(const Fd& file, uid_t owner, int needed, int unwelcome) noexcept {
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & needed) != needed || (seals & unwelcome) != 0) return false;
  // A load from a memory file of huge pages raises SIGBUS when none is free.
  struct statfs kind {};
  struct stat status {};
  return ::fstatfs(file.get(), &kind) == 0 && kind.f_type == TMPFS_MAGIC &&
         ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == owner;
}

// A descriptor of another process, opened anew with `mode` when it is a memory file of that user.
Fd open_again(pid_t pid, int fd, uid_t owner, const Fd& ours, int mode) noexcept {
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d", pid);
  const Fd process(::open(path.data(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  if (!process || ::fstat(process.get(), &status) != 0 || status.st_uid != owner) return {};
  // The descriptor may be anything. O_PATH opens nothing; that it is a memory file shows in the device, which all memory files share.
  std::snprintf(path.data(), path.size(), "fd/%d", fd);
  const Fd place(::openat(process.get(), path.data(), O_PATH | O_CLOEXEC));
  struct statx seen {};
  if (!place || ::fstat(ours.get(), &status) != 0 ||
      ::statx(place.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_UID, &seen) != 0 ||
      seen.stx_dev_major != major(status.st_dev) || seen.stx_dev_minor != minor(status.st_dev) ||
      !S_ISREG(seen.stx_mode) || seen.stx_uid != owner)
    return {};
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", place.get());
  return Fd(::open(path.data(), mode | O_CLOEXEC));
}

}  // namespace

bool memory_is_sound(const Fd& file, uid_t owner) noexcept {
  return is_of_kind(file, owner, sealed, F_SEAL_WRITE | F_SEAL_FUTURE_WRITE);
}

Fd open_memory_of(pid_t pid, int fd, uid_t owner, const Fd& ours) noexcept {
  Fd file = open_again(pid, fd, owner, ours, O_RDWR);
  return file && memory_is_sound(file, owner) ? std::move(file) : Fd{};
}

Result<ReadableMemory> create_readable_memory(const char* label, size_t bytes) {
  ReadableMemory made;
  made.file = Fd(::memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!made.file) return Error{errno, "no shared memory file: memfd_create: " + with_remedy(errno)};
  if (auto grown = grow_memory(made.file, bytes); !grown) return grown.error();
  auto mapping = map_memory(made.file, 0, bytes);
  if (!mapping) return mapping.error();
  made.mapping = std::move(*mapping);
  if (::fcntl(made.file.get(), F_ADD_SEALS, sealed_for_reading) != 0)
    return Error{errno,
                 std::string("cannot seal a shared memory file for reading only: ") + std::strerror(errno)};
  return made;
}

Mapping map_readable_memory_of(pid_t pid, int fd, uid_t owner, const Fd& ours, size_t bytes) noexcept {
  const Fd file = open_again(pid, fd, owner, ours, O_RDONLY);
  if (!file || !is_of_kind(file, owner, sealed_for_reading, F_SEAL_WRITE) || memory_size(file) != bytes)
    return {};
  void* at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  return at == MAP_FAILED ? Mapping{} : Mapping(at, bytes);
}

bool read_memory(const Fd& file, size_t offset, void* to, size_t bytes) noexcept {
  ssize_t got;
  do got = ::pread(file.get(), to, bytes, static_cast<off_t>(offset));
  while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(bytes);
}

Result<Mapping> map_memory(const Fd& file, size_t offset, size_t bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(),
                    static_cast<off_t>(offset));
  if (at == MAP_FAILED) return Error{errno, "cannot map shared memory: " + with_remedy(errno)};
  return Mapping(at, bytes);
}

namespace {

size_t page_size() noexcept { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

}  // namespace

bool have_pages(const Mapping& map, size_t bytes) noexcept {
  const size_t page = page_size();
  return have_pages(map, 0, std::min((bytes + page - 1) / page * page, map.size()));
}

bool have_pages(const Mapping& map, size_t offset, size_t bytes) noexcept {
  constexpr int populate_write = 23;  // MADV_POPULATE_WRITE; it wants a whole page to begin with
  const size_t before = offset % page_size();
  return ::madvise(map.as<void>(offset - before), before + bytes, populate_write) == 0 || errno == EINVAL;
}

void warm_pages(const Mapping& map, size_t offset, size_t bytes, bool to_write) noexcept {
  if (!have_pages(map, offset, bytes)) return;  // no memory: only a page that is needed is to find out
  const size_t page = page_size();
  for (size_t at = offset; at < offset + bytes; at += page) {
    std::atomic_ref word(*map.as<uint32_t>(at));
    if (to_write) word.fetch_or(0, std::memory_order_relaxed);
    else (void)word.load(std::memory_order_relaxed);
  }
}

void discard_memory(const Fd& file, size_t offset, size_t bytes) noexcept {
  (void)::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                    static_cast<off_t>(bytes));
}

}  // namespace weft::os
