// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The formats of addresses, both ways.
#include "link/tcp/formed_address.hpp"

#include <rdma/fabric.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace weft::link::tcp {

FormedAddress::FormedAddress(uint32_t format, const os::SocketAddress& address) {
  if (format == FI_ADDR_STR) {
    const std::string text = address.text();
    std::memcpy(bytes_.data(), text.data(), std::min(text.size(), bytes_.size() - 1));
    count_ = bytes_.size();
    return;
  }
  count_ = std::min<size_t>(address.size(), bytes_.size());
  std::memcpy(bytes_.data(), address.get(), count_);
}

std::optional<os::SocketAddress> FormedAddress::parse(uint32_t format, std::string_view name) noexcept {
  return format == FI_ADDR_STR ? os::SocketAddress::from_text(name)
                               : os::SocketAddress::from(name.data(), name.size());
}

int FormedAddress::family(uint32_t format) noexcept { return format == FI_SOCKADDR_IN6 ? AF_INET6 : AF_INET; }

}  // namespace weft::link::tcp
