// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// LossHistory: whether the path of a connection loses packets, by the acknowledgements in a row that told of no loss. Must not know packets.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weft::proto::reliable {

class LossHistory {
 public:
  static constexpr unsigned loss_free_min = 1000;  // acknowledgements until a new path is taken for good,
  static constexpr unsigned loss_free_after_loss = 10'000;  // and one that has lost something

  bool is_lossy() const noexcept { return is_lossy_; }  // it lost something, and has not been good since
  bool is_good() const noexcept { return loss_free_ >= (is_lossy_ ? loss_free_after_loss : loss_free_min); }
  // `before`: packets of the connection that were lost before this.
  void on_loss(uint64_t before) noexcept {
    if (!is_lossy_) {
      losses_before_ = before;
      loss_free_before_ = loss_free_;
    }
    loss_free_ = 0;
    is_lossy_ = true;
  }
  // Bytes arrived, and none were lost.
  void on_ack() noexcept {
    if (loss_free_ < loss_free_after_loss && ++loss_free_ == loss_free_after_loss) is_lossy_ = false;
  }
  // `lost`: packets of the connection that were lost so far, without those that turned out to have arrived. If none were, the path is again what it
  // was before.
  void on_correction(uint64_t lost) noexcept {
    if (!is_lossy_ || lost > losses_before_) return;
    is_lossy_ = false;
    loss_free_ = std::max(loss_free_, loss_free_before_);
  }

 private:
  unsigned loss_free_ = 0;         // acknowledgements in a row without a loss
  unsigned loss_free_before_ = 0;  // the same, before the path became lossy,
  uint64_t losses_before_ = 0;     // and what had been lost by then
  bool is_lossy_ = false;
};

}  // namespace weft::proto::reliable
