// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An address as people write it. Must not know who reads it.
#pragma once

#include <string>

#include "os/socket_address.hpp"

namespace weft::os {

// "1.2.3.4:5", "[::1]:5".
inline std::string plain_text(const SocketAddress& address) {
  const std::string text = address.text();
  const size_t scheme = text.find("://");
  return scheme == std::string::npos ? text : text.substr(scheme + 3);
}

}  // namespace weft::os
