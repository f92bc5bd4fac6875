// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The monotonic clock (no kernel entry: vDSO). Must not know who asks.
#pragma once

#include <ctime>

#include <cstdint>

namespace weft::os {

inline uint64_t monotonic_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// The time of day; it may be set back.
inline uint64_t realtime_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace weft::os
