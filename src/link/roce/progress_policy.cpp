// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Decisions of the progress thread and of threads that sleep.
#include "link/roce/progress_policy.hpp"

namespace weft::link::roce {

void ProgressPolicy::limit_sleep(Sleep& sleep, uint64_t now, bool has_unsent, bool has_news) const noexcept {
  if (has_unsent || batches_) sleep.until = std::min(sleep.until, now + no_room_ns);
  if (sleep.is_aside) {
    // A timer that the program is late for must not keep the thread awake.
    sleep.until = std::max(std::min<uint64_t>(sleep.until, now + check_ns_), now + scaled(least_sleep_ns));
    return;
  }
  if (defers_acknowledgement_)
    sleep.until = std::min(sleep.until, timers_.get<Timer::DeferredAcknowledgement>());
  // What waits for the program's next call may wait so long for this thread.
  if (sleep.arms && is_active(now, scaled(active_ns)))
    sleep.until = std::min(sleep.until, now + scaled(check_ns_max));
  // A person who looks while nothing happens sees what happened last.
  if (has_news) sleep.until = std::min(sleep.until, timers_.get<Timer::Statistics>());
}

void ProgressPolicy::falls_asleep(Sleep& sleep, uint64_t now, const Armed& armed) noexcept {
  if (!sleep.is_aside) {
    sleep.until = std::min(sleep.until, armed.shm_due);
    if (!armed.may_sleep) sleep.until = armed.has_packets ? 0 : std::min(sleep.until, now + no_room_ns);
  }
  is_armed_ = !sleep.is_aside;
  timers_.at<Timer::ThreadWakes>() = std::max<uint64_t>(sleep.until, 1);
  // A program that polls runs the timers itself; where it stops, the thread sees that at its next look.
  timers_.at<Timer::QueuePairs>() = sleep.is_aside ? 0 : std::max<uint64_t>(sleep.until, 1);
  timers_.at<Timer::ThreadDue>() = sleep.until;
}

bool ProgressPolicy::skips_checks(uint64_t now) noexcept {
  if (defers_acknowledgement_ && is_due<Timer::DeferredAcknowledgement>(now)) return false;
  // The program's clock may be a moment ahead.
  if (!takes_itself(before_waking(now))) return false;
  check_ns_ = std::min<uint64_t>(2 * check_ns_, has_batched_ ? no_room_ns : scaled(check_ns_max));
  has_batched_ = false;
  const auto wakes_at = [&](uint64_t time) {
    timers_.at<Timer::ThreadWakes>() = time;
    timers_.at<Timer::ThreadDue>() = time;
  };
  wakes_at(now + check_ns_);
  // A program that began to batch meanwhile has seen the last time, which is over: the fence is that of batch().
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (batches_ && check_ns_ > no_room_ns) [[unlikely]] {
    check_ns_ = no_room_ns;
    wakes_at(now + check_ns_);
  }
  return true;
}

ProgressPolicy::Check ProgressPolicy::check(uint64_t now) noexcept {
  const uint64_t longest = has_batched_ ? no_room_ns : scaled(check_ns_max);
  has_batched_ = false;
  if (batches_ || (defers_acknowledgement_ && is_due<Timer::DeferredAcknowledgement>(now))) {
    check_ns_ = scaled(check_ns_min);
    return Check::Send;
  }
  if (takes_itself(before_waking(now))) {
    check_ns_ = std::min<uint64_t>(2 * check_ns_, longest);
    return Check::Nothing;
  }
  return Check::Take;
}

void ProgressPolicy::checked(uint64_t now, int packets, bool is_one_sided) noexcept {
  if (packets != 0) check_ns_ = scaled(check_ns_min);
  if (is_active(before_waking(now), scaled(active_ns)) && !is_one_sided) return;
  is_aside_ = false;
  slept_instead_ = false;
  vain_ = 0;
}

bool ProgressPolicy::goes_on(Turn& turn, bool sends_more) noexcept {
  const bool is_first = turn.is_first;
  turn.is_first = false;
  if (turn.packets == 0 && !sends_more) {
    if (!is_first && turn.is_polling && vain_ != 0) --vain_;  // the end of a turn
    return false;
  }
  // Nobody polls for one-sided operations, but a program that waits for a completion takes them, too.
  if (!turn.is_polling || (turn.is_one_sided && !polls_now(turn.now))) vain_ = 0;
  return true;
}

bool ProgressPolicy::program_sleep_begins(const ProgramSleep& sleep) noexcept {
  has_sleeper_ = true;
  sleeping_thread_ = sleep.thread;
  ++sleeps_;
  const bool wakes = !is_aside_;
  is_aside_ = true;
  return wakes;
}

bool ProgressPolicy::program_sleep_ends(const ProgramSleep& sleep, uint64_t now,
                                        bool armed_by_other) noexcept {
  has_sleeper_ = false;
  check_ns_ = scaled(check_ns_max);
  // A thread that polls takes what is for this one, too, and is not to wake it for each packet.
  slept_instead_ = !sleep.is_vain();
  if (!slept_instead_) return true;  // the progress thread looks whether that thread goes on polling
  last_.at<Last::Poll>() = now;
  if (armed_by_other || waiters_ != 0) {
    is_aside_ = false;
    return true;
  }
  return timers_.get<Timer::ThreadWakes>() > now + scaled(check_ns_max);
}

}  // namespace weft::link::roce
