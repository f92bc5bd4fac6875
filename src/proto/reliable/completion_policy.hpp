// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// When bytes that a silent peer was sent count as delivered (docs/reliable.md, "When a send is complete"). Must not know connections.
//
// A peer that computes acknowledges nothing, and the last acknowledgement of one that has gone on may be lost for good. Waiting for it is right where
// a completion has to mean that the peer has the bytes; a program that waits for nothing else would wait for ever.
#pragma once

#include "base/assert.hpp"

namespace weft::proto::reliable {

class CompletionPolicy {
 public:
  // What the peer has acknowledged is delivered, and nothing else.
  static constexpr CompletionPolicy acknowledged() noexcept { return CompletionPolicy(0); }
  // So is what was sent in that many timeouts in a row (1 or more), while no answer came.
  static constexpr CompletionPolicy assumed_after(unsigned timeouts) noexcept {
    WEFT_ASSERT(timeouts != 0);
    return CompletionPolicy(timeouts);
  }
  // What the setting says: 0 for acknowledged().
  static constexpr CompletionPolicy from(unsigned timeouts) noexcept {
    return timeouts == 0 ? acknowledged() : assumed_after(timeouts);
  }

  // Whether delivery may be assumed after `timeouts` in a row.
  constexpr bool assumes(unsigned timeouts) const noexcept { return after_ != 0 && timeouts >= after_; }
  // How often each packet must have been sent again for it.
  constexpr unsigned repetitions() const noexcept { return after_; }

 private:
  explicit constexpr CompletionPolicy(unsigned after) noexcept : after_(after) {}

  unsigned after_;  // timeouts in a row; 0: never
};

// Four timeouts: 15 ms on a fast path.
inline constexpr unsigned assume_after_default = 4;

}  // namespace weft::proto::reliable
