// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "os/signals.hpp"

#include <atomic>
#include <csignal>

#include "os/clock.hpp"

namespace weft::os {

Restarts restarts() noexcept {
  bool any = false;
  bool any_without = false;
  for (int number = 1; number <= SIGRTMAX; ++number) {
    struct sigaction action;
    if (::sigaction(number, nullptr, &action) != 0) continue;
    if ((action.sa_flags & SA_SIGINFO) == 0 && (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN))
      continue;
    ((action.sa_flags & SA_RESTART) != 0 ? any : any_without) = true;
  }
  if (any && any_without) return Restarts::Mixed;
  return any ? Restarts::All : any_without ? Restarts::None : Restarts::NoHandler;
}

Restarts restarts_lately() noexcept {
  constexpr uint64_t lately_ns = 100'000'000;
  static std::atomic<uint64_t> asked_at{0};
  static std::atomic<Restarts> answer{Restarts::Mixed};
  const uint64_t now = monotonic_ns();
  if (asked_at.load(std::memory_order_acquire) + lately_ns > now)
    return answer.load(std::memory_order_relaxed);
  const Restarts found = restarts();
  answer.store(found, std::memory_order_relaxed);
  asked_at.store(now, std::memory_order_release);
  return found;
}

}  // namespace weft::os
