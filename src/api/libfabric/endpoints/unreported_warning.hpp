// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The line in the log about errors that no completion entry tells of (docs/engine.md, "Counted errors"). Must not know engines.
#pragma once

#include <cstdint>

#include "api/libfabric/discovery/provider.hpp"
#include "core/progress.hpp"

namespace weft::fi {

// At most one line in two seconds for the process; the next one has the number of those left out. A peer that closes its endpoint does so by its own
// wish: level info, each. Any thread.
void warn_of_unreported(const Provider& provider, uint32_t format,
                        const core::UnreportedErrors& errors) noexcept;

}  // namespace weft::fi
