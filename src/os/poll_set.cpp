// epoll(7) and getrandom(2).
#include "os/poll_set.hpp"

#include <sys/epoll.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace weft::os {

Result<PollSet> open_poll_set() {
  PollSet set(::epoll_create1(EPOLL_CLOEXEC));
  if (!set) return Error{errno, std::string("no epoll set: ") + std::strerror(errno)};
  return set;
}

namespace {

bool control(const PollSet& set, int operation, int fd, void* tag, bool writing) noexcept {
  if (!set.is_here()) return false;
  epoll_event event{};
  event.events = writing ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.ptr = tag;
  return ::epoll_ctl(set.get(), operation, fd, &event) == 0;
}

}  // namespace

bool add_to_poll_set(const PollSet& set, const Fd& fd, void* tag, bool writing) noexcept {
  return control(set, EPOLL_CTL_ADD, fd.get(), tag, writing);
}

bool add_to_poll_set(const PollSet& set, int fd, void* tag) noexcept {
  return control(set, EPOLL_CTL_ADD, fd, tag, false);
}

void change_in_poll_set(const PollSet& set, const Fd& fd, void* tag, bool writing) noexcept {
  (void)control(set, EPOLL_CTL_MOD, fd.get(), tag, writing);
}

void remove_from_poll_set(const PollSet& set, const Fd& fd) noexcept { remove_from_poll_set(set, fd.get()); }

void remove_from_poll_set(const PollSet& set, int fd) noexcept {
  if (set.is_here()) (void)::epoll_ctl(set.get(), EPOLL_CTL_DEL, fd, nullptr);
}

size_t poll_now(const PollSet& set, std::span<void*> tags) noexcept {
  if (!set.is_here()) return 0;
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
