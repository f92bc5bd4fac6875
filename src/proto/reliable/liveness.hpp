// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Liveness: since when a peer has been silent, and what the packet link says of it. Times in ns. Must not know packets or timers.
#pragma once

#include <cstdint>

namespace weft::proto::reliable {

struct Liveness {
  uint64_t silent_from = 0;   // since when we wait for any sign
  uint64_t heard_at = 0;      // 0: never
  uint64_t refused_from = 0;  // since then the packet link says that the address has no owner; 0: it does not
  uint64_t refusal_due = 0;   // when to ask whether that is so; 0: not
  unsigned refusals = 0;      // since then

  void heard(uint64_t now) noexcept { *this = {now, now, 0, 0, 0}; }
};

}  // namespace weft::proto::reliable
