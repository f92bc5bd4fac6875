// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Who makes progress, when the setting WEFT_PROGRESS says it (docs/progress.md).
#pragma once

#include <cstdint>

#include "base/settings.hpp"

namespace weft::fi {

enum class ProgressChoice : uint8_t {
  Asked,   // not set: what the program asks for; a thread repeats what is lost
  Auto,    // a thread for every domain, whatever is asked for
  Manual,  // no thread: FI_PROGRESS_AUTO is refused
};

inline ProgressChoice progress_choice() noexcept {
  return static_cast<ProgressChoice>(settings::number("WEFT_PROGRESS"));
}

}  // namespace weft::fi
