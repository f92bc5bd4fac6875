// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Names of Unix sockets that are no files (unix(7), "abstract"): they go with their socket.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <string_view>

namespace weft::os {

// Fills `out`; its length, or 0 when the name is too long.
inline socklen_t abstract_address(std::string_view name, sockaddr_un& out) noexcept {
  out = {};
  out.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof(out.sun_path)) return 0;
  std::memcpy(out.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

}  // namespace weft::os
