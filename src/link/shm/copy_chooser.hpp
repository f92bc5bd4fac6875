// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which way messages of one peer and size class are copied: by what each way took lately. Fed with what was measured, answers the way of the
// next message. Must not know clocks, shared memory or peers.
//
// The best way is compared with the others in trials, by medians of batches: a trial of a way is a batch of messages, then a batch by the best way,
// then a batch of the trial again. A way that is better in both by hysteresis becomes the best. What trials cost beyond the best way is counted;
// after the first trial of each way, one begins only when 1/budget_share of all time since then pays for it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "proto/engine/remote_access.hpp"

namespace weft::link::shm {

using proto::CopyPath;

// Size classes: powers of two. Class c holds messages above 2^(c + 12) bytes, up to 2^(c + 13); the last one all that are longer.
inline constexpr size_t copy_classes = 12;
inline constexpr uint64_t copy_class_least = uint64_t{1} << 13;  // shorter messages have none
constexpr size_t copy_class_of(uint64_t bytes) noexcept {
  if (bytes <= copy_class_least) return 0;
  const auto c = static_cast<size_t>(std::bit_width(bytes - 1)) - 13;
  return c < copy_classes ? c : copy_classes - 1;
}

class CopyChooser {
 public:
  static constexpr uint32_t batch = 9;               // messages, behind those that warm up
  static constexpr uint32_t messages_at_first = 16;  // before the first trial
  static constexpr uint32_t messages_apart = 512;    // at least, between two trials
  static constexpr uint64_t budget_share = 192;

  // `paths`: those that are possible, a bit for each CopyPath; `start` is one of them.
  CopyChooser(CopyPath start, uint32_t paths) noexcept : paths_(paths), best_(start) {
    if (start == CopyPath::Ring) last_tried_ = CopyPath::Receiver;
  }

  // For the next message.
  CopyPath path() const noexcept { return phase_ == Phase::Trial || phase_ == Phase::Again ? trial_ : best_; }
  CopyPath best() const noexcept { return best_; }
  // Each way that is possible had a trial.
  bool is_informed() const noexcept {
    return trials_ != 0 && phase_ == Phase::Steady &&
           (paths_ & ~tried_ & ~(uint32_t{1} << static_cast<uint32_t>(best_))) == 0;
  }
  // A message was copied in so many ticks. True: path() is another one now.
  bool note(CopyPath used, uint64_t ticks, uint64_t bytes) noexcept;
  // One came that says nothing about any way. True: path() is another one now.
  bool pass() noexcept;
  // That way is possible no longer; the best one of the others is taken.
  void exclude(CopyPath path) noexcept;

  // --- to show ---
  // Median of the last batch, in ticks for a MiB; 0: never measured.
  uint64_t cost(CopyPath path) const noexcept { return costs_[static_cast<size_t>(path)]; }
  uint64_t messages() const noexcept { return messages_; }
  uint64_t trial_messages() const noexcept { return trial_messages_; }
  uint32_t trials() const noexcept { return trials_; }
  uint32_t changes() const noexcept { return changes_; }
  // Ticks of all messages, and those that trials cost beyond the best way.
  uint64_t ticks() const noexcept { return ticks_; }
  uint64_t lost_ticks() const noexcept { return lost_; }

 private:
  enum class Phase : uint8_t { Steady, Trial, Compare, Again };
  bool is_possible(CopyPath path) const noexcept { return (paths_ >> static_cast<uint32_t>(path) & 1) != 0; }
  uint64_t& cost_of(CopyPath path) noexcept { return costs_[static_cast<size_t>(path)]; }
  void charge(uint64_t cost, uint64_t bytes) noexcept;
  bool pick_trial(uint64_t bytes) noexcept;
  void begin(Phase phase) noexcept;
  uint64_t result() const noexcept;
  void end_batch() noexcept;
  bool is_hopeless() const noexcept;

  uint32_t paths_;
  CopyPath best_;
  CopyPath trial_ = CopyPath::Ring;
  CopyPath last_tried_ = CopyPath::Both;  // so the ring is tried first, or both
  Phase phase_ = Phase::Steady;
  uint32_t warm_up_left_ = 0;  // 0: messages are measured; else one more than are to pass before that
  uint32_t seen_ = 0;          // messages of this batch
  uint64_t bytes_ = 0;         // of these, and of those before that were not counted
  uint32_t other_path_ = 0;    // messages that came another way than asked for
  std::array<uint64_t, batch> sample_{};
  std::array<uint64_t, proto::copy_paths> costs_{};
  uint64_t cost_at_trial_ = 0;  // of the best way, when the last trial ended
  uint32_t fruitless_ = 0;      // first trials without a result
  uint32_t tried_ = 0;          // a bit for each way that had its first trial
  uint32_t since_trial_ = 0;    // messages
  bool surprised_ = false;      // the best way takes another time than it did
  int64_t balance_ = 0;         // ticks that trials may cost
  uint64_t messages_ = 0, trial_messages_ = 0, ticks_ = 0, lost_ = 0;
  uint32_t trials_ = 0, changes_ = 0;
};

}  // namespace weft::link::shm
