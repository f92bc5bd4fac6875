// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// open(2), write(2).
#include "os/new_file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace weft::os {

Result<Fd> create_file(const std::string& path) {
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return Error{errno, path + ": " + std::strerror(errno)};
  return file;
}

std::string numbered_name(std::string_view path, int process, unsigned number) {
  const size_t slash = path.rfind('/');
  size_t dot = path.rfind('.');
  const size_t name = slash == std::string_view::npos ? 0 : slash + 1;
  if (dot == std::string_view::npos || dot <= name) dot = path.size();
  std::string text(path.substr(0, dot));
  text.append(".").append(std::to_string(process)).append(".").append(std::to_string(number));
  return text.append(path.substr(dot));
}

bool is_regular_file(const std::string& path) noexcept {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

void shorten_file(const Fd& file, size_t size) noexcept {
  (void)!::ftruncate(file.get(), static_cast<off_t>(size));
}

int append_to_file(const Fd& file, size_t size, std::span<const std::byte> bytes) noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      size + bytes.size() > limit.rlim_cur)
    return EFBIG;
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    if (written == 0) return ENOSPC;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return 0;
}

}  // namespace weft::os
