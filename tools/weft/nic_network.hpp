// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the kernel's network has on an interface: state, addresses, routes; and giving them back. Knows netdevice(7), rtnetlink(7) and
// /proc/net; must not know what a PCI function is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <weft/nic_binding.hpp>

namespace weft::tool::cards {

// Destinations of the routes through an interface, "10.0.0.0/24", out of the text of /proc/net/route and /proc/net/ipv6_route. Link-local and
// multicast ones are left out: every interface that is up has them. `gateways` gets the gateways of default routes.
std::vector<std::string> routes4(std::string_view table, std::string_view interface,
                                 std::vector<std::string>& gateways);
std::vector<std::string> routes6(std::string_view table, std::string_view interface,
                                 std::vector<std::string>& gateways);

// Interfaces that the kernel has put on this one: a bridge or a bond that it is a port of, VLANs, macvlans. They carry
// the addresses then.
std::vector<std::string> uppers_of(const std::string& interface, const std::string& root = {});

struct InterfaceState : nic_binding::Interface {
  std::vector<std::string> routes;
  std::vector<std::string> uppers;
};
// An interface of this network namespace. What cannot be asked is left out.
InterfaceState state_of(const std::string& interface);

// Gives an interface its MTU, MAC, addresses, gateways and whether it was up. What was refused, in sentences; the rest is done.
std::vector<std::string> restore(const std::string& interface, const nic_binding::Interface& had);

}  // namespace weft::tool::cards
