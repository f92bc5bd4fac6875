// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// LossWindow: no limit until a loss costs a timeout, a second attempt or a probe; then the congestion window of TCP (RFC 5681), in packets, until
// it has grown to its bound. For RC: what the way to the responder or its receive ring holds may be less than the bound.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "proto/congestion/controller.hpp"

namespace weft::proto::congestion {

class LossWindow {
 public:
  static constexpr uint32_t unlimited = UINT32_MAX;

  void configure(uint32_t bound) noexcept { bound_ = bound; }
  uint32_t allowed() const noexcept { return allowed_; }  // packets, or `unlimited`

  void on_ack(uint32_t packets) noexcept {
    if (allowed_ == unlimited) return;
    WEFT_ASSERT(allowed_ != 0);
    packets = std::min(packets, bound_);
    if (allowed_ < threshold_) {
      allowed_ = std::min(allowed_ + packets, std::max(threshold_, 1U));
    } else if ((grown_ += packets) >= allowed_) {
      grown_ = 0;
      ++allowed_;
    }
    if (allowed_ >= bound_) allowed_ = unlimited;
  }
  void on_loss(LossSign sign, uint32_t in_flight) noexcept {
    const uint32_t window = std::min(allowed_, bound_);
    switch (sign) {
      case LossSign::
          Gap:  // a forged packet may have caused it: all that follows is that it grows slowly from here on
        threshold_ = std::min(threshold_, allowed_);
        break;
      case LossSign::GapAgain:
        narrow(window, window / 2);
        break;
      case LossSign::Reported:
        if (allowed_ != unlimited) narrow(window, window / 2);
        break;
      case LossSign::Tail:  // not down to one packet: the peer answers
        narrow(window, std::min(window, in_flight) / 4);
        break;
      case LossSign::Timeout:
        narrow(window, 1);
        break;
    }
  }

 private:
  void narrow(uint32_t window, uint32_t to) noexcept {
    if (allowed_ != 1) threshold_ = std::max(window / 2, 2U);
    allowed_ = std::max(to, 1U);
    grown_ = 0;
    WEFT_ASSERT(allowed_ <= std::max(bound_, 1U));
  }

  uint32_t bound_ = 1;
  uint32_t allowed_ = unlimited;
  uint32_t threshold_ = 0;  // below it the window doubles in each round trip, above it grows by a packet
  uint32_t grown_ = 0;      // packets that were acknowledged since it grew last, above the threshold
};

}  // namespace weft::proto::congestion
