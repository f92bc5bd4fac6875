// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How long a round trip takes, and how many bytes may be under way. Times in ns. Must not know packets or streams.
//
// The window follows delay, not loss: the bytes that this connection itself keeps queued on the path are its window times the share of the round
// trip that is above the shortest one seen, and the window is steered so that they stay between two bounds. A lost packet alone changes
// nothing; only a lasting loss rate above loss_rate_max says that a queue overflows somewhere. docs/reliable.md has the reasons.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "proto/loss/smoothed_rtt.hpp"

namespace weft::proto::reliable {

inline constexpr uint64_t us = 1000;
inline constexpr uint64_t ms = 1'000'000;
inline constexpr uint64_t second = 1'000'000'000;

// With samples that are already freed of the time the peer held its answer.
class RoundTrip {
 public:
  static constexpr uint64_t timeout_ns_min = 1 * ms;
  static constexpr uint64_t timeout_ns_first = 50 * ms;  // nothing measured yet
  static constexpr uint64_t timeout_ns_max = 1 * second;

  void sample(uint64_t rtt, uint64_t now) noexcept;
  bool measured() const noexcept { return estimate_.measured(); }
  uint64_t smoothed() const noexcept { return estimate_.smoothed(); }
  uint64_t latest() const noexcept { return latest_; }
  // The shortest of the last 10 to 20 seconds.
  uint64_t shortest() const noexcept { return std::min(shortest_, shortest_before_); }
  // Doubled for every timeout in a row.
  uint64_t timeout(unsigned backoff) const noexcept {
    const uint64_t base = measured() ? std::max(estimate_.timeout(), timeout_ns_min) : timeout_ns_first;
    return std::min(base << std::min(backoff, 16u), timeout_ns_max);
  }

 private:
  loss::SmoothedRtt estimate_;
  uint64_t latest_ = 0;
  uint64_t shortest_ = UINT64_MAX;
  uint64_t shortest_before_ = UINT64_MAX;
  uint64_t epoch_end_ = 0;
};

class Congestion {
 public:
  static constexpr double loss_rate_max = 0.15;

  // Packets carry at most `packet` payload bytes; `bound` is the most that the window may ever be.
  void configure(size_t packet, size_t bound) noexcept;
  size_t window() const noexcept { return window_; }
  bool starting() const noexcept { return starting_; }

  // One acknowledgement. `delivered`: bytes newly known to have arrived; `rtt`: 0 when it measured none; `end`: bytes sent so far;
  // `acked`: bytes known to have arrived so far; `limited`: the window was what kept the sender.
  void on_ack(size_t delivered, uint64_t rtt, uint64_t shortest, uint64_t acked, uint64_t end,
              bool limited) noexcept;
  void on_loss(size_t bytes) noexcept { lost_ += bytes; }
  // Two timeouts in a row without an answer: begin anew from a small window.
  void on_silence() noexcept;

 private:
  void end_round(uint64_t shortest) noexcept;

  size_t window_ = 0;
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

}  // namespace weft::proto::reliable
