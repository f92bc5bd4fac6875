// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// RoundTrip: how long a requester waits for an answer before it sends a probe, from measured round trips (RFC 6298
// section 2) and from what became of earlier probes. docs/roce.md, "Tail loss", has the rules. Times in ns. Must not know
// packets.
//
// A round trip includes the time that the peer's program does not run, or holds an acknowledgement back on purpose: RC
// acknowledgements do not say how long they were held. A pause of the peer is therefore no loss, and no estimate predicts
// it. A credit limits what that costs: each acknowledgement earns a part of a needless probe. Without credit the wait is
// longer than most pauses that were seen lately. With credit a peer that always answered soon is probed soon.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/assert.hpp"

namespace weft::proto::roce {

class RoundTrip {
 public:
  static constexpr uint64_t first_ns = 4'000'000;  // until enough was measured, and at least without credit
  // Of a peer that answers sooner than this / 2. Longer than a device holds packets back (link/roce/device.hpp, no_room_ns).
  static constexpr uint64_t least_ns = 250'000;
  // At least of one that did not lately. Longer than Weft's devices hold an acknowledgement back (link/roce/device.hpp,
  // look_ns_max).
  static constexpr uint64_t held_ns = 1'200'000;
  static constexpr uint64_t pause_ns_max = 20'000'000;  // of a peer; a longer one is not waited for
  static constexpr uint64_t prompt_ns = 150'000;  // an answer within this time and four short round trips
  static constexpr uint64_t longest_ns = 1'000'000'000;
  static constexpr uint32_t enough_samples = 16;
  static constexpr uint64_t peak_fade = 1024;  // round trips, until a long one has faded to 1 / e
  static constexpr uint32_t probed_max = 2;
  static constexpr uint32_t needless_cost = 3072;         // acknowledgements for each needless probe
  static constexpr uint32_t useful_gain = needless_cost;  // of a probe that found a loss
  static constexpr uint32_t credit_max = 4 * needless_cost;

  // Until a probe, from the last packet or the last progress on.
  uint64_t wait() const noexcept { return wait_; }
  // After so many without an answer, until the next one: a pause of the peer gets few of them.
  uint64_t wait_after(uint32_t probes) const noexcept {
    constexpr uint32_t doublings_max = 10;
    WEFT_ASSERT(probes != 0);
    return std::max(2 * wait_, held_ns) << std::min(probes - 1, doublings_max);
  }
  // Until the next look whether one may be sent.
  uint64_t wait_to_look() const noexcept { return std::max(wait_, held_ns); }

  // A packet that was sent once, and its acknowledgement or first response.
  void sample(uint64_t rtt) noexcept {
    rtt = std::clamp<uint64_t>(rtt, 1, longest_ns);
    if (samples_ < enough_samples && samples_++ == 0) {
      smoothed_ = shortest_ = rtt;
      variation_ = rtt / 2;
    } else {
      const uint64_t off = rtt > smoothed_ ? rtt - smoothed_ : smoothed_ - rtt;
      variation_ = (3 * variation_ + off) / 4;
      smoothed_ = (7 * smoothed_ + rtt) / 8;
      shortest_ = std::min(rtt, shortest_ + shortest_ / 64 + 1);
    }
    if (credit_ < credit_max) ++credit_;
    // The first ones meet a peer that is starting.
    peak_ = std::max(samples_ < enough_samples ? 0 : peak_ - peak_ / peak_fade, std::min(rtt, held_ns));
    pause_ -= pause_ / needless_cost;
    probed_ = 0;
    set_wait();
  }

  // The peer answered `since_probe` after the last of so many probes, `silent` after the last progress. Where a packet was
  // lost, the probe is answered like any packet. Anything else is taken for a peer that paused.
  void on_answer(uint64_t since_probe, uint64_t silent, uint32_t probes) noexcept {
    WEFT_ASSERT(probes != 0 && since_probe <= silent);
    const bool is_early = 2 * since_probe < shortest_;
    const bool is_late = since_probe > 4 * shortest_ + prompt_ns;
    // What was probed is not measured. Several in a row: the peer has become slower than the wait, perhaps.
    const bool is_usual = probed_ == probed_max;
    if (!is_usual) ++probed_;
    if (is_usual) peak_ = std::max(peak_, std::min(silent, held_ns));
    if (!is_early && !is_late) {
      // A pause seldom ends just behind a probe that came late. Behind one that came soon it may: the next one comes later.
      const bool was_soon = silent - since_probe < held_ns;
      if (!was_soon || since_probe <= 3 * smoothed_) return on_loss();
      peak_ = std::max(peak_, std::min(silent / 2, held_ns));
      return set_wait();
    }
    // A loss whose answer was late must not make the next wait longer, and so on.
    if (is_early || is_usual || 4 * since_probe > silent)
      pause_ = std::max(pause_, std::min(silent, pause_ns_max));
    peak_ = held_ns;
    credit_ -= std::min(credit_, needless_cost * std::min(probes, credit_max / needless_cost));
    set_wait();
  }
  // The answer to a probe says that packets are missing.
  void on_loss() noexcept {
    credit_ = std::min(credit_ + useful_gain, credit_max);
    set_wait();
  }

  uint64_t smoothed() const noexcept { return smoothed_; }  // 0: nothing was measured
  bool has_credit() const noexcept { return credit_ >= needless_cost && samples_ == enough_samples; }

 private:
  void set_wait() noexcept {
    const uint64_t usual = std::max(2 * smoothed_, smoothed_ + 4 * variation_);
    const uint64_t soon = std::clamp(2 * peak_, least_ns, held_ns);
    wait_ = std::max(usual, has_credit() ? soon : std::max(first_ns, pause_ + pause_ / 2));
    WEFT_ASSERT(wait_ >= least_ns && credit_ <= credit_max);
  }

  uint64_t wait_ = first_ns;
  uint64_t smoothed_ = 0;
  uint64_t variation_ = 0;
  uint64_t shortest_ = 0;  // of the last ones: it grows by a 64th with each that is longer
  uint64_t peak_ = 0;      // the longest of the last ones, and held_ns after a pause; it fades
  uint64_t pause_ = 0;     // the longest silence that was no loss for sure; it fades
  uint32_t credit_ = needless_cost;
  uint32_t samples_ = 0;
  uint32_t probed_ = 0;  // answers since the last one that was measured
};

}  // namespace weft::proto::roce
