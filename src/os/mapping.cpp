// madvise(2).
#include "os/mapping.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace weft::os {

int populate(const void* at, size_t length, bool write) noexcept {
  if (length == 0) return 0;
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(at) & ~(page - 1);
  const uintptr_t end = reinterpret_cast<uintptr_t>(at) + length;
  if (end < begin) return EFAULT;
  int status = 0;
  do {
    status = ::madvise(reinterpret_cast<void*>(begin), end - begin,
                       write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
  } while (status != 0 && (errno == EINTR || errno == EAGAIN));
  if (status == 0 || errno == EINVAL) return 0;
  return errno == ENOMEM || errno == EFAULT ? EFAULT : errno;
}

}  // namespace weft::os
