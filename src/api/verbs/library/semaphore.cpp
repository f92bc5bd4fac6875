// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "api/verbs/library/semaphore.hpp"

#include <sys/eventfd.h>
#include <sys/uio.h>

#include <cerrno>

namespace weft::verbs {

Result<Semaphore> Semaphore::create() {
  os::Fd fd(eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC));
  if (!fd) return Error{errno, "no event descriptor for the completion channel or the asynchronous events"};
  return Semaphore(static_cast<os::Fd&&>(fd));
}

void Semaphore::post(uint64_t times) noexcept {
  if (times == 0) return;
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &times, sizeof times);
}

bool Semaphore::wait() noexcept {
  uint64_t one = 0;
  return ::read(fd_.get(), &one, sizeof one) == sizeof one;
}

void Semaphore::acquire(uint64_t times) noexcept {
  for (; times > 0; --times) {
    uint64_t one = 0;
    const iovec into{&one, sizeof one};
    // Linux before 5.8 cannot: then one notice too many stays, and next_completion() finds nothing for it.
    if (preadv2(fd_.get(), &into, 1, -1, RWF_NOWAIT) < 0) return;
  }
}

}  // namespace weft::verbs
