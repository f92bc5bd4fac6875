// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The window that follows delay.
#include "proto/congestion/delay_window.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace weft::proto::congestion {

void DelayWindow::configure(size_t packet, size_t bound) noexcept {
  packet_ = std::max<size_t>(packet, 1);
  bound_ = std::max(bound, 2 * packet_);
  // Packets above 16 KiB never meet a switch: the queue is the socket of a process on this host, which may be waiting for its processor.
  const size_t queue_max = packet_ > size_t{16} << 10 ? size_t{512} << 10 : size_t{128} << 10;
  least_queue_ = std::clamp<size_t>(8 * packet_, size_t{32} << 10, queue_max);
  most_queue_ = 2 * least_queue_;
  // RFC 6928: ten packets, but of jumbo packets no more than 256 KiB.
  if (window_ == no_limit) window_ = std::min(10 * packet_, std::max(size_t{256} << 10, 2 * packet_));
  window_ = std::clamp(window_, 2 * packet_, bound_);
  WEFT_ASSERT(least_queue_ < most_queue_);
}

void DelayWindow::on_ack(const Acknowledged& what) noexcept {
  WEFT_ASSERT(window_ != no_limit && what.arrived <= what.sent);
  delivered_ += what.bytes;
  limited_ = limited_ || what.limited;
  if (what.rtt != 0) round_rtt_ = std::min(round_rtt_, what.rtt);
  if (what.arrived < round_end_) return;
  end_round(what.shortest);
  WEFT_ASSERT(window_ >= 2 * packet_ && window_ <= bound_);
  round_end_ = what.sent;
  round_rtt_ = UINT64_MAX;
  delivered_ = 0;
  lost_ = 0;
  limited_ = false;
}

void DelayWindow::end_round(uint64_t shortest) noexcept {
  const size_t seen = delivered_ + lost_;
  if (seen != 0) {
    const double rate = static_cast<double>(lost_) / static_cast<double>(seen);
    const double weight = std::min(1.0, static_cast<double>(seen) / (64.0 * static_cast<double>(packet_)));
    loss_rate_ += (rate - loss_rate_) * weight;
    WEFT_ASSERT(loss_rate_ >= 0 && loss_rate_ <= 1);
  }
  if (loss_rate_ > loss_rate_max) {
    window_ = std::max(window_ * 7 / 10, 2 * packet_);
    loss_rate_ = loss_rate_max / 2;
    starting_ = false;
    return;
  }
  if (round_rtt_ == UINT64_MAX || shortest == UINT64_MAX) return;
  const uint64_t rtt = std::max(round_rtt_, shortest);
  WEFT_ASSERT(rtt != 0 && rtt >= shortest);
  const auto queued = static_cast<size_t>(static_cast<double>(window_) * static_cast<double>(rtt - shortest) /
                                          static_cast<double>(rtt));
  if (queued > most_queue_) {
    starting_ = false;
    window_ -= std::min(window_ / 4, std::max(packet_, (queued - most_queue_) / 2));
  } else if (limited_ && queued < least_queue_) {
    const size_t more = starting_ ? window_ : queued < least_queue_ / 2 ? window_ / 8 : 0;
    window_ += std::max(packet_, more);
  }
  window_ = std::clamp(window_, 2 * packet_, bound_);
}

void DelayWindow::on_loss(const Loss& loss) noexcept {
  WEFT_ASSERT(bound_ >= 2 * packet_);
  lost_ += loss.bytes;
  if (loss.timeouts < 2) return;
  // No answers come: half of the window, and a new round.
  window_ = std::clamp(window_ / 2, 2 * packet_, bound_);
  round_rtt_ = UINT64_MAX;
}

}  // namespace weft::proto::congestion
