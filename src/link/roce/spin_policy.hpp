// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// SpinPolicy: whether a thread that waits for a completion event looks for packets for a moment before it sleeps. To sleep and
// to be woken takes longer than most answers, and on a CPU that is shared with other work a sleep gives the rest of the time
// slice away. Must not know what is waited for, nor the time.
#pragma once

#include <cstdint>

namespace weft::link::roce {

class SpinPolicy {
 public:
  static constexpr uint64_t spin_ns = 50'000;  // since the last packet
  static constexpr unsigned vain_max = 32;     // spins in a row that found no event, until they are left out

  // For the next sleep. Where the last spins found nothing, every vain_max-th one tries again.
  bool may_spin() noexcept {
    if (vain_ < vain_max) return true;
    if (++left_out_ < vain_max) return false;
    left_out_ = 0;
    return true;
  }
  void ended(bool found) noexcept {
    if (found) vain_ = left_out_ = 0;
    else if (vain_ < vain_max) ++vain_;
  }

 private:
  unsigned vain_ = 0;
  unsigned left_out_ = 0;
};

}  // namespace weft::link::roce
