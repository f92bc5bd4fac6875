// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// MADV_POPULATE_WRITE of madvise(2), Linux 5.14.
#include "os/vfio/private_pages.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace weft::os::vfio {
namespace {

#ifdef MADV_POPULATE_WRITE
constexpr int populate_write = MADV_POPULATE_WRITE;
#else
constexpr int populate_write = 23;
#endif

bool populate(uintptr_t begin, uintptr_t end) noexcept {
  int status = 0;
  do status = ::madvise(reinterpret_cast<void*>(begin), end - begin, populate_write);
  while (status != 0 && errno == EINTR);
  return status == 0;
}

struct Close {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

}  // namespace

void make_private_pages(uintptr_t begin, size_t bytes) noexcept {
  const uintptr_t end = begin + bytes;
  if (populate(begin, end) || errno != EINVAL) return;
  // Some of it is read-only, where the call ended: each writable mapping by itself (proc(5), maps).
  const std::unique_ptr<std::FILE, Close> maps(std::fopen("/proc/self/maps", "re"));
  char line[512];
  bool is_first_piece = true;
  while (maps && std::fgets(line, sizeof line, maps.get()) != nullptr) {
    const bool is_whole_line = is_first_piece;
    is_first_piece = std::find(line, line + sizeof line, '\n') != line + sizeof line;
    if (!is_whole_line) continue;
    // "FROM-TO rwxp ..."
    char* after = nullptr;
    const uintptr_t from = std::strtoull(line, &after, 16);
    if (*after != '-' || from >= end) continue;
    const uintptr_t to = std::strtoull(after + 1, &after, 16);
    const bool may_write = after[0] == ' ' && after[1] != '\0' && after[2] == 'w';
    if (may_write && to > begin) (void)populate(std::max(from, begin), std::min(to, end));
  }
}

}  // namespace weft::os::vfio
