// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// DcqcnRate: the rate of a queue pair whose peer tells of congestion (CNP). The reaction point of DCQCN (Zhu et al.,
// "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015, section 5.2), by time alone: a CNP cuts the
// rate by up to a half, and intervals without one bring it back. docs/roce.md has the parameters. Must not know packets.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/assert.hpp"

namespace weft::proto::congestion {

class DcqcnRate {
 public:
  static constexpr uint64_t tick_ns = 50'000;
  static constexpr uint32_t unit = 16;     // rates and credit are in packets / 16, rates for each tick
  static constexpr uint32_t rate_min = 1;  // a packet in 0.8 ms
  static constexpr uint32_t rate_max = 256 * unit;  // from there on there is no limit
  static constexpr uint32_t recovery_ticks = 5;     // half of the way back to the rate before the cut, each
  static constexpr uint32_t steady_ticks = 100;     // after which the rate grows faster and faster
  static constexpr uint64_t idle_ticks_max = 256;   // without a CNP, or without being used

  // A CNP; `sent` counts the queue pair's packets. The first one starts a measurement of the rate that is to be cut,
  // which takes a tick: until then there is no limit. True: the rate was cut. Without `may_cut` it only does not grow:
  // what was sent before the last cut is still on its way, and the CNP may be about that.
  bool on_cnp(uint64_t now, uint64_t sent, bool may_cut = true) noexcept {
    advance(now);
    WEFT_ASSERT(now >= measured_at_ && sent >= sent_);
    const uint64_t measured = now - measured_at_;
    if (rate_ == 0 && (!is_measuring_ || measured > idle_ticks_max * tick_ns)) {
      is_measuring_ = true;
      measured_at_ = now;
      sent_ = sent;
      return false;
    }
    if (measured < tick_ns) return false;
    if (rate_ == 0) {
      rate_ = target_ = rate_max;
      share_ = share_one;
      credit_ = 0;
      tick_at_ = now;
    } else if (cnp_seen_ != cnp_ticks) {
      share_ += (share_one - share_) / share_part;
    }
    cnp_seen_ = cnp_ticks;
    if (!may_cut) return false;
    // A window or the program may hold it at less than the limit.
    const uint64_t used = (sent - sent_) * unit * tick_ns / measured;
    target_ = static_cast<uint32_t>(std::clamp<uint64_t>(used, rate_min, rate_));
    const auto cut = static_cast<uint32_t>(uint64_t{target_} * share_ / (2 * share_one));
    rate_ = target_ - std::min(target_ - rate_min, std::max(1U, cut));
    WEFT_ASSERT(rate_ >= rate_min && rate_ <= target_ && target_ <= rate_max);
    WEFT_ASSERT(share_ <= share_one);
    quiet_ticks_ = 0;
    measured_at_ = now;
    sent_ = sent;
    return true;
  }

  // Brings credit and rate to that time. is_limited() may end.
  void advance(uint64_t now) noexcept {
    if (rate_ == 0) return;
    WEFT_ASSERT(now >= tick_at_);
    uint64_t ticks = (now - tick_at_) / tick_ns;
    if (ticks > idle_ticks_max) return end();
    for (; ticks > 0; --ticks) {
      tick_at_ += tick_ns;
      credit_ = std::min(credit_ + rate_, std::max(rate_, unit));
      if (cnp_seen_ != 0) {
        --cnp_seen_;
        continue;
      }
      share_ -= share_ / share_part;
      if (++quiet_ticks_ > recovery_ticks)
        target_ += quiet_ticks_ <= steady_ticks ? 1 : 1 + quiet_ticks_ - steady_ticks;
      rate_ = (rate_ + target_ + 1) / 2;
      if (rate_ >= rate_max || quiet_ticks_ > idle_ticks_max) return end();
    }
  }

  bool is_limited() const noexcept { return rate_ != 0; }
  uint32_t rate() const noexcept { return rate_; }              // 0: no limit
  uint32_t packets() const noexcept { return credit_ / unit; }  // that may go now
  void spend(uint64_t packets) noexcept {
    credit_ -= static_cast<uint32_t>(std::min<uint64_t>(credit_, packets * unit));
  }
  // When there will be credit for a packet.
  uint64_t next_at() const noexcept {
    WEFT_ASSERT(is_limited());
    const uint32_t missing = credit_ >= unit ? 0 : unit - credit_;
    return tick_at_ + std::max<uint64_t>(1, (missing + rate_ - 1) / rate_) * tick_ns;
  }

 private:
  static constexpr uint8_t cnp_ticks = 2;  // CNPs of one peer come at least a tick apart, and so may miss one
  static constexpr uint32_t share_one = 1 << 16;
  static constexpr uint32_t share_part = 64;  // 1 / g

  void end() noexcept { *this = DcqcnRate(); }

  uint32_t rate_ = 0;
  uint32_t target_ = 0;
  uint32_t credit_ = 0;
  uint32_t share_ = 0;  // of ticks with a CNP, alpha in the paper; share_one is all
  uint32_t quiet_ticks_ = 0;
  uint8_t cnp_seen_ = 0;  // ticks that do not count as quiet
  bool is_measuring_ = false;
  uint64_t tick_at_ = 0;
  uint64_t measured_at_ = 0;  // the last cut, or the first CNP
  uint64_t sent_ = 0;         // packets, then
};

}  // namespace weft::proto::congestion
