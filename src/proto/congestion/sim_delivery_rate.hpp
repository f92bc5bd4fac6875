// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// For tests: a rate, as of BBR. The highest rate at which packets arrived in the last rounds, with turns in which it is tried whether there is more,
// and a window of two round trips of it.
#pragma once

#include <algorithm>
#include <array>

#include "proto/congestion/controller.hpp"

namespace weft::proto::congestion::sim {

class DeliveryRate final : public Controller {
 public:
  uint32_t packets() const noexcept override { return static_cast<uint32_t>(credit_); }
  uint64_t next_at() const noexcept override {
    return at_ + static_cast<uint64_t>(std::max(1 - credit_, 0.0) / rate()) + 1;
  }
  void configure(size_t packet, size_t bound) noexcept override {
    packet_ = packet;
    bound_ = bound;
    if (window_ == no_limit) window_ = 10 * packet;
    window_ = std::clamp(window_, 2 * packet_, bound_);
  }
  void advance(uint64_t now) noexcept override {
    if (!is_paced_ || now <= at_) return;
    credit_ = std::min(credit_ + static_cast<double>(now - at_) * rate(), 16.0);
    at_ = now;
  }
  void on_sent(uint64_t packets) noexcept override {
    credit_ = std::max(credit_ - static_cast<double>(packets), 0.0);
  }
  void on_ack(const Acknowledged& what) noexcept override {
    if (what.rtt != 0) rtt_ = what.rtt;
    if (round_at_ == 0) round_at_ = what.now;
    delivered_ += what.bytes;
    const uint64_t shortest = std::min(what.shortest, rtt_);
    if (shortest == UINT64_MAX || shortest == 0 || what.now - round_at_ < 2 * shortest) return;
    const double measured = static_cast<double>(delivered_) / static_cast<double>(packet_) /
                            static_cast<double>(what.now - round_at_);
    const double least = 4.0 / static_cast<double>(2 * shortest);
    rates_[round_++ % rates_.size()] = std::max(measured, least);
    const double best = *std::ranges::max_element(rates_);
    if (is_starting_ && round_ % 3 == 0) {
      is_starting_ = best > 1.25 * best_before_;
      best_before_ = best;
    }
    round_at_ = what.now;
    delivered_ = 0;
    advance(what.now);
    if (!is_paced_) at_ = what.now;
    is_paced_ = true;
    const double bytes = 2 * best * static_cast<double>(shortest) * static_cast<double>(packet_);
    window_ = std::clamp(static_cast<size_t>(bytes) + 16 * packet_, 2 * packet_, bound_);
  }
  void on_loss(const Loss&) noexcept override {}

 private:
  static constexpr std::array<double, 8> gains = {1.25, 0.75, 1, 1, 1, 1, 1, 1};
  double rate() const noexcept {  // packets in a ns
    return *std::ranges::max_element(rates_) * (is_starting_ ? 2.9 : gains[round_ % gains.size()]);
  }

  size_t packet_ = 1;
  size_t bound_ = 2;
  uint64_t rtt_ = UINT64_MAX;
  uint64_t round_at_ = 0;
  uint64_t at_ = 0;  // of the credit
  size_t delivered_ = 0;
  size_t round_ = 0;
  double credit_ = 0;
  double best_before_ = 0;
  std::array<double, 8> rates_{};
  bool is_starting_ = true;
};

}  // namespace weft::proto::congestion::sim
