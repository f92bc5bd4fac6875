// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Where endpoints of a provider can be on this machine: one domain for each address of each interface. The front end offers a domain for each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "os/socket_address.hpp"

namespace weft::providers {

struct InterfaceDomain {
  std::string domain;             // name of the interface
  std::string fabric;             // its network, "192.0.2.0/24"
  std::vector<std::byte> source;  // source address in the format that was asked
  bool leaves_host = true;        // not loopback
  bool is_listed = true;          // offered to who names no domain
};

// The address of an interface, before it has the form of a provider.
struct DomainAddress {
  std::string interface;
  std::string network;
  os::SocketAddress source;
  bool leaves_host = true;
  bool is_listed = true;
};

// Addresses of one family, AF_UNSPEC for both, the best first: with `source` the one that has it (the wildcard address: all, at its port); with
// `destination` the one from which it is reached, then the others; else all. `setting`: with the interface to list, FI_TCP_IFACE.
std::vector<DomainAddress> domain_addresses(int family, const char* setting, const os::SocketAddress& source,
                                            const os::SocketAddress& destination);

// Interfaces that the setting may name: those of domain_addresses().
bool is_listable_interface(std::string_view interface);

// The same in the form of P, which has parse() and form(). Addresses may be empty.
template <class P>
std::vector<InterfaceDomain> make_interface_domains(uint32_t format, int family, const char* setting,
                                                    std::span<const std::byte> source,
                                                    std::span<const std::byte> destination) {
  const auto read = [format](std::span<const std::byte> bytes) {
    return bytes.empty() ? os::SocketAddress() : P::parse(format, bytes.data()).value_or(os::SocketAddress());
  };
  std::vector<InterfaceDomain> interface_domains;
  for (DomainAddress& one : domain_addresses(family, setting, read(source), read(destination)))
    interface_domains.push_back({std::move(one.interface), std::move(one.network),
                                 P::form(format, one.source), one.leaves_host, one.is_listed});
  return interface_domains;
}

}  // namespace weft::providers
