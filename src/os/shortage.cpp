// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// getrlimit(2), and what the manual pages of the calls say of each errno.
#include "os/shortage.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace weft::os {
namespace {

std::string now(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return "";
  return ", now " +
         (limit.rlim_cur == RLIM_INFINITY ? std::string("without limit") : std::to_string(limit.rlim_cur));
}

}  // namespace

bool is_shortage(int code) noexcept {
  return code == EMFILE || code == ENFILE || code == ENOMEM || code == ENOSPC;
}

std::string with_remedy(int code) {
  std::string words = std::strerror(code);
  switch (code) {
    case EMFILE:
      return words + " (raise the limit on descriptors, ulimit -n" + now(RLIMIT_NOFILE) + ")";
    case ENFILE:
      return words + " (raise fs.file-max of the machine)";
    case ENOMEM:
      return words + " (raise vm.max_map_count, ulimit -v" + now(RLIMIT_AS) +
             ", or the memory of the control group)";
    case ENOSPC:
      return words + " (raise fs.epoll.max_user_watches, or make room in memory)";
    case ETOOMANYREFS:
      return words + " (descriptors on their way to other processes count as well: raise ulimit -n" +
             now(RLIMIT_NOFILE) + ")";
    case EPERM:
    case ENOSYS:
      return words + " (a filter, seccomp, or the kernel refuses the call)";
    default:
      return words;
  }
}

}  // namespace weft::os
