// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// When a poll looks around: at the clock, and then at what needs the kernel. Must not know what a look does; the caller reads the clock.
//
// Polls are counted, since most of them may not read the clock. How many empty ones lie between two looks at it follows the program: many while it
// spins, one while it sleeps between its polls, and one while something waits (hurry()).
#pragma once

#include <algorithm>
#include <cstdint>

namespace weft::link::shm {

class CheckSchedule {
 public:
  static constexpr uint32_t idle_polls_per_check_max = 512;
  static constexpr uint32_t busy_polls_per_check = 1U << 18;
  static constexpr uint64_t check_interval_ns = 1'000'000;

  // A poll found nothing, or something. True: ask is_due().
  [[gnu::always_inline]] bool found_nothing() noexcept {
    if (++idle_polls_ < idle_polls_per_check_) return false;
    idle_polls_ = 0;
    return true;
  }
  [[gnu::always_inline]] bool found_something() noexcept {
    if (++busy_polls_ < busy_polls_per_check) return false;
    busy_polls_ = 0;
    return true;
  }
  // For polls that cannot look: false, and nothing is counted, where the next call of found_nothing(), or found_something(), would be true.
  [[gnu::always_inline]] bool may_find_nothing() const noexcept {
    return idle_polls_ + 1 < idle_polls_per_check_;
  }
  [[gnu::always_inline]] bool may_find_something() const noexcept {
    return busy_polls_ + 1 < busy_polls_per_check;
  }
  // After the two above.
  [[gnu::always_inline]] void count_nothing() noexcept { ++idle_polls_; }
  [[gnu::always_inline]] void count_something() noexcept { ++busy_polls_; }

  // Whether to look now. `waits`: something still waits for a look.
  bool is_due(uint64_t now_ns, bool waits) noexcept {
    if (now_ns < next_check_ns_) {
      if (!waits) idle_polls_per_check_ = std::min(2 * idle_polls_per_check_, idle_polls_per_check_max);
      return false;
    }
    if (now_ns - next_check_ns_ > check_interval_ns)
      idle_polls_per_check_ = std::max(idle_polls_per_check_ / 8, 1U);
    next_check_ns_ = now_ns + check_interval_ns;
    return true;
  }
  // Each empty poll looks at the clock, until is_due() is asked while nothing waits.
  void hurry() noexcept { idle_polls_per_check_ = 1; }
  // The next empty poll looks around.
  void check_at_once() noexcept {
    next_check_ns_ = 0;
    idle_polls_ = idle_polls_per_check_;
  }

 private:
  uint32_t idle_polls_ = 0;  // that found nothing, since the last look at the clock
  uint32_t idle_polls_per_check_ = 1;
  uint32_t busy_polls_ = 0;  // that found something, likewise
  uint64_t next_check_ns_ = 0;
};

}  // namespace weft::link::shm
