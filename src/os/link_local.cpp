// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Link-local addresses beside those of the interfaces here.
#include "os/link_local.hpp"

#include <ifaddrs.h>
#include <net/if.h>

namespace weft::os {
namespace {

// each(address, is_loopback) of every link-local address of an interface that is up, until it returns true.
template <class Fn>
void any_link_local(Fn&& each) noexcept {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET6 ||
        (entry->ifa_flags & IFF_UP) == 0)
      continue;
    const auto address = SocketAddress::from(entry->ifa_addr, sizeof(sockaddr_in6));
    if (address && address->is_link_local() && each(*address, (entry->ifa_flags & IFF_LOOPBACK) != 0)) break;
  }
  ::freeifaddrs(list);
}

bool is_group(const SocketAddress& address) noexcept {
  return IN6_IS_ADDR_MULTICAST(&reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr);
}

}  // namespace

SocketAddress on_this_host(const SocketAddress& named, const SocketAddress& by) noexcept {
  if (!named.is_link_local() || is_group(named)) return named;
  const bool has_link = by.is_link_local() && by.scope() != 0;
  if (has_link && by.scope() == named.scope()) return named;
  bool is_own = false;
  bool is_here = false;
  uint32_t own_scope = 0;    // of an interface with that address, for a name without scope
  uint32_t first_scope = 0;  // of an interface that leads out
  any_link_local([&](const SocketAddress& address, bool is_loopback) {
    if (same_host(address, named)) {
      if (address.scope() == named.scope()) return is_own = true;
      own_scope = own_scope != 0 ? own_scope : address.scope();
    }
    if (is_loopback) return false;
    if (address.scope() == named.scope()) is_here = true;
    if (first_scope == 0) first_scope = address.scope();
    return false;
  });
  SocketAddress here = named;
  if (is_own || (!has_link && is_here)) return here;
  if (named.scope() == 0 && own_scope != 0) here.set_scope(own_scope);
  else if (has_link) here.set_scope(by.scope());
  else if (first_scope != 0) here.set_scope(first_scope);
  return here;
}

bool is_own_link_local(const SocketAddress& address) noexcept {
  if (!address.is_link_local()) return false;
  bool is_own = false;
  any_link_local([&](const SocketAddress& own, bool) {
    return is_own = own.scope() == address.scope() && same_host(own, address);
  });
  return is_own;
}

}  // namespace weft::os
