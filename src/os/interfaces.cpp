// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// getifaddrs(3), and the ioctl for the MTU.
#include "os/interfaces.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>

#include "os/fd.hpp"

namespace weft::os {
namespace {

unsigned mtu_of(const Fd& socket, const std::string& name) noexcept {
  ifreq request{};
  std::strncpy(request.ifr_name, name.c_str(), sizeof request.ifr_name - 1);
  return ::ioctl(socket.get(), SIOCGIFMTU, &request) == 0 ? static_cast<unsigned>(request.ifr_mtu) : 0;
}

// Where the bytes of the host part and the network part are.
std::span<std::byte> host_bytes(sockaddr_storage& address) noexcept {
  if (address.ss_family == AF_INET)
    return std::as_writable_bytes(std::span(&reinterpret_cast<sockaddr_in&>(address).sin_addr, 1));
  return std::as_writable_bytes(std::span(&reinterpret_cast<sockaddr_in6&>(address).sin6_addr, 1));
}

sockaddr_storage copy_of(const sockaddr* address, int family) noexcept {
  sockaddr_storage copy{};
  std::memcpy(&copy, address, SocketAddress::length_of(family));
  copy.ss_family = static_cast<sa_family_t>(family);
  return copy;
}

unsigned prefix_of(const sockaddr* mask, int family) noexcept {
  if (mask == nullptr) return family == AF_INET ? 32 : 128;
  sockaddr_storage copy = copy_of(mask, family);
  unsigned bits = 0;
  for (const std::byte one : host_bytes(copy))
    bits += static_cast<unsigned>(std::popcount(static_cast<unsigned char>(one)));
  return bits;
}

void add_address(Interface& to, const SocketAddress& address, unsigned prefix_bits) {
  to.addresses.push_back({address, prefix_bits});
  if (address.family() == AF_INET && !to.ipv4) to.ipv4 = address;
  if (address.family() == AF_INET6 && (!to.ipv6 || (to.ipv6.is_link_local() && !address.is_link_local())))
    to.ipv6 = address;
}

}  // namespace

std::vector<Interface> interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  std::vector<Interface> found;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const auto address = SocketAddress::from(one->ifa_addr, SocketAddress::length_of(family));
    if (!address) continue;
    // An alias ("eth0:1") belongs to its interface.
    const std::string name(one->ifa_name, std::strcspn(one->ifa_name, ":"));
    auto place = std::ranges::find(found, name, &Interface::name);
    if (place == found.end()) {
      found.push_back({name,
                       ::if_nametoindex(name.c_str()),
                       mtu_of(socket, name),
                       (one->ifa_flags & IFF_LOOPBACK) != 0,
                       {},
                       {},
                       {}});
      place = std::prev(found.end());
    }
    add_address(*place, *address, prefix_of(one->ifa_netmask, family));
  }
  for (Interface& one : found)
    std::ranges::stable_sort(one.addresses, {}, [](const InterfaceAddress& each) {
      return each.address.family() == AF_INET ? 0 : each.address.is_link_local() ? 2 : 1;
    });
  const SocketAddress out4 = outgoing_address(AF_INET);
  const auto rank = [&](const Interface& one) {
    return one.is_loopback ? 2 : one.ipv4 && same_host(one.ipv4, out4) ? 0 : 1;
  };
  std::ranges::stable_sort(found, {}, rank);
  return found;
}

std::optional<Interface> interface_named(const std::string& name) {
  const unsigned index = name.size() < IFNAMSIZ ? ::if_nametoindex(name.c_str()) : 0;
  if (index == 0) return {};
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return Interface{name, index, mtu_of(socket, name), false, {}, {}, {}};
}

std::string network_text(const InterfaceAddress& one) {
  sockaddr_storage network = copy_of(one.address.get(), one.address.family());
  const std::span<std::byte> bytes = host_bytes(network);
  for (size_t i = 0; i < bytes.size(); ++i) {
    const unsigned kept = one.prefix_bits > 8 * i ? std::min(one.prefix_bits - unsigned(8 * i), 8U) : 0;
    bytes[i] &= static_cast<std::byte>(0xff00U >> kept);
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (::inet_ntop(network.ss_family, bytes.data(), text.data(), text.size()) == nullptr) return {};
  return std::string(text.data()) + '/' + std::to_string(one.prefix_bits);
}

}  // namespace weft::os
