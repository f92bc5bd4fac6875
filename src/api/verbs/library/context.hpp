// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An open device: struct verbs_context of <infiniband/verbs.h> with what the library keeps in front of it. Must not know what single calls do.
#pragma once

#include <memory>

#include "api/verbs/library/device.hpp"
#include "api/verbs/library/events.hpp"

namespace weft::verbs {

struct Context {
  Device* device = nullptr;
  weft_verbs_ops ops{};  // null where the provider has nothing
  void* state = nullptr;
  std::unique_ptr<Events> events;
  os::Fd command;         // of cmd_fd, which programs duplicate: it leads nowhere
  verbs_context shown{};  // last: it grows at its front, and programs have a pointer to its end

  // Of a context that open_device() made.
  static Context& of(ibv_context* context) noexcept {
    return *reinterpret_cast<Context*>(verbs_get_ctx(context)->priv);
  }
};

// ibv_open_device(3). Null and errno.
ibv_context* open_device(ibv_device* device) noexcept;
// Frees the objects that the program has left. 0 or an errno.
int close_device(ibv_context* context) noexcept;

// Fills the calls of a context: what the header calls directly.
void fill_calls(Context& context) noexcept;

}  // namespace weft::verbs
