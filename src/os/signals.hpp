// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Whether system calls go on after the signal handlers of this process (SA_RESTART of sigaction(2)). read(2) heeds that; poll(2) and its kind
// fail with EINTR all the same. Who sleeps in poll(2) where the program expects read(2) asks here. Must not know who sleeps.
#pragma once

#include <cstdint>

namespace weft::os {

// NoHandler: none is installed. All: none without SA_RESTART is. None: none with it is.
enum class Restarts : uint8_t { NoHandler, All, None, Mixed };

Restarts restarts() noexcept;         // now: a system call for each signal
Restarts restarts_lately() noexcept;  // as of at most 100 ms ago
}  // namespace weft::os
