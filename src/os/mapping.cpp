// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
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

uintptr_t page_bytes() noexcept {
  static const auto bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

int advise(uintptr_t begin, uintptr_t end, bool write) noexcept {
  constexpr int attempts = 100;
  int status = EAGAIN;
  for (int i = 0; i < attempts && (status == EINTR || status == EAGAIN); ++i) {
    const int advice = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    status = ::madvise(reinterpret_cast<void*>(begin), end - begin, advice) == 0 ? 0 : errno;
  }
  return status;
}

}  // namespace

// It answers EINVAL to advice that it does not know, and to ranges without the right: so ask of a page that is there.
bool can_populate() noexcept {
  static const bool able = [] {
    char here = 0;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(&here) & ~(page_bytes() - 1);
    return advise(begin, begin + page_bytes(), true) == 0;
  }();
  return able;
}

int populate(const void* at, size_t length, bool write) noexcept {
  if (length == 0) return 0;
  const uintptr_t page = page_bytes();
  const auto begin = reinterpret_cast<uintptr_t>(at) & ~(page - 1);
  if (length > UINTPTR_MAX - reinterpret_cast<uintptr_t>(at)) return EFAULT;
  const uintptr_t end = reinterpret_cast<uintptr_t>(at) + length;
  if (end > UINTPTR_MAX - page) return EFAULT;  // the kernel rounds it up
  const int status = advise(begin, end, write);
  if (status == EINVAL) return can_populate() ? EFAULT : 0;
  return status == ENOMEM ? EFAULT : status;
}

}  // namespace weft::os
