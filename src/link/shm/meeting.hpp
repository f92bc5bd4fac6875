// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Who copies which part of a message that both sides copy at once: the receiver takes grains from the front, the sender from the back, until they
// meet. One word in shared memory says how many each has taken, another how many the sender has written. Must not know how bytes are copied.
//
// A side takes half of what is left, within bounds, so that both end at about the same time. Who does not come, or is slow, does less. The sender
// takes before it writes and says so afterwards: while it has taken more than it has finished, it may be writing.
//
// The other side may store anything into both words at any time. Each side therefore counts its own grains by itself, and ends when the words
// contradict that: then the content of this message is lost between the two, but no range outside of it is ever answered.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/assert.hpp"
#include "link/shm/layout.hpp"

namespace weft::link::shm {

inline constexpr uint32_t meeting_grain_least = 4096;
inline constexpr uint32_t meeting_grains_max = 0x7fff;
inline constexpr uint64_t meeting_share_max = uint64_t{1} << 18;  // bytes that are taken at once
inline constexpr int meeting_attempts = 64;                       // that a compare-and-swap may lose in a row

// How a message of `total` bytes is cut.
struct MeetingCut {
  uint64_t total = 0;
  uint32_t grain = 0;

  bool is_sound() const noexcept {
    return total > 0 && grain >= meeting_grain_least && (total - 1) / grain < meeting_grains_max;
  }
  uint32_t grains() const noexcept {
    WEFT_ASSERT(is_sound());
    return static_cast<uint32_t>((total - 1) / grain) + 1;
  }
  uint32_t share(uint32_t left) const noexcept {
    WEFT_ASSERT(left != 0);
    const auto most = static_cast<uint32_t>(std::max<uint64_t>(meeting_share_max / grain, 1));
    return std::clamp(left / 2, uint32_t{1}, most);
  }
};

struct MeetingRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;  // 0: there is nothing to take
  uint32_t grains = 0;
};

namespace detail {
inline MeetingRange range_of(const MeetingCut& cut, uint32_t first, uint32_t count) noexcept {
  const uint64_t offset = uint64_t{first} * cut.grain;
  WEFT_ASSERT(count != 0 && offset < cut.total);
  return {offset, std::min(cut.total, offset + uint64_t{count} * cut.grain) - offset, count};
}
}  // namespace detail

// The receiver's half.
class MeetingFront {
 public:
  MeetingFront() = default;
  // Opens the meeting: from now on the sender may take. `generation` is not 0 and not one that the sender may still know.
  MeetingFront(MeetingWords& words, uint32_t generation, const MeetingCut& cut) noexcept
      : words_(&words), generation_(generation), cut_(cut) {
    WEFT_ASSERT(generation != 0 && cut.is_sound());
    words.finished.store(uint64_t{generation} << 32, std::memory_order_relaxed);
    words.taken.store(uint64_t{generation} << 32, std::memory_order_release);
  }
  explicit operator bool() const noexcept { return words_ != nullptr; }

  MeetingRange claim() noexcept {
    if (closed_) return {};
    uint64_t seen = words_->taken.load(std::memory_order_relaxed);
    for (int i = 0; i < meeting_attempts && has_generation(seen); ++i) {
      const uint32_t left = cut_.grains() - taken_ - back_of(seen);
      if (left == 0) return {};
      const uint32_t count = cut_.share(left);
      if (!words_->taken.compare_exchange_weak(seen, seen + (uint64_t{count} << 16),
                                               std::memory_order_acq_rel))
        continue;
      taken_ += count;
      WEFT_ASSERT(taken_ <= cut_.grains());
      return detail::range_of(cut_, taken_ - count, count);
    }
    close();
    return {};
  }
  // Nobody takes any more.
  void close() noexcept {
    if (closed_) return;
    closed_ = true;
    const uint64_t seen = words_->taken.exchange(0, std::memory_order_acq_rel);
    if (has_generation(seen)) back_ = back_of(seen);
    else broken_ = true;
  }

  enum class Sender : uint8_t { Through, Busy };
  // Whether the sender may still be writing. Through: it never will again. After claim() has found nothing, or close().
  Sender sender() noexcept { return judge(words_->finished.load(std::memory_order_acquire)); }
  // The same; when it is Busy, it will tell.
  Sender ask() noexcept { return judge(words_->finished.fetch_or(meeting_asked, std::memory_order_seq_cst)); }
  // With Through: what nobody has copied.
  MeetingRange rest() const noexcept {
    WEFT_ASSERT(closed_ && written_ <= back_);
    const uint32_t left = cut_.grains() - taken_;
    const uint32_t count = left - std::min(left, written_);
    return count == 0 ? MeetingRange{} : detail::range_of(cut_, taken_, count);
  }
  uint32_t taken() const noexcept { return taken_; }
  uint32_t written() const noexcept { return written_; }  // by the sender
  bool refused() const noexcept { return refused_; }      // it cannot write our memory

 private:
  static uint32_t back_of(uint64_t word) noexcept { return static_cast<uint32_t>(word & 0xffff); }
  bool has_generation(uint64_t word) const noexcept {
    return word >> 32 == generation_ && ((word >> 16) & 0xffff) == taken_ &&
           back_of(word) <= cut_.grains() - taken_;
  }
  Sender judge(uint64_t finished) noexcept {
    const auto written = static_cast<uint32_t>(finished & 0xffff);
    close();
    // Nonsense is what a hostile sender writes; then all of it is copied again.
    if (broken_ || finished >> 32 != generation_ || written > back_) {
      written_ = 0;
      return Sender::Through;
    }
    written_ = written;
    refused_ = (finished & meeting_failed) != 0;
    return written == back_ || refused_ ? Sender::Through : Sender::Busy;
  }

  MeetingWords* words_ = nullptr;
  uint32_t generation_ = 0;
  MeetingCut cut_;
  uint32_t taken_ = 0;
  uint32_t back_ = 0;     // what the sender had taken when it was closed
  uint32_t written_ = 0;  // and has written of that
  bool closed_ = false;
  bool broken_ = false;
  bool refused_ = false;
};

// The sender's half, for as long as a call that copies takes. `taken` grains were taken, and finished, in earlier calls.
class MeetingBack {
 public:
  MeetingBack(MeetingWords& words, uint32_t generation, const MeetingCut& cut, uint32_t taken = 0) noexcept
      : words_(words), generation_(generation), cut_(cut), taken_(std::min(taken, cut.grains())) {}

  MeetingRange claim() noexcept {
    uint64_t seen = words_.taken.load(std::memory_order_acquire);
    for (int i = 0; i < meeting_attempts; ++i) {
      const auto front = static_cast<uint32_t>((seen >> 16) & 0xffff);
      if (seen >> 32 != generation_ || (seen & 0xffff) != taken_ || front > cut_.grains() - taken_) return {};
      const uint32_t left = cut_.grains() - taken_ - front;
      if (left == 0) return {};
      const uint32_t count = cut_.share(left);
      if (!words_.taken.compare_exchange_weak(seen, seen + count, std::memory_order_acq_rel)) continue;
      taken_ += count;
      WEFT_ASSERT(taken_ <= cut_.grains());
      return detail::range_of(cut_, cut_.grains() - taken_, count);
    }
    return {};
  }
  // Nothing is left to take.
  bool is_over() const noexcept {
    const uint64_t seen = words_.taken.load(std::memory_order_relaxed);
    return seen >> 32 != generation_ || taken_ + ((seen >> 16) & 0xffff) >= cut_.grains();
  }
  // It is written. The release orders the bytes before it; pairs with MeetingFront::sender().
  void finish(const MeetingRange& range) noexcept { note(range.grains); }
  // It is not, and nothing more will be taken.
  void fail() noexcept { note(meeting_failed); }
  // After the last of these: the receiver waits to be told.
  bool asked() const noexcept { return asked_; }
  uint32_t taken() const noexcept { return taken_; }

 private:
  // Only of this meeting: the words may be the next one's by now, should the receiver have given this one up.
  void note(uint64_t what) noexcept {
    uint64_t seen = words_.finished.load(std::memory_order_relaxed);
    for (;;) {
      if (seen >> 32 != generation_) return;
      if (words_.finished.compare_exchange_weak(seen, seen + what, std::memory_order_seq_cst)) break;
    }
    asked_ = (seen & meeting_asked) != 0;
  }

  MeetingWords& words_;
  uint32_t generation_;
  MeetingCut cut_;
  uint32_t taken_ = 0;
  bool asked_ = false;
};

}  // namespace weft::link::shm
