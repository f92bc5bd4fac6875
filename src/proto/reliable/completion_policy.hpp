// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// When bytes that a silent peer was sent count as delivered (docs/reliable.md, "When a send is complete"). Must not know connections.
//
// A peer whose program computes sends no acknowledgements, and when its last acknowledgement is lost it may never send another one. A program that has
// to know that the peer has the bytes must wait for the acknowledgement all the same; any other program would wait without an end.
#pragma once

#include "base/assert.hpp"

namespace weft::proto::reliable {

class CompletionPolicy {
 public:
  // What the peer has acknowledged is delivered, and nothing else.
  static constexpr CompletionPolicy acknowledged() noexcept { return CompletionPolicy(0); }
  // Bytes also count as delivered after that many timeouts in a row (1 or more), when each was sent in all of them and no answer came.
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
