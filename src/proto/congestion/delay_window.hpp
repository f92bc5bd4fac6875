// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// DelayWindow: a window that follows delay, not loss; that of proto/reliable. The bytes that this connection itself keeps queued on the
// path are its window times the share of the round trip that is above the shortest one seen, and the window is steered so that they stay
// between two bounds. A lost packet alone changes nothing; only a lasting loss rate above loss_rate_max says that a queue overflows
// somewhere. docs/reliable.md has the reasons.
#pragma once

#include "proto/congestion/controller.hpp"

namespace weft::proto::congestion {

class DelayWindow final : public Controller {
 public:
  static constexpr double loss_rate_max = 0.15;

  bool starting() const noexcept { return starting_; }
  void configure(size_t packet, size_t bound) noexcept override;
  void on_ack(const Acknowledged& what) noexcept override;
  void on_loss(const Loss& loss) noexcept override;

 private:
  void end_round(uint64_t shortest) noexcept;

  size_t packet_ = 1;
  size_t bound_ = 0;
  size_t least_queue_ = 0;  // bytes of our own in the path's queues: more is asked for below,
  size_t most_queue_ = 0;   // and given back above
  uint64_t round_end_ = 0;
  uint64_t round_rtt_ = UINT64_MAX;
  size_t delivered_ = 0;  // in this round
  size_t lost_ = 0;
  double loss_rate_ = 0;  // over the last 64 packets or so
  bool limited_ = false;
  bool starting_ = true;
};

}  // namespace weft::proto::congestion
