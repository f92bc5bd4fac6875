// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Redirection of standard error. Knows nothing of what is written.
#include "captured_stderr.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "failure.hpp"

namespace weft::tool {

CapturedStderr::CapturedStderr() {
  std::fflush(stderr);
  saved_ = dup(STDERR_FILENO);
  file_ = memfd_create("weft-stderr", MFD_CLOEXEC);
  if (file_ < 0 || dup2(file_, STDERR_FILENO) < 0) {
    restore();
    fail("cannot capture what the library logs: {}", std::strerror(errno));
  }
}

CapturedStderr::~CapturedStderr() { restore(); }

void CapturedStderr::restore() noexcept {
  if (file_ < 0) return;
  std::fflush(stderr);
  if (saved_ >= 0) {
    dup2(saved_, STDERR_FILENO);
    close(saved_);
  } else {
    close(STDERR_FILENO);  // there was none before
  }
  close(file_);
  saved_ = file_ = -1;
}

std::string CapturedStderr::take() {
  std::fflush(stderr);
  std::string text;
  char block[4096];
  off_t at = 0;
  while (true) {
    const ssize_t n = pread(file_, block, sizeof block, at);
    if (n <= 0) break;
    text.append(block, static_cast<size_t>(n));
    at += n;
  }
  restore();
  return text;
}

}  // namespace weft::tool
