// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The line in the log about errors that no completion entry tells of (docs/engine.md, "Counted errors"). Must not know engines.
#pragma once

#include <cstdint>

#include "core/progress.hpp"
#include "faces/libfabric/discovery/provider.hpp"
#include "proto/engine/link_base.hpp"

namespace weft::fi {

class UnreportedWarning {
 public:
  // At once the first time, then at most every two seconds. A peer that closes its endpoint does so by its own wish: level info.
  void tell(const Provider& provider, uint32_t format, const core::UnreportedErrors& errors) noexcept;

 private:
  proto::WarningRate rate_{2'000'000'000};
};

}  // namespace weft::fi
