// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Who gets lines for the log at level info. Must not know what they say.
#pragma once

#include "proto/setup.hpp"

namespace weft::link::shm {

struct InfoLines {
  proto::PacketWarning on_line = nullptr;
  const void* context = nullptr;

  // False: nobody reads them, and they need not be made.
  explicit operator bool() const noexcept { return on_line != nullptr; }
  void operator()(const char* line) const noexcept {
    if (on_line != nullptr) on_line(context, line);
  }
};

}  // namespace weft::link::shm
