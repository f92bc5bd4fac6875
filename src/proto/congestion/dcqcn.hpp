// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Dcqcn: what queue pairs send by. A rate while the peer tells of congestion, and a window behind losses; neither is a limit before.
#pragma once

#include "proto/congestion/dcqcn_rate.hpp"
#include "proto/congestion/loss_window.hpp"

namespace weft::proto::congestion {

class Dcqcn final : public Controller {
 public:
  Dcqcn() noexcept { is_idle_ = true; }
  uint32_t rate() const noexcept {
    return rate_.rate();
  }  // in 1 / DcqcnRate::unit packets for each tick; 0: no limit

  uint32_t packets() const noexcept override { return rate_.packets(); }
  uint64_t next_at() const noexcept override { return rate_.next_at(); }
  void configure(size_t packet, size_t bound) noexcept override {
    WEFT_ASSERT(packet != 0);
    packet_ = packet;
    losses_.configure(static_cast<uint32_t>(std::min<size_t>(bound / packet, UINT32_MAX)));
    set_window();
  }
  void advance(uint64_t now) noexcept override {
    rate_.advance(now);
    is_paced_ = rate_.is_limited();
    if (!is_paced_) rate_ = DcqcnRate();  // of a measurement that a CNP has begun meanwhile nothing is left
  }
  void on_sent(uint64_t packets) noexcept override { rate_.spend(packets); }
  void on_ack(const Acknowledged& what) noexcept override {
    rest_ += what.bytes;
    losses_.on_ack(static_cast<uint32_t>(std::min<size_t>(rest_ / packet_, UINT32_MAX)));
    rest_ %= packet_;
    set_window();
  }
  void on_loss(const Loss& loss) noexcept override {
    losses_.on_loss(loss.sign, static_cast<uint32_t>(std::min<size_t>(loss.in_flight / packet_, UINT32_MAX)));
    set_window();
  }
  bool on_cnp(const Cnp& cnp) noexcept override {
    // A limit that begins does not ask what an earlier one has cut.
    const bool may_cut = cnp.may_cut || !rate_.is_limited();
    const bool is_less = rate_.on_cnp(cnp.now, cnp.sent, may_cut);
    is_paced_ = rate_.is_limited();
    return is_less;
  }

 private:
  void set_window() noexcept {
    is_idle_ = losses_.allowed() == LossWindow::unlimited;
    window_ = is_idle_ ? no_limit : losses_.allowed() * packet_;
  }

  size_t packet_ = 1;
  size_t rest_ = 0;  // bytes that arrived and are no whole packet yet
  LossWindow losses_;
  DcqcnRate rate_;
};

}  // namespace weft::proto::congestion
