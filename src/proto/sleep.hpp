// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// HasSleep: a Link or a PacketLink that its owner can sleep on. Must not know which of the two it is.
#pragma once

#include <concepts>

namespace weft::proto {

// wait_fd() is a descriptor that poll(2) shows as readable while there is something to poll; it belongs to the link; -1:
// there is none. arm() before a sleep: false means that the caller polls instead. disarm() after it.
template <class L>
concept HasSleep = requires(L& link) {
  { link.wait_fd() }
  noexcept->std::same_as<int>;
  { link.arm() }
  noexcept->std::same_as<bool>;
  { link.disarm() }
  noexcept;
};

}  // namespace weft::proto
