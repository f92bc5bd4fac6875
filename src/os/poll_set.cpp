// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// epoll(7) and getrandom(2).
#include "os/poll_set.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "os/shortage.hpp"

namespace weft::os {

Result<PollSet> PollSet::create() {
  PollSet set(::epoll_create1(EPOLL_CLOEXEC));
  if (!set) {
    const int code = errno;
    return Error{code, "no epoll set: " + with_remedy(code)};
  }
  return set;
}

bool PollSet::control(int operation, int fd, void* tag, uint32_t interest) noexcept {
  if (!is_here()) {
    errno = EPERM;
    return false;
  }
  epoll_event event{};
  if ((interest & watch_reading) != 0) event.events |= EPOLLIN;
  if ((interest & watch_writing) != 0) event.events |= EPOLLOUT;
  if ((interest & watch_hangup) != 0) event.events |= EPOLLRDHUP;
  event.data.ptr = tag;
  return ::epoll_ctl(get(), operation, fd, &event) == 0;
}

bool PollSet::add(int fd, void* tag, uint32_t interest) noexcept {
  return control(EPOLL_CTL_ADD, fd, tag, interest);
}

bool PollSet::change(int fd, void* tag, uint32_t interest) noexcept {
  return control(EPOLL_CTL_MOD, fd, tag, interest);
}

bool PollSet::watch(int fd, uint32_t interest, void* tag) noexcept {
  return change(fd, tag, interest) || (errno == ENOENT && add(fd, tag, interest));
}

void PollSet::remove(int fd) noexcept {
  if (*this && fd >= 0) (void)control(EPOLL_CTL_DEL, fd, nullptr, watch_errors);
}

size_t PollSet::ready(std::span<void*> tags) noexcept {
  if (!is_here()) return 0;
  std::array<epoll_event, 64> events{};
  const int most = static_cast<int>(std::min(events.size(), tags.size()));
  const int got = ::epoll_wait(get(), events.data(), most, 0);
  for (int i = 0; i < got; ++i) tags[static_cast<size_t>(i)] = events[static_cast<size_t>(i)].data.ptr;
  return got > 0 ? static_cast<size_t>(got) : 0;
}

bool PollSet::wait(int timeout_ms) noexcept {
  epoll_event event;
  return ::epoll_wait(get(), &event, 1, timeout_ms) > 0;
}

bool is_hung_up(const Fd& stream) noexcept {
  pollfd check{stream.get(), POLLRDHUP, 0};
  return ::poll(&check, 1, 0) > 0;
}

uint64_t random_bits() noexcept {
  uint64_t bits = 0;
  while (::getrandom(&bits, sizeof(bits), 0) != sizeof(bits)) {
  }
  return bits;
}

int process_id() noexcept { return ::getpid(); }

}  // namespace weft::os
