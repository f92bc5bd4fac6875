// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// For tests: units of time, in ns.
#pragma once

#include <cstdint>

namespace weft::proto::roce::sim {

inline constexpr uint64_t us = 1000;
inline constexpr uint64_t ms = 1000 * us;

}  // namespace weft::proto::roce::sim
