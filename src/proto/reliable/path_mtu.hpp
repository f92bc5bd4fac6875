// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// PathMtu: how large the packets of a connection are. The packet link has a largest size, but a path may drop large packets and send no error. After
// timeouts packets become smaller, for a time that doubles. If the cause was silence and not the size, they are large again. In bytes of whole packets,
// times in ns. Must not know packets or sockets.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace weft::proto::reliable {

class PathMtu {
 public:
  size_t bytes() const noexcept { return bytes_; }  // of the largest packet now; 0: not known yet
  void forget() noexcept { bytes_ = 0; }
  // `limit`: of the packet link; `least`: smaller ones carry nothing. True: bytes() has changed.
  bool set(size_t limit, size_t least, uint64_t now) noexcept {
    if (cap_ != 0 && now >= cap_until_) cap_ = 0;
    if (cap_ != 0) limit = std::min(limit, cap_);
    limit = std::max(limit, least);
    if (limit == bytes_) return false;
    bytes_ = limit;
    return true;
  }
  void on_sent(size_t payload) noexcept { sent_ += payload; }
  // No answer comes: perhaps large packets vanish. The next smaller size fits jumbo frames, Ethernet with a tunnel, a path of 1,280 bytes with tunnels.
  void shrink(uint64_t now) noexcept {
    constexpr std::array<size_t, 3> steps = {8900, 1400, 1172};
    const auto* const step = std::ranges::find_if(steps, [&](size_t one) { return one < bytes_; });
    if (step == steps.end()) return;
    if (cap_ == 0) {
      sent_ = 0;
      is_judged_ = false;
      ++caps_;
    }
    cap_ = *step;
    cap_until_ = now + (cap_ns << std::min(caps_, cap_doublings_max));
  }
  // The first bytes that arrive since packets became small: when they are more than was sent small, it was silence and not the size.
  void on_delivered(size_t payload) noexcept {
    if (cap_ == 0 || is_judged_ || payload == 0) return;
    is_judged_ = true;
    if (payload <= sent_) return;
    cap_ = 0;
    caps_ = 0;
  }

 private:
  static constexpr uint64_t cap_ns = 1'000'000'000;
  static constexpr unsigned cap_doublings_max = 6;

  size_t bytes_ = 0;
  size_t cap_ = 0;  // packets stay as small as that; 0: they need not
  uint64_t cap_until_ = 0;
  size_t sent_ = 0;         // bytes of payload, since packets became small
  unsigned caps_ = 0;       // how often in a row they did
  bool is_judged_ = false;  // whether the size was the cause has been decided
};

}  // namespace weft::proto::reliable
