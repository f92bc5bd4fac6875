// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// timerfd_create(2).
#include "os/timer.hpp"

#include <sys/timerfd.h>

#include <cerrno>
#include <cstring>

namespace weft::os {

Result<Timer> Timer::create() {
  Fd fd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!fd) return Error{errno, std::string("no timer: ") + std::strerror(errno)};
  return Timer(std::move(fd));
}

void Timer::set(uint64_t in_ns) noexcept {
  if (!origin_.is_here()) return;
  constexpr uint64_t second_ns = 1'000'000'000;
  itimerspec when{};
  when.it_value.tv_sec = static_cast<time_t>(in_ns / second_ns);
  when.it_value.tv_nsec = static_cast<long>(in_ns % second_ns);
  (void)::timerfd_settime(fd_.get(), 0, &when, nullptr);
}

}  // namespace weft::os
