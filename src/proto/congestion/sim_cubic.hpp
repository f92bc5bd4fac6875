// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// For tests: CUBIC (RFC 9438), a window that follows losses. A lost packet or a CNP cuts it once for what is under way.
#pragma once

#include <algorithm>
#include <cmath>

#include "proto/congestion/controller.hpp"

namespace weft::proto::congestion::sim {

class Cubic final : public Controller {
 public:
  static constexpr double beta = 0.7;
  static constexpr double c = 0.4;  // packets in s^3

  uint64_t cuts() const noexcept { return cuts_; }

  void configure(size_t packet, size_t bound) noexcept override {
    packet_ = packet;
    bound_ = std::max(bound, 2 * packet);
    if (window_ == no_limit) window_ = 10 * packet;
    window_ = std::clamp(window_, 2 * packet_, bound_);
  }
  void on_ack(const Acknowledged& what) noexcept override {
    arrived_ = what.arrived;
    sent_ = what.sent;
    if (what.rtt != 0) rtt_ = what.rtt;
    if (!what.limited || arrived_ < recovery_end_) return;
    if (window_ < threshold_) return set(window_ + what.bytes);
    if (epoch_at_ == 0) {
      epoch_at_ = what.now;
      const double now = in_packets();
      most_ = std::max(most_, now);
      k_ = std::cbrt((most_ - now) / c);
      reno_ = now;
    }
    const double t = static_cast<double>(what.now - epoch_at_ + rtt_) * 1e-9 - k_;
    const double cubic = c * t * t * t + most_;
    const double share = static_cast<double>(what.bytes) / static_cast<double>(window_);
    reno_ += 3 * (1 - beta) / (1 + beta) * share;
    const double target = std::clamp(std::max(cubic, reno_), in_packets(), 1.5 * in_packets());
    set(window_ + static_cast<size_t>((target - in_packets()) * share * static_cast<double>(packet_)));
  }
  void on_loss(const Loss& loss) noexcept override {
    // A first timeout may be a pause of the peer.
    if (loss.sign == LossSign::Timeout && loss.timeouts < 2) return;
    cut(loss.sent);
  }
  bool on_cnp(const Cnp& cnp) noexcept override {
    if (!cnp.may_cut) return false;
    return cut(sent_);
  }

 private:
  double in_packets() const noexcept { return static_cast<double>(window_) / static_cast<double>(packet_); }
  void set(size_t window) noexcept { window_ = std::clamp(window, 2 * packet_, bound_); }
  bool cut(uint64_t sent) noexcept {
    if (arrived_ < recovery_end_) return false;
    recovery_end_ = std::max(sent, arrived_ + 1);
    ++cuts_;
    const double now = in_packets();
    most_ = now < most_ ? now * (1 + beta) / 2 : now;  // others need room: fast convergence
    epoch_at_ = 0;
    set(static_cast<size_t>(static_cast<double>(window_) * beta));
    threshold_ = window_;
    return true;
  }

  size_t packet_ = 1;
  size_t bound_ = 2;
  size_t threshold_ = no_limit;
  uint64_t arrived_ = 0;
  uint64_t sent_ = 0;
  uint64_t recovery_end_ = 0;
  uint64_t rtt_ = 0;
  uint64_t epoch_at_ = 0;
  uint64_t cuts_ = 0;
  double most_ = 0;  // packets, when it was cut last
  double k_ = 0;     // s, from the cut until the window is that again
  double reno_ = 0;
};

}  // namespace weft::proto::congestion::sim
