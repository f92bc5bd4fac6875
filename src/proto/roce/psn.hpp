// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Packet sequence numbers: 24 bits that wrap (IBTA 9.7.1), and the two encodings of time. Stateless.
#pragma once

#include <array>
#include <cstdint>

namespace weft::proto::roce {

inline constexpr uint32_t psn_mask = 0xffffff;
// PSNs before the expected one are duplicates within half of the space, the others are ahead of it (9.7.4).
inline constexpr uint32_t psn_half = 1u << 23;

constexpr uint32_t psn_add(uint32_t psn, uint32_t count) noexcept { return (psn + count) & psn_mask; }
// a - b as a signed number of 24 bits.
constexpr int32_t psn_diff(uint32_t a, uint32_t b) noexcept {
  return static_cast<int32_t>((a - b) << 8) >> 8;
}

// The field of an RNR NAK (9.7.5.2.8), in ns. 0 is the longest.
constexpr uint64_t rnr_timer_ns(uint8_t code) noexcept {
  constexpr std::array<uint32_t, 32> hundredths_ms{
      65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
      256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return uint64_t{hundredths_ms[code & 31]} * 10'000;
}

// Local ACK timeout, 9.7.6.1.3: 4.096 us * 2^code; 0 is for ever.
constexpr uint64_t ack_timeout_ns(uint8_t code) noexcept {
  return (code & 31) == 0 ? UINT64_MAX : uint64_t{4096} << (code & 31);
}

}  // namespace weft::proto::roce
