// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// RoundTrip: how long a requester waits for an answer before it sends a probe, from measured round trips and from what
// became of earlier probes. docs/roce.md, "Tail loss", has the rules. Times in ns. Must not know packets.
//
// A round trip includes the time that the peer's program does not run, or holds an acknowledgement back on purpose: RC
// acknowledgements do not say how long they were held. A pause of the peer is therefore no loss, and no estimate predicts
// it. A credit limits what that costs: each acknowledgement earns a part of a needless probe. Without credit the wait is
// longer than most pauses that were seen lately. With credit a peer that always answered soon is probed soon.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/assert.hpp"
#include "proto/loss/smoothed_rtt.hpp"

namespace weft::proto::roce {

class RoundTrip {
 public:
  // What the answer to a probe says of the packet that was probed.
  enum class ProbeAnswer : uint8_t {
    Nothing,  // the peer does not mark its answers to duplicates
    First,    // no duplicate: the packet had been lost, or this answers the original
    Lost,     // a duplicate of what had been answered before: that answer was lost
    Paused    // a duplicate of what had not been answered yet
  };

  static constexpr uint64_t first_ns = 4'000'000;  // until enough was measured, and at least without credit
  // Of a peer that answers sooner than this / 2. Longer than a device holds packets back (link/roce/progress_policy.hpp, no_room_ns).
  static constexpr uint64_t least_ns = 250'000;
  // At least of one that did not lately. Longer than Weft's devices hold an acknowledgement back (link/roce/progress_policy.hpp,
  // check_ns_max).
  static constexpr uint64_t held_ns = 1'200'000;
  static constexpr uint64_t pause_ns_max = 20'000'000;  // of a peer; a longer one is not waited for
  static constexpr uint64_t prompt_ns = 150'000;  // an answer within this time and four short round trips
  static constexpr uint64_t longest_ns = 1'000'000'000;
  static constexpr uint32_t enough_samples = 16;
  static constexpr uint64_t peak_fade = 1024;   // round trips, until a long one has faded to 1 / e
  static constexpr uint64_t pause_fade = 4096;  // likewise a pause
  static constexpr uint32_t probed_max = 2;
  static constexpr int32_t needless_cost = 3072;         // acknowledgements for each needless probe
  static constexpr int32_t useful_gain = needless_cost;  // of a probe that found a loss
  static constexpr int32_t credit_max = 4 * needless_cost;

  // Until a probe, from the last packet or the last progress on.
  uint64_t wait() const noexcept { return wait_; }
  // After so many without an answer, until the next one: a pause of the peer gets few of them.
  uint64_t wait_after(uint32_t probes) const noexcept {
    constexpr uint32_t doublings_max = 10;
    WEFT_ASSERT(probes != 0);
    return std::max(2 * wait_, held_ns) << std::min(probes - 1, doublings_max);
  }
  // Until the next look whether one may be sent.
  uint64_t wait_to_check() const noexcept { return std::max(wait_, held_ns); }

  // A packet that was sent once, and its acknowledgement or first response.
  void sample(uint64_t rtt) noexcept {
    rtt = std::clamp<uint64_t>(rtt, 1, longest_ns);
    estimate_.sample(rtt);
    if (samples_ == 0) shortest_ = rtt;
    else shortest_ = std::min(rtt, shortest_ + shortest_ / 64 + 1);
    if (samples_ < enough_samples) ++samples_;
    if (credit_ < credit_max) ++credit_;
    // The first ones meet a peer that is starting.
    peak_ = std::max(samples_ < enough_samples ? 0 : peak_ - peak_ / peak_fade, std::min(rtt, held_ns));
    pause_ = std::max(pause_ - pause_ / pause_fade, std::min(rtt, pause_ns_max));
    probed_ = 0;
    unsure_ = 0;  // the packet left behind the probe, and so would an answer to that have come before
    set_wait();
  }

  // The peer answered `since_probe` after the last of so many probes, `silent` after the last progress.
  void on_answer(uint64_t since_probe, uint64_t silent, uint32_t probes,
                 ProbeAnswer answer = ProbeAnswer::Nothing) noexcept {
    WEFT_ASSERT(probes != 0 && since_probe <= silent);
    silent_ = std::min(silent, pause_ns_max);
    unsure_ = 0;
    switch (answer) {
      case ProbeAnswer::Nothing:
        return guess(since_probe, silent, probes);
      case ProbeAnswer::First: {
        // An answer to the duplicate may follow (on_needless()).
        const bool is_early = since_probe < shortest_;
        unsure_ = std::min(probes + (is_early ? 0U : 1U), probes_paid_max);
        return is_early ? set_wait() : on_loss();
      }
      case ProbeAnswer::Lost:  // for sure
        credit_ = std::max(credit_, 0);
        return on_loss();
      case ProbeAnswer::Paused:
        return on_pause(probes);
    }
  }
  // An answer to a duplicate acknowledged nothing: what `First` was told of was no loss.
  void on_needless() noexcept {
    if (unsure_ == 0) return;
    on_pause(unsure_);
    unsure_ = 0;
  }
  // No answer is one to the last probe any more.
  void forget_probe() noexcept { unsure_ = 0; }
  // The answer to a probe says that packets are missing.
  void on_loss() noexcept {
    credit_ = std::min(credit_ + useful_gain, credit_max);
    set_wait();
  }

  uint64_t smoothed() const noexcept { return estimate_.smoothed(); }  // 0: nothing was measured
  bool has_credit() const noexcept { return credit_ >= needless_cost && samples_ == enough_samples; }

 private:
  static constexpr uint32_t probes_paid_max = 2 * credit_max / needless_cost;

  // Where a packet was lost, the probe is answered like any packet. Anything else is taken for a peer that paused.
  void guess(uint64_t since_probe, uint64_t silent, uint32_t probes) noexcept {
    const bool is_early = 2 * since_probe < shortest_;
    const bool is_late = since_probe > 4 * shortest_ + prompt_ns;
    // What was probed is not measured. Several in a row: the peer has become slower than the wait, perhaps.
    const bool is_usual = probed_ == probed_max;
    if (!is_usual) ++probed_;
    if (is_usual) peak_ = std::max(peak_, std::min(silent, held_ns));
    if (!is_early && !is_late) {
      // A pause seldom ends just behind a probe that came late. Behind one that came soon it may: the next one comes later.
      const bool was_soon = silent - since_probe < held_ns;
      if (!was_soon || since_probe <= 3 * smoothed()) return on_loss();
      peak_ = std::max(peak_, std::min(silent / 2, held_ns));
      return set_wait();
    }
    peak_ = held_ns;
    // A loss whose answer was late must not make the next wait longer, and so on.
    if (is_early || is_usual || 4 * since_probe > silent) pause_ = std::max(pause_, silent_);
    pay(probes, 0);
  }
  // Of silent_.
  void on_pause(uint32_t probes) noexcept {
    pause_ = std::max(pause_, silent_);
    peak_ = held_ns;
    pay(probes, -credit_max);
  }
  void pay(uint32_t probes, int32_t least) noexcept {
    const auto cost = static_cast<int32_t>(std::min(probes, probes_paid_max)) * needless_cost;
    credit_ = std::max(credit_ - cost, std::min(credit_, least));
    set_wait();
  }
  void set_wait() noexcept {
    const uint64_t soon = std::clamp(2 * peak_, least_ns, held_ns);
    wait_ =
        std::max(estimate_.probe_timeout(), has_credit() ? soon : std::max(first_ns, pause_ + pause_ / 2));
    WEFT_ASSERT(wait_ >= least_ns && credit_ <= credit_max && credit_ >= -credit_max);
  }

  uint64_t wait_ = first_ns;
  loss::SmoothedRtt estimate_;
  uint64_t shortest_ = 0;           // of the last ones: it grows by a 64th with each that is longer
  uint64_t peak_ = 0;               // the longest of the last ones, and held_ns after a pause; it fades
  uint64_t pause_ = 0;              // the longest silence that was no loss for sure; it fades
  int32_t credit_ = needless_cost;  // below 0: owed for the probes of pauses
  uint32_t samples_ = 0;
  uint64_t silent_ = 0;  // before the last answer to a probe
  uint32_t unsure_ = 0;  // what that answer costs if it was none to a loss, in probes
  uint32_t probed_ = 0;  // answers since the last one that was measured
};

}  // namespace weft::proto::roce
