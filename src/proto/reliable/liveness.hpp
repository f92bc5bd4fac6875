// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Liveness: since when a peer has been silent, and what the packet link says of it. SendRoom: whether the packet link takes packets for it. Times in ns.
// Must not know packets or timers.
#pragma once

#include <cstdint>

namespace weft::proto::reliable {

struct Liveness {
  uint64_t silent_from = 0;   // since when we wait for any sign
  uint64_t heard_at = 0;      // 0: never
  uint64_t refused_from = 0;  // since then the packet link says that the address has no owner; 0: it does not
  uint64_t refusal_due = 0;   // when to ask whether that is so; 0: not
  unsigned refusals = 0;      // since then
  // Why a packet could not be sent to it; 0: none since it was heard, or that is_over().
  int send_error = 0;
  unsigned result_timeouts = 0;  // when the packet link last said anything of it: timeouts in a row,
  uint64_t result_at = 0;        // and the time

  // A full timeout has passed of whose packets nothing was said, and more time than the kernel takes to find that nobody has an address (3 s, ARP).
  static constexpr uint64_t result_ns_max = 5'000'000'000;
  bool is_over(unsigned timeouts, uint64_t now) const noexcept {
    return timeouts >= result_timeouts + 2 && now - result_at > result_ns_max;
  }
  void on_result(unsigned timeouts, uint64_t now) noexcept {
    result_timeouts = timeouts;
    result_at = now;
  }
  void heard(uint64_t now) noexcept { *this = {now, now, 0, 0, 0, 0, 0, 0}; }
};

class SendRoom {
 public:
  static constexpr uint64_t pause_ns = 1'000'000'000;  // a longer time between two attempts does not count

  bool is_short() const noexcept {
    return is_short_;
  }  // the packet link has refused a packet since the last flush
  uint64_t since() const noexcept {
    return since_;
  }  // it has refused every packet from then on; 0: it has not
  uint64_t tried_at() const noexcept { return tried_at_; }
  void on_try() noexcept { is_short_ = false; }
  void on_refused(uint64_t now) noexcept {
    is_short_ = true;
    if (since_ == 0) since_ = now;
    else if (now - tried_at_ > pause_ns) since_ += now - tried_at_;  // no call came meanwhile
    tried_at_ = now;
  }
  void on_sent() noexcept { since_ = 0; }
  void forget() noexcept { since_ = 0; }

 private:
  bool is_short_ = false;
  uint64_t since_ = 0;
  uint64_t tried_at_ = 0;
};

}  // namespace weft::proto::reliable
