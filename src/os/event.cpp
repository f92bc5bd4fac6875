// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// eventfd(2), getrandom(2), the monotonic clock. Must not know what they are for.
#include "os/event.hpp"

#include <sched.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <string>

#include "os/clock.hpp"
#include "os/shortage.hpp"

namespace weft::os {

namespace {

Error refused(const char* what) {
  const int code = errno;
  return Error{code, std::string(what) + ": " + with_remedy(code)};
}

}  // namespace

Result<Event> Event::create() {
  Fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) return refused("eventfd");
  return Event(std::move(fd));
}

void Event::notify(uint64_t notices) noexcept {
  const int saved = errno;
  // Only a full counter refuses, and a full counter is readable.
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &notices, sizeof notices);
  errno = saved;
}

// Not atomic, but safe: who comes in between finds nothing now and is woken when the rest is put back.
void Event::consume_one() noexcept {
  if (!origin_.is_here()) return;
  uint64_t count = 0;
  if (::read(fd_.get(), &count, sizeof count) == sizeof count && count > 1) notify(count - 1);
}

void Event::drain() noexcept {
  if (!origin_.is_here()) return;
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(fd_.get(), &count, sizeof count);
}

bool random_bytes(void* bytes, size_t len) noexcept {
  auto* to = static_cast<unsigned char*>(bytes);
  while (len != 0) {
    const ssize_t got = ::getrandom(to, len, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    len -= size_t(got);
  }
  return true;
}

void yield_processor() noexcept { ::sched_yield(); }

uint64_t involuntary_switches() noexcept {
  rusage use{};
  if (::getrusage(RUSAGE_THREAD, &use) != 0) return 0;
  return static_cast<uint64_t>(use.ru_nivcsw);
}

// glibc reads the restartable sequence's cpu_id where the kernel has that, which enters no kernel.
unsigned current_cpu() noexcept {
  const int cpu = ::sched_getcpu();
  return cpu < 0 ? 0 : static_cast<unsigned>(cpu);
}

int64_t now_ms() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

}  // namespace weft::os
