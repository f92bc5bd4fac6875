// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What closing endpoints have waited for their peers' acknowledgements, together. A program that closes many in a row, whose waits may all
// time out since one thread drives them all, waits spent_ns in total and not for each. Must not know packets.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace weft::link::reliable {

class Linger {
 public:
  static constexpr uint64_t spent_ns = 200'000'000;
  static constexpr uint64_t forgets = 4;  // a quarter of the time that passes is given back

  static bool is_spent(uint64_t now) noexcept { return level(now) >= spent_ns; }
  // Threads that close at the same time may lose each other's note.
  static void note(uint64_t began, uint64_t ended) noexcept {
    const uint64_t waited = level(began) + (ended - began);
    waited_.store(std::min(waited, 2 * spent_ns), std::memory_order_relaxed);
    noted_at_.store(ended, std::memory_order_relaxed);
  }

 private:
  static uint64_t level(uint64_t now) noexcept {
    const uint64_t waited = waited_.load(std::memory_order_relaxed);
    const uint64_t at = noted_at_.load(std::memory_order_relaxed);
    return waited - std::min(waited, now > at ? (now - at) / forgets : 0);
  }
  static inline std::atomic<uint64_t> waited_{0};
  static inline std::atomic<uint64_t> noted_at_{0};
};

}  // namespace weft::link::reliable
