// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// PollScheduler: at which polls of a composite link the remote side is polled, too. To poll it enters the kernel, to poll the local side does not.
// docs/composite.md has the rules ("Progress").
//
//   each poll      on_local_poll(), then is_due(): the link calls check()
//   check()         true: the link polls the remote side and calls remote_polled(), after on_remote_frames() if frames came
//   expect_remote() when the remote side was sent to or has work
//
// Every look reads the clock, so it is any counter with a constant rate: calibrate() takes the rate once it is known. Must not know links or clocks.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weft::link::composite {

class PollScheduler {
 public:
  // For so long after frames came or went on the remote side it is polled at each poll: an exchange goes on.
  static constexpr uint64_t remote_hot_ns = 50'000;
  // For so long after a frame of the local side that side is busy: its next frame is near, and a system call would delay it.
  static constexpr uint64_t local_busy_ns = 100'000;
  // Between two polls of a remote side that is not hot: a sixteenth of the time since its last frame, within bounds. The first two are for a busy
  // local side, the others for one that is not.
  static constexpr uint64_t silence_per_pause = 16;
  static constexpr uint64_t busy_pause_ns_min = 10'000;
  static constexpr uint64_t busy_pause_ns_max = 100'000;
  static constexpr uint64_t idle_pause_ns_min = 1'000;
  static constexpr uint64_t idle_pause_ns_max = 3'000;
  // Between two looks at the clock, about: the count of polls per look doubles below it and halves above it.
  static constexpr uint64_t check_ns = 500;
  // The most polls per look, since the next one may take long.
  static constexpr uint32_t polls_per_check_max = 16;
  // Polls per look of a hot remote side while frames of the local side come, too.
  static constexpr uint32_t polls_per_check_shared = 4;
  // The clock's rate until calibrate(): a time stamp counter of 3 GHz.
  static constexpr uint64_t units_per_us_assumed = 3'000;

  constexpr PollScheduler() noexcept { calibrate(units_per_us_assumed); }
  // Units of the clock in a microsecond; a clock of nanoseconds has 1,000.
  constexpr void calibrate(uint64_t units_per_us) noexcept {
    const auto units = [&](uint64_t ns) { return ns * units_per_us / 1'000; };
    remote_hot_ = units(remote_hot_ns);
    local_busy_ = units(local_busy_ns);
    busy_pause_ = {units(busy_pause_ns_min), units(busy_pause_ns_max)};
    idle_pause_ = {units(idle_pause_ns_min), units(idle_pause_ns_max)};
    check_ = units(check_ns);
  }

  // --- each poll ---
  // `taken`: frames of the local side.
  [[gnu::always_inline]] void on_local_poll(int taken) noexcept {
    local_frames_ |= static_cast<uint32_t>(taken);
  }
  [[gnu::always_inline]] bool is_due() noexcept { return --polls_left_ == 0; }

  // --- a look ---
  // `local_burst`: a number that changes with the frames that the local side sends and takes, where it counts them. `has_local`: otherwise the remote
  // side is polled every time. True: poll the remote side now.
  bool check(uint64_t now, bool has_local, uint32_t local_burst) noexcept {
    const bool local_spoke = local_frames_ != 0 || local_burst != local_burst_;
    local_frames_ = 0;
    local_burst_ = local_burst;
    if (local_spoke) local_heard_ = now;
    // A program that polls rarely gets to the remote side as often as one that polls in a loop.
    polls_per_check_ = now - checked_ < check_ ? std::min(2 * polls_per_check_, polls_per_check_max)
                                               : std::max(polls_per_check_ / 2, 1U);
    checked_ = now;
    polls_left_ = polls_per_check_;
    polls_if_hot_ = has_local && local_spoke ? polls_per_check_shared : 1;
    const uint64_t silence = now - remote_heard_;
    is_hot_ = !has_local || silence < remote_hot_;
    if (!is_hot_ && waits(now, silence)) return false;
    remote_polled_ = now;
    return true;
  }
  void on_remote_frames(uint64_t now) noexcept {
    remote_heard_ = now;
    is_hot_ = true;
  }
  void remote_polled() noexcept {
    if (is_hot_) polls_left_ = polls_if_hot_;
  }

  // --- the remote side has work: a frame that it buffers until its next poll, an answer that is likely ---
  bool is_remote_next() const noexcept { return polls_left_ == 1; }
  void expect_remote(uint64_t now) noexcept {
    polls_left_ = 1;
    remote_heard_ = now;
  }

 private:
  struct Bounds {
    uint64_t min = 0;
    uint64_t max = 0;
  };
  bool waits(uint64_t now, uint64_t silence) const noexcept {
    const Bounds& bounds = now - local_heard_ < local_busy_ ? busy_pause_ : idle_pause_;
    const uint64_t since = now - remote_polled_;
    return since < bounds.min || (since < bounds.max && since < silence / silence_per_pause);
  }

  // Each poll reads these two.
  uint32_t local_frames_ = 0;  // not 0: frames of the local side came since the last look
  uint32_t polls_left_ = 1;    // until the next look
  // Cold below.
  uint32_t polls_per_check_ = 1;
  uint32_t polls_if_hot_ = 1;  // until the next look, if the remote side is hot when it has been polled
  uint32_t local_burst_ = 0;   // at the last look
  bool is_hot_ = true;         // at the last look, or by the frames that it found
  uint64_t checked_ = 0;       // when the last look was
  uint64_t local_heard_ = 0;   // the last look that found frames of the local side
  uint64_t remote_heard_ = 0;  // when frames came or went on the remote side
  uint64_t remote_polled_ = 0;
  // The constants in units of the clock.
  uint64_t remote_hot_ = 0, local_busy_ = 0;
  Bounds busy_pause_, idle_pause_;
  uint64_t check_ = 0;
};

}  // namespace weft::link::composite
