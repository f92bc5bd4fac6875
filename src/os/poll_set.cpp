// epoll(7) and getrandom(2).
#include "os/poll_set.hpp"

#include <sys/epoll.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace weft::os {

Result<Fd> open_poll_set() {
  Fd set(::epoll_create1(EPOLL_CLOEXEC));
  if (!set) return Error{errno, std::string("no epoll set: ") + std::strerror(errno)};
  return set;
}

bool add_to_poll_set(const Fd& set, const Fd& fd, void* tag) noexcept {
  return add_to_poll_set(set, fd.get(), tag);
}

bool add_to_poll_set(const Fd& set, int fd, void* tag) noexcept {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = tag;
  return ::epoll_ctl(set.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void remove_from_poll_set(const Fd& set, const Fd& fd) noexcept { remove_from_poll_set(set, fd.get()); }

void remove_from_poll_set(const Fd& set, int fd) noexcept {
  (void)::epoll_ctl(set.get(), EPOLL_CTL_DEL, fd, nullptr);
}

size_t poll_now(const Fd& set, std::span<void*> tags) noexcept {
  std::array<epoll_event, 64> events{};
  const int most = static_cast<int>(std::min(events.size(), tags.size()));
  const int got = ::epoll_wait(set.get(), events.data(), most, 0);
  for (int i = 0; i < got; ++i) tags[static_cast<size_t>(i)] = events[static_cast<size_t>(i)].data.ptr;
  return got > 0 ? static_cast<size_t>(got) : 0;
}

uint64_t random_bits() noexcept {
  uint64_t bits = 0;
  while (::getrandom(&bits, sizeof(bits), 0) != sizeof(bits)) {
  }
  return bits;
}

int process_id() noexcept { return ::getpid(); }

}  // namespace weft::os
