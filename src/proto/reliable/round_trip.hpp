// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// RoundTrip: how long a round trip takes, and an answer is waited for. Times in ns. Must not know packets or streams.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/assert.hpp"
#include "proto/loss/shortest_rtt.hpp"
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

  void sample(uint64_t rtt, uint64_t now) noexcept {
    rtt = std::max<uint64_t>(rtt, 1);
    latest_ = rtt;
    estimate_.sample(rtt);
    shortest_.sample(rtt, now);
    WEFT_ASSERT(measured() && shortest() <= latest_);
  }
  bool measured() const noexcept { return estimate_.measured(); }
  uint64_t smoothed() const noexcept { return estimate_.smoothed(); }
  uint64_t latest() const noexcept { return latest_; }
  uint64_t shortest() const noexcept { return shortest_.get(); }
  // Doubled for every timeout in a row.
  uint64_t timeout(unsigned backoff) const noexcept {
    const uint64_t base = measured() ? std::max(estimate_.timeout(), timeout_ns_min) : timeout_ns_first;
    return std::min(base << std::min(backoff, 16u), timeout_ns_max);
  }

 private:
  loss::SmoothedRtt estimate_;
  uint64_t latest_ = 0;
  loss::ShortestRtt shortest_;
};

}  // namespace weft::proto::reliable
