// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The network interfaces of this machine (netdevice(7)). Must not know who asks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "os/socket_address.hpp"

namespace weft::os {

struct InterfaceAddress {
  SocketAddress address;  // port 0
  unsigned prefix_bits = 0;
};

struct Interface {
  std::string name;
  unsigned index = 0;
  unsigned mtu_bytes = 0;  // 0: the system does not say
  bool is_loopback = false;
  SocketAddress ipv4;                       // the first one, port 0; none: no address
  SocketAddress ipv6;                       // likewise, a link-local one only where there is no other
  std::vector<InterfaceAddress> addresses;  // all: IPv4, then IPv6, link-local ones last
};

// The network of an address: "192.0.2.0/24", "fd00::/64".
std::string network_text(const InterfaceAddress& one);

// Those that are up and have an address: that of the way out of the machine first, loopback last.
std::vector<Interface> interfaces();
// The one of that name, whatever its state, without addresses. Nothing: there is none.
std::optional<Interface> interface_named(const std::string& name);

}  // namespace weft::os
