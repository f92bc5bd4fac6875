// epoll(7) and timerfd_create(2).
#include "os/watch.hpp"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <cerrno>
#include <cstring>

namespace weft::os {

bool watch(const PollSet& set, const Fd& fd, uint32_t interest) noexcept {
  if (!set.is_here()) return false;
  epoll_event event{};
  if ((interest & watch_reading) != 0) event.events |= EPOLLIN;
  if ((interest & watch_writing) != 0) event.events |= EPOLLOUT;
  if ((interest & watch_hangup) != 0) event.events |= EPOLLRDHUP;
  event.data.fd = fd.get();
  if (::epoll_ctl(set.get(), EPOLL_CTL_MOD, fd.get(), &event) == 0) return true;
  return errno == ENOENT && ::epoll_ctl(set.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0;
}

void unwatch(const PollSet& set, const Fd& fd) noexcept {
  if (set && fd && set.is_here()) (void)::epoll_ctl(set.get(), EPOLL_CTL_DEL, fd.get(), nullptr);
}

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
