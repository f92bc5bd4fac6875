// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "os/tick_clock.hpp"

#include <algorithm>

#include "arch/steady_ticks.hpp"
#include "os/clock.hpp"

namespace weft::os {

namespace {

constexpr uint64_t measured_ns = 2'000'000;      // the shortest time that the rate is measured over
constexpr uint64_t mark_ns_max = 1'000'000'000;  // then it begins anew: the system's clock is slewed
constexpr uint64_t pair_ns_max = 2'000;          // a look that was interrupted says nothing of the rate

}  // namespace

TickClock::TickClock() noexcept : is_steady_(arch::ticks_are_steady()) {}

[[gnu::noinline, gnu::cold]] uint64_t TickClock::check() noexcept {
  const uint64_t reached = ns_ + scaled(valid_ticks_);  // not before what was said
  const uint64_t before = monotonic_ns();
  const uint64_t ticks = arch::ticks();
  const uint64_t now = monotonic_ns();
  ns_ = std::max(now, reached);
  ticks_ = ticks;
  if (!is_steady_ || now - before > pair_ns_max) return ns_;
  const uint64_t since = now - mark_ns_;
  const bool is_behind = ticks <= mark_ticks_;  // nothing was measured yet, or the machine was moved
  if (is_behind) valid_ticks_ = 0;
  if (!is_behind && since >= measured_ns && since < uint64_t{1} << 32) {
    ns_per_tick_ = std::max<uint64_t>((since << 32) / (ticks - mark_ticks_), 1);
    valid_ticks_ = (valid_ns << 32) / ns_per_tick_;
  }
  if (is_behind || since > mark_ns_max) {
    mark_ns_ = now;
    mark_ticks_ = ticks;
  }
  return ns_;
}

}  // namespace weft::os
