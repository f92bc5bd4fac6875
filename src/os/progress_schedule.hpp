// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// ProgressSchedule: when a progress thread (os::ProgressThread) works, stands aside, sleeps and rests, and how long it pauses before it takes the
// lock again. docs/progress.md has the rules ("The thread").
//
// The thread tells it each event and does what it decides:
//   each turn         turn(): the state
//   Aside             pause(check_after_ns()), then the lock if it is free. If it is held: found_lock_held()
//   Working           progress() of each endpoint, worked(); then falls_asleep() if all are armed, else retry_after_ns()
//   Asleep, Resting   sleep, then woke(): the pause before the next turn
//   any time          notified(): an endpoint has new background work
//
// All calls with the lock of the endpoints, but check_after_ns() and found_lock_held(), which share no member with notified(). Times are nanoseconds of
// one clock that never goes back. Must not know endpoints, threads, locks or clocks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/assert.hpp"

namespace weft::os {

class ProgressSchedule {
 public:
  enum class Duty : uint8_t {
    Everything,      // FI_PROGRESS_AUTO
    BackgroundWork,  // FI_PROGRESS_MANUAL: only while an endpoint has background work
  };
  enum class State : uint8_t {
    Aside,  // the program polls: the thread looks now and then, and serves the endpoints that were not polled
    Working,  // progress() of the endpoints, until they may be slept on
    Asleep,   // on the endpoints' descriptors, all armed
    Resting,  // Duty::BackgroundWork: no endpoint has background work. Also before the first turn
  };

  // Nanoseconds from a look to the next one, while the program polls: the first, doubled by each look that finds nothing to serve, up to the second.
  static constexpr int64_t check_ns_min = 1'000'000;
  static constexpr int64_t check_ns_max = 4'000'000;
  // Looks in a row that may find the lock held, where there are several endpoints: a program that polls one of them holds it nearly all the time.
  static constexpr unsigned held_checks_max = 2;
  // Likewise with one endpoint, which the thread that holds the lock polls, as a rule.
  static constexpr unsigned held_checks_max_alone = 16;
  // Nanoseconds from the last background work until the thread rests: a program that sends now and then wakes it once, not for each message.
  static constexpr uint64_t rest_after_ns = 20'000'000;
  // Nanoseconds that the thread pauses after a wake-up by new background work: the program has just called, and may call again.
  static constexpr int64_t pause_ns_after_wake = 200'000;
  // Nanoseconds likewise after other wake-ups, with Duty::BackgroundWork: a thread of the program that sleeps on the same endpoint is woken by the
  // same event, and goes first.
  static constexpr int64_t yield_ns = 100'000;
  // Attempts in a row on endpoints that cannot be slept on, after each of which the thread yields the CPU. Then it pauses.
  static constexpr unsigned yields_max = 16;
  // Attempts until that pause doubles: a peer may have no room for hours.
  static constexpr unsigned attempts_per_pause = 4;
  // Nanoseconds of the first and of the longest such pause.
  static constexpr int64_t pause_ns_min = 20'000;
  static constexpr int64_t pause_ns_max = 16'000'000;

  constexpr explicit ProgressSchedule(Duty duty) noexcept : duty_(duty) {}

  Duty duty() const noexcept { return duty_; }
  State state() const noexcept { return state_; }

  struct Turn {
    bool is_polled = false;    // the program has polled an endpoint since the last turn
    bool has_served = false;   // something came to the endpoints that it has not polled
    bool has_several = false;  // the thread has two endpoints or more
    // Duty::BackgroundWork only:
    bool has_background_work = false;  // an endpoint has
    uint64_t now = 0;
  };
  // Aside, Working or Resting.
  State turn(const Turn& turn) noexcept {
    WEFT_ASSERT(!turn.has_served || turn.is_polled);
    if (turn.has_served) check_ns_ = check_ns_min;
    if (duty_ == Duty::BackgroundWork) {
      if (turn.has_background_work || state_ == State::Resting) worked_at_ns_ = turn.now;
      if (!turn.has_background_work && turn.now - worked_at_ns_ >= rest_after_ns) return rest();
    }
    const bool is_idle = duty_ == Duty::BackgroundWork && !turn.has_background_work;
    return turn.is_polled || is_idle ? stand_aside(turn.has_several) : work();
  }

  // --- Aside ---
  // Until the next look.
  int64_t check_after_ns() noexcept {
    WEFT_ASSERT(state_ == State::Aside);
    const int64_t pause_ns = check_ns_;
    check_ns_ = std::min(2 * check_ns_, check_ns_max);
    return pause_ns;
  }
  // At that look, by a thread that is at work, perhaps on another endpoint. True: wait for the lock, ahead of other threads. Else look again.
  bool found_lock_held() noexcept {
    WEFT_ASSERT(state_ == State::Aside && held_checks_left_ != 0);
    return --held_checks_left_ == 0;
  }

  // --- Working ---
  // `came`: something came to an endpoint.
  void worked(bool came) noexcept {
    WEFT_ASSERT(state_ == State::Working);
    if (came) unarmed_ = 0;
  }
  void falls_asleep() noexcept {
    WEFT_ASSERT(state_ == State::Working);
    state_ = State::Asleep;
    unarmed_ = 0;
    is_notified_ = false;
  }
  // The endpoints cannot be slept on: there is work at once, or a peer has no room. The pause before the next turn; 0: yield the CPU.
  int64_t retry_after_ns() noexcept {
    WEFT_ASSERT(state_ == State::Working);
    if (unarmed_++ < yields_max) return 0;
    const unsigned doublings = std::min((unarmed_ - yields_max) / attempts_per_pause, 10U);
    return std::min(pause_ns_min << doublings, pause_ns_max);
  }

  // --- Asleep, Resting ---
  void notified() noexcept { is_notified_ = true; }
  // `has_sleepers`: threads of the program sleep on an endpoint. Duty::BackgroundWork only. The pause before the next turn; 0: none.
  int64_t woke(bool has_sleepers) noexcept {
    WEFT_ASSERT(state_ == State::Asleep || state_ == State::Resting);
    check_ns_ = check_ns_min;
    if (is_notified_) return pause_ns_after_wake;
    return duty_ == Duty::BackgroundWork && has_sleepers ? yield_ns : 0;
  }

 private:
  State stand_aside(bool has_several) noexcept {
    held_checks_left_ = has_several ? held_checks_max : held_checks_max_alone;
    return state_ = State::Aside;
  }
  State work() noexcept {
    check_ns_ = check_ns_min;
    return state_ = State::Working;
  }
  State rest() noexcept {
    is_notified_ = false;
    return state_ = State::Resting;
  }

  Duty duty_;
  State state_ = State::Resting;
  bool is_notified_ = false;         // of background work, since the thread slept or rested last
  unsigned held_checks_left_ = 0;    // looks that may still find the lock held, while aside
  unsigned unarmed_ = 0;             // attempts in a row that ended in retry_after_ns()
  int64_t check_ns_ = check_ns_min;  // from now to the next look, nanoseconds
  uint64_t worked_at_ns_ = 0;        // the last turn with background work, or the first after a rest
};

}  // namespace weft::os
