// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// SmoothedRtt: SRTT and RTTVAR of RFC 6298 section 2, for the protocols that retransmit (proto/reliable, proto/roce). Times
// in ns. The protocol decides what a sample is. Must not know packets.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/assert.hpp"

namespace weft::proto::loss {

class SmoothedRtt {
 public:
  // `rtt` of a packet that was sent once (Karn); not 0.
  void sample(uint64_t rtt) noexcept {
    WEFT_ASSERT(rtt != 0);
    if (!measured()) {
      smoothed_ = rtt;
      variation_ = rtt / 2;
      return;
    }
    const uint64_t off = rtt > smoothed_ ? rtt - smoothed_ : smoothed_ - rtt;
    variation_ = (3 * variation_ + off) / 4;
    smoothed_ = std::max<uint64_t>((7 * smoothed_ + rtt) / 8, 1);
  }

  bool measured() const noexcept { return smoothed_ != 0; }
  uint64_t smoothed() const noexcept { return smoothed_; }  // 0: nothing was measured
  // RTO, without the bounds that a protocol gives it.
  uint64_t timeout() const noexcept { return smoothed_ + 4 * variation_; }
  // PTO of a tail loss probe (RFC 8985 section 7.2): not sooner than two round trips.
  uint64_t probe_timeout() const noexcept { return std::max(2 * smoothed_, timeout()); }

 private:
  uint64_t smoothed_ = 0;
  uint64_t variation_ = 0;
};

}  // namespace weft::proto::loss
