// Memory files by memfd_create(2); sealed against shrinking, so that no peer can make our mapping fault.
#include "os/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

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
  if (!file) return Error{errno, std::string("no shared memory file: memfd_create: ") + std::strerror(errno)};
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

bool memory_is_sealed(const Fd& file) noexcept {
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

Result<Mapping> map_memory(const Fd& file, size_t offset, size_t bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(),
                    static_cast<off_t>(offset));
  if (at == MAP_FAILED) return Error{errno, std::string("cannot map shared memory: ") + std::strerror(errno)};
  return Mapping(at, bytes);
}

void discard_memory(const Fd& file, size_t offset, size_t bytes) noexcept {
  (void)::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                    static_cast<off_t>(bytes));
}

}  // namespace weft::os
