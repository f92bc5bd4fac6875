// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Trials and their account.
#include "link/shm/copy_chooser.hpp"

#include <algorithm>
#include <cstddef>

namespace weft::link::shm {
namespace {

constexpr uint64_t mib = uint64_t{1} << 20;
constexpr int64_t balance_batches = 8;  // batches' worth that can be saved up
// After the way has changed: what the sender has put into the ring already comes in no time, what both sides are still at shares
// its time with others.
constexpr uint32_t warm_up_messages = 3;
constexpr uint64_t warm_up_bytes = uint64_t{3} << 19;
constexpr uint64_t warm_up_bytes_max = uint64_t{6} << 20;
constexpr uint32_t hopeless_after = 3;   // samples, all of them half as long again as the best way
constexpr ptrdiff_t pairs_least = 4;     // samples of a batch that are not like the others
constexpr uint32_t other_path_max = 96;  // then a trial ends without a result
constexpr uint32_t fruitless_max = 4;    // first trials without one that are tried again at once

uint64_t per_mib(uint64_t ticks, uint64_t bytes) noexcept {
  return static_cast<uint64_t>(static_cast<double>(ticks) * static_cast<double>(mib) /
                               static_cast<double>(std::max<uint64_t>(bytes, 1)));
}
int64_t of_bytes(uint64_t cost, uint64_t bytes) noexcept {
  return static_cast<int64_t>(static_cast<double>(cost) * static_cast<double>(bytes) /
                              static_cast<double>(mib));
}
// Better by so much that noise does not decide: 1/16.
bool beats(uint64_t cost, uint64_t other) noexcept { return cost + cost / 16 < other; }

}  // namespace

void CopyChooser::begin(Phase phase) noexcept {
  const CopyPath before = path();
  phase_ = phase;
  warm_up_left_ = path() != before ? warm_up_messages + 1 : 0;
  seen_ = 0;
  bytes_ = 0;
  other_path_ = 0;
}

// Median of a whole batch. Of a few messages the least: the others may have been interrupted.
uint64_t CopyChooser::result() const noexcept {
  std::array<uint64_t, batch> sorted = sample_;
  const auto median = [&](uint32_t first) {
    auto* const middle = sorted.begin() + first + (seen_ < batch ? 0 : (seen_ - first) / 2);
    std::nth_element(sorted.begin() + first, middle, sorted.begin() + seen_);
    return *middle;
  };
  const uint64_t usual = median(0);
  if (seen_ < batch) return usual;
  // Two sides that copy a message each are done with two at about the same time: a long sample and one of nearly nothing. Then each
  // counts with the one before it.
  const auto others = std::count_if(sample_.begin(), sample_.end(), [usual](uint64_t one) {
    return std::max(one, usual) / 3 > std::min(one, usual);
  });
  if (others < pairs_least) return usual;
  for (uint32_t i = 1; i < seen_; ++i) sorted[i] = (sample_[i] + sample_[i - 1]) / 2;
  return median(1);
}

bool CopyChooser::is_hopeless() const noexcept {
  const uint64_t best = costs_[static_cast<size_t>(best_)];
  return phase_ == Phase::Trial && seen_ >= hopeless_after &&
         std::all_of(sample_.begin(), sample_.begin() + seen_,
                     [&](uint64_t cost) { return cost > best + best / 2; });
}

// So many bytes went by another way than the best one, at that cost. Medians: a message that was interrupted would have been by any way.
void CopyChooser::charge(uint64_t cost, uint64_t bytes) noexcept {
  const uint64_t best = cost_of(best_);
  if (best == 0 || cost <= best) return;
  const int64_t over = of_bytes(cost - best, bytes);
  lost_ += static_cast<uint64_t>(over);
  balance_ -= over;
}

bool CopyChooser::note(CopyPath used, uint64_t ticks, uint64_t bytes) noexcept {
  const CopyPath before = path();
  ++messages_;
  ticks_ += ticks;
  ++since_trial_;
  if (used == best_) {
    const int64_t usual = of_bytes(cost_of(best_), bytes);
    if (balance_ < balance_batches * int64_t{batch} * usual)
      balance_ += usual / static_cast<int64_t>(budget_share);
  } else {
    ++trial_messages_;
    if (used != before) charge(cost_of(used), bytes);
  }
  if (used != before) {
    (void)pass();
    return path() != before;
  }
  bytes_ += bytes;
  if (warm_up_left_ != 0) {
    if (warm_up_left_ > 1) --warm_up_left_;
    if ((warm_up_left_ == 1 && bytes_ >= warm_up_bytes) || bytes_ >= warm_up_bytes_max) warm_up_left_ = 0;
    return false;
  }
  sample_[seen_++] = per_mib(ticks, bytes);
  if (seen_ == batch || is_hopeless()) end_batch();
  if (phase_ == Phase::Steady && seen_ == 0 && pick_trial(bytes)) begin(Phase::Trial);
  return path() != before;
}

bool CopyChooser::pass() noexcept {
  const CopyPath before = path();
  if (phase_ != Phase::Steady && ++other_path_ > other_path_max) {
    since_trial_ = 0;
    if (++fruitless_ <= fruitless_max) tried_ &= ~(uint32_t{1} << static_cast<uint32_t>(trial_));
    begin(Phase::Steady);
  }
  return path() != before;
}

void CopyChooser::end_batch() noexcept {
  const uint64_t cost = result();
  switch (phase_) {
    case Phase::Steady: {
      cost_of(best_) = cost;
      surprised_ = cost_at_trial_ != 0 &&
                   (cost > cost_at_trial_ + cost_at_trial_ / 4 || cost < cost_at_trial_ - cost_at_trial_ / 4);
      begin(Phase::Steady);
      return;
    }
    case Phase::Trial:
      cost_of(trial_) = cost;
      charge(cost, bytes_);
      if (beats(cost, cost_of(best_))) return begin(Phase::Compare);
      break;
    case Phase::Compare:
      cost_of(best_) = cost;
      if (beats(cost_of(trial_), cost)) return begin(Phase::Again);
      break;
    case Phase::Again:
      cost_of(trial_) = cost;
      charge(cost, bytes_);
      if (beats(cost, cost_of(best_))) {
        best_ = trial_;
        ++changes_;
      }
      break;
  }
  since_trial_ = 0;
  cost_at_trial_ = cost_of(best_);
  surprised_ = false;
  begin(Phase::Steady);
}

// Whether a trial begins, and of which way: each in its turn.
bool CopyChooser::pick_trial(uint64_t bytes) noexcept {
  if (messages_ < messages_at_first || cost_of(best_) == 0) return false;
  CopyPath next = best_;
  for (size_t i = 1; i <= proto::copy_paths && next == best_; ++i) {
    const auto candidate = static_cast<CopyPath>((static_cast<size_t>(last_tried_) + i) % proto::copy_paths);
    if (is_possible(candidate) && candidate != best_) next = candidate;
  }
  if (next == best_) return false;
  const uint32_t bit = uint32_t{1} << static_cast<uint32_t>(next);
  if ((tried_ & bit) != 0) {
    if (!surprised_ && since_trial_ < messages_apart) return false;
    // What was measured of the other way may be as outdated as what is known of the best one.
    const auto best = static_cast<int64_t>(cost_of(best_));
    const int64_t over = surprised_ ? best / 2 : static_cast<int64_t>(cost_of(next)) - best;
    const auto settling =
        std::clamp<int64_t>(static_cast<int64_t>(warm_up_bytes / bytes), 1, warm_up_messages);
    const int64_t messages = settling + (over > best / 2 ? hopeless_after : batch);
    if (balance_ < 0 ||
        balance_ < of_bytes(static_cast<uint64_t>(std::clamp(over, int64_t{0}, 4 * best)), bytes) * messages)
      return false;
  }
  tried_ |= bit;
  last_tried_ = trial_ = next;
  ++trials_;
  return true;
}

void CopyChooser::exclude(CopyPath path) noexcept {
  paths_ &= ~(uint32_t{1} << static_cast<uint32_t>(path));
  if (best_ == path) {
    for (size_t i = 0; i < proto::copy_paths; ++i) {
      const auto candidate = static_cast<CopyPath>(i);
      if (is_possible(candidate) &&
          (best_ == path || (cost_of(candidate) != 0 && cost_of(candidate) < cost_of(best_))))
        best_ = candidate;
    }
    ++changes_;
  }
  since_trial_ = 0;
  begin(Phase::Steady);
}

}  // namespace weft::link::shm
