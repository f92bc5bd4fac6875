// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// ShortestRtt: the shortest round trip of the last 10 to 20 seconds, which is the path without its queues. Times in ns.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/assert.hpp"

namespace weft::proto::loss {

class ShortestRtt {
 public:
  static constexpr uint64_t epoch_ns = 10'000'000'000;

  void sample(uint64_t rtt, uint64_t now) noexcept {
    WEFT_ASSERT(rtt != 0);
    if (now >= epoch_end_) {
      before_ = shortest_;
      shortest_ = rtt;
      epoch_end_ = now + epoch_ns;
    }
    shortest_ = std::min(shortest_, rtt);
  }
  uint64_t get() const noexcept { return std::min(shortest_, before_); }  // UINT64_MAX: nothing was measured

 private:
  uint64_t shortest_ = UINT64_MAX;
  uint64_t before_ = UINT64_MAX;  // of the epoch before
  uint64_t epoch_end_ = 0;
};

}  // namespace weft::proto::loss
