// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "api/verbs/library/notice.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

namespace weft::verbs {

Result<Notice> Notice::create() {
  os::Fd fd(::eventfd(0, EFD_CLOEXEC));
  if (!fd) return Error{errno, "no event descriptor for the completion channel"};
  Notice made(static_cast<os::Fd&&>(fd));
  made.can_consume_ = !made.consume() && errno == EAGAIN;
  return made;
}

void Notice::signal() const noexcept {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof one);
}

bool Notice::blocks() const noexcept { return (::fcntl(fd_.get(), F_GETFL) & O_NONBLOCK) == 0; }

bool Notice::wait() const noexcept {
  uint64_t count = 0;
  return ::read(fd_.get(), &count, sizeof count) == sizeof count;
}

bool Notice::consume() const noexcept {
  uint64_t count = 0;
  const iovec into{&count, sizeof count};
  return ::preadv2(fd_.get(), &into, 1, -1, RWF_NOWAIT) == sizeof count;
}

}  // namespace weft::verbs
