// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The interfaces of this machine as domains.
#include "providers/interface_domains.hpp"

#include <algorithm>
#include <string_view>

#include "base/settings.hpp"
#include "os/interfaces.hpp"

namespace weft::providers {
namespace {

// A loopback interface has the network of its address alone, as libfabric has it.
std::string network_of(const os::Interface& interface, os::InterfaceAddress one) {
  if (interface.is_loopback) one.prefix_bits = one.address.family() == AF_INET ? 32 : 128;
  return os::network_text(one);
}

std::vector<DomainAddress> all_addresses(int family, std::string_view listed) {
  std::vector<DomainAddress> addresses;
  for (const os::Interface& interface : os::interfaces())
    for (const os::InterfaceAddress& one : interface.addresses)
      if (family == AF_UNSPEC || one.address.family() == family)
        addresses.push_back({interface.name, network_of(interface, one), one.address, !interface.is_loopback,
                             listed.empty() || interface.name == listed});
  return addresses;
}

}  // namespace

bool is_listable_interface(std::string_view interface) {
  return std::ranges::any_of(os::interfaces(),
                             [interface](const os::Interface& one) { return one.name == interface; });
}

std::vector<DomainAddress> domain_addresses(int family, const char* setting, const os::SocketAddress& source,
                                            const os::SocketAddress& destination) {
  const char* const named = setting != nullptr ? settings::text(setting) : nullptr;
  const std::string_view listed = named != nullptr && is_listable_interface(named) ? named : "";
  std::vector<DomainAddress> addresses = all_addresses(family, listed);
  const auto address_with = [&addresses](const os::SocketAddress& address) {
    return std::ranges::find_if(addresses, [&address](const DomainAddress& one) {
      const bool here = address.scope() == 0 || address.scope() == one.source.scope();
      return here && same_host(one.source, address);
    });
  };
  if (source && source.is_any()) {  // a port at any of them
    std::erase_if(addresses,
                  [&source](const DomainAddress& one) { return one.source.family() != source.family(); });
    for (DomainAddress& one : addresses) {
      one.source.set_port(source.port());
      one.is_listed = false;
    }
    return addresses;
  }
  if (source) {
    const auto found = address_with(source);
    if (found == addresses.end()) return {};
    const uint32_t scope = found->source.scope();
    found->source = source;
    if (source.scope() == 0 && scope != 0) found->source.set_scope(scope);
    found->is_listed = true;
    return {*found};
  }
  if (destination) {
    std::erase_if(addresses, [&destination](const DomainAddress& one) {
      return one.source.family() != destination.family();
    });
    for (DomainAddress& one : addresses) one.is_listed = false;
    if (const auto found = address_with(os::source_toward(destination)); found != addresses.end()) {
      found->is_listed = true;
      std::rotate(addresses.begin(), found, found + 1);
    }
  }
  return addresses;
}

}  // namespace weft::providers
