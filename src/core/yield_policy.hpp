// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// When a thread yields its CPU after empty polls (docs/progress.md). Must not know clocks, system calls, or who polls: the caller passes the time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weft::core {

// The values of WEFT_YIELD, in the order of its words.
enum class YieldMode : uint8_t { Auto = 1, Never, Always };

// sched_yield(2) helps when the thread that runs next is a poller, too: it polls, finds nothing or answers, and yields in its turn. It harms when the
// thread that runs next computes: that one keeps the CPU for its slice, milliseconds, while the peer may have answered already. The policy
// therefore yields early only when another poller is known to share the CPU. Otherwise it spins for spin_ns after the last arrival, tries one yield,
// and learns from the time that the call took who ran.
class YieldPolicy {
 public:
  static constexpr uint32_t polls_min = 64;
  static constexpr uint32_t polls_max = 4096;
  // From the last arrival to the first yield.
  static constexpr uint64_t spin_ns = 100'000;
  // What a yield took: in a shorter one no other thread ran; in a shorter one perhaps none did; in a longer one a thread ran that does not poll.
  static constexpr uint64_t unwanted_ns = 2'000;
  static constexpr uint64_t doubtful_ns = 20'000;
  static constexpr uint64_t slice_ns = 1'000'000;
  // Without a yield after one of the last kind; twice as long each time.
  static constexpr uint64_t pause_ns_min = 10'000'000;
  static constexpr uint64_t pause_ns_max = 500'000'000;
  // So many between the two, in a row: another poller shares this CPU.
  static constexpr unsigned short_yields_to_share = 2;

  explicit constexpr YieldPolicy(YieldMode mode) noexcept : mode_(mode) {}

  YieldMode mode() const noexcept { return mode_; }

  // After polls() empty polls. `arrived`: something came since the last call. `shared`: another poller last ran on this CPU. True: the caller
  // yields and calls yielded().
  bool wants_yield(uint64_t now_ns, bool arrived, bool shared) noexcept {
    if (arrived) waits_since_ns_ = now_ns;
    is_shared_ = shared;
    if (mode_ == YieldMode::Always) return true;
    if (mode_ == YieldMode::Never) {
      polls_ = polls_max;
      return false;
    }
    if (shared || learned_) {
      if (spins_) polls_ = polls_min;
      spins_ = false;
      return true;
    }
    spin(now_ns, arrived);
    return now_ns - waits_since_ns_ >= spin_ns && now_ns >= paused_until_ns_;
  }

  // The last yield took a time that a slow system call may take as well as a short run of another poller: whether another thread ran (the count of
  // context switches) is worth a system call at the next one.
  bool is_in_doubt() const noexcept { return in_doubt_; }

  // `switched`: whether another thread ran; read only when is_in_doubt() was true before the yield. `poller_ran`: whether a thread ran here meanwhile that is
  // known to poll; read only for a yield of slice_ns or more.
  void yielded(uint64_t began_ns, uint64_t ended_ns, bool switched, bool poller_ran) noexcept {
    const uint64_t took = ended_ns - began_ns;
    const bool known = in_doubt_;
    waits_since_ns_ = checked_ns_ = ended_ns;
    in_doubt_ = spins_ && took > unwanted_ns && took < doubtful_ns;
    if (took <= unwanted_ns || (in_doubt_ && !(known && switched))) on_nobody();
    else if (took < slice_ns) on_poller();
    else if (poller_ran) polls_ = spins_ ? polls_ : polls_min;
    else on_other(ended_ns);
  }

  // Empty polls until the next wants_yield().
  uint32_t polls() const noexcept { return polls_; }

 private:
  // The clock is read every 5 to 20 us: polls take nanoseconds (shared memory) to microseconds (sockets).
  void spin(uint64_t now_ns, bool arrived) noexcept {
    constexpr uint64_t check_ns_min = 5'000;
    constexpr uint64_t check_ns_max = 20'000;
    constexpr uint32_t check_polls_max = 1024;
    if (!spins_) polls_ = polls_min;
    else if (!arrived && now_ns - checked_ns_ < check_ns_min) polls_ = std::min(2 * polls_, check_polls_max);
    else if (!arrived && now_ns - checked_ns_ > check_ns_max) polls_ = std::max(polls_ / 2, polls_min);
    spins_ = true;
    checked_ns_ = now_ns;
  }

  void on_nobody() noexcept {
    short_yields_ = 0;
    if (spins_) return;
    polls_ = std::min(2 * polls_, polls_max);
    if (polls_ == polls_max) learned_ = false;
  }
  void on_poller() noexcept {
    if (!spins_) polls_ = polls_min;
    if (is_shared_ || mode_ != YieldMode::Auto) return;
    if (++short_yields_ < short_yields_to_share || learned_) return;
    learned_ = true;
    pause_ns_ /= 2;
  }
  void on_other(uint64_t now_ns) noexcept {
    if (!spins_) polls_ = polls_min;
    short_yields_ = 0;
    learned_ = false;
    pause_ns_ = std::clamp(2 * pause_ns_, pause_ns_min, pause_ns_max);
    paused_until_ns_ = now_ns + pause_ns_;
  }

  YieldMode mode_;
  bool is_shared_ = false;  // of the yield that is due
  bool learned_ = false;    // another poller shares this CPU, by the time that yields took
  bool in_doubt_ = false;
  bool spins_ = false;  // polls_ is an interval between two looks at the clock
  unsigned short_yields_ = 0;
  uint32_t polls_ = polls_min;
  uint64_t waits_since_ns_ = 0;  // the last arrival, or yield
  uint64_t checked_ns_ = 0;
  uint64_t pause_ns_ = 0;
  uint64_t paused_until_ns_ = 0;
};

}  // namespace weft::core
