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

namespace {

int advise(uintptr_t begin, uintptr_t end, bool write) noexcept {
  for (;;) {
    const int advice = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    if (::madvise(reinterpret_cast<void*>(begin), end - begin, advice) == 0) return 0;
    if (errno != EINTR && errno != EAGAIN) return errno;
  }
}

// Whether the kernel has that advice: it answers EINVAL to what it does not know, and to ranges without the right.
bool is_able(uintptr_t page) noexcept {
  char here = 0;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(&here) & ~(page - 1);
  return advise(begin, begin + page, true) == 0;
}

}  // namespace

int populate(const void* at, size_t length, bool write) noexcept {
  if (length == 0) return 0;
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(at) & ~(page - 1);
  if (length > UINTPTR_MAX - reinterpret_cast<uintptr_t>(at)) return EFAULT;
  const uintptr_t end = reinterpret_cast<uintptr_t>(at) + length;
  const int status = advise(begin, end, write);
  if (status == EINVAL) {
    static const bool able = is_able(page);
    return able ? EFAULT : 0;
  }
  return status == ENOMEM ? EFAULT : status;
}

}  // namespace weft::os
