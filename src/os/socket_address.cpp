// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// IP addresses: forms, text, and which of ours others can reach.
#include "os/socket_address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <charconv>
#include <cstring>

#include "os/fd.hpp"

namespace weft::os {
namespace {

bool take_prefix(std::string_view& text, std::string_view prefix) noexcept {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

template <class T>
bool parse_number(std::string_view text, T& out) noexcept {
  const auto end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, out);
  return error == std::errc() && at == end && !text.empty();
}

// The number or the name of an interface here.
bool parse_scope(std::string_view text, uint32_t& out) noexcept {
  if (parse_number(text, out)) return true;
  char name[IF_NAMESIZE] = {};
  if (text.empty() || text.size() >= sizeof(name)) return false;
  std::memcpy(name, text.data(), text.size());
  out = ::if_nametoindex(name);
  return out != 0;
}

// What means another place on each interface: link-local addresses, groups of interface and link scope (RFC 4291, 2.7).
bool is_link_local(const in6_addr& address) noexcept {
  return (address.s6_addr[0] == 0xfe && (address.s6_addr[1] & 0xc0) == 0x80) ||
         (address.s6_addr[0] == 0xff && (address.s6_addr[1] & 0x0f) <= 2);
}

}  // namespace

SocketAddress SocketAddress::any(int family, uint16_t port) noexcept {
  SocketAddress address;
  if (length_of(family) == 0) return address;
  address.storage_.ss_family = static_cast<sa_family_t>(family);
  address.set_port(port);
  return address;
}

SocketAddress SocketAddress::loopback(int family, uint16_t port) noexcept {
  SocketAddress address = any(family, port);
  if (family == AF_INET) address.in().sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (family == AF_INET6) address.in6().sin6_addr = in6addr_loopback;
  return address;
}

std::optional<SocketAddress> SocketAddress::from(const void* bytes, size_t length) noexcept {
  sa_family_t family = AF_UNSPEC;
  if (length < sizeof(family)) return {};
  std::memcpy(&family, bytes, sizeof(family));
  const socklen_t wanted = length_of(family);
  if (wanted == 0 || length < wanted) return {};
  SocketAddress address;
  std::memcpy(&address.storage_, bytes, wanted);
  if (family == AF_INET) {
    std::memset(address.in().sin_zero, 0, sizeof(address.in().sin_zero));
  } else {
    address.in6().sin6_flowinfo = 0;
    if (!os::is_link_local(address.in6().sin6_addr)) address.in6().sin6_scope_id = 0;
  }
  return address;
}

std::optional<SocketAddress> SocketAddress::from_text(std::string_view text) noexcept {
  int family = AF_UNSPEC;
  if (take_prefix(text, "fi_sockaddr_in6://")) family = AF_INET6;
  else if (take_prefix(text, "fi_sockaddr_in://")) family = AF_INET;
  else take_prefix(text, "fi_sockaddr://");
  if (const size_t query = text.find_first_of("/?"); query != std::string_view::npos)
    text = text.substr(0, query);
  const size_t colon = text.rfind(':');
  uint16_t port = 0;
  if (colon == std::string_view::npos || !parse_number(text.substr(colon + 1), port)) return {};
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (family != AF_UNSPEC && bracketed != (family == AF_INET6)) return {};
  SocketAddress address = any(bracketed ? AF_INET6 : AF_INET, port);
  uint32_t scope = 0;
  if (const size_t percent = host.find('%'); bracketed && percent != std::string_view::npos) {
    if (!parse_scope(host.substr(percent + 1), scope)) return {};
    host = host.substr(0, percent);
  }
  char plain[INET6_ADDRSTRLEN] = {};
  if (host.empty() || host.size() >= sizeof(plain)) return {};
  std::memcpy(plain, host.data(), host.size());
  void* place = bracketed ? static_cast<void*>(&address.in6().sin6_addr) : &address.in().sin_addr;
  if (::inet_pton(address.family(), plain, place) != 1) return {};
  if (scope != 0) {
    if (!os::is_link_local(address.in6().sin6_addr)) return {};
    address.in6().sin6_scope_id = scope;
  }
  return address;
}

std::string SocketAddress::text() const {
  char host[INET6_ADDRSTRLEN] = {};
  if (family() == AF_INET) {
    (void)::inet_ntop(AF_INET, &in().sin_addr, host, sizeof(host));
    return "fi_sockaddr_in://" + std::string(host) + ':' + std::to_string(port());
  }
  if (family() != AF_INET6) return {};
  (void)::inet_ntop(AF_INET6, &in6().sin6_addr, host, sizeof(host));
  std::string rest = "://[" + std::string(host);
  if (in6().sin6_scope_id != 0) rest += '%' + std::to_string(in6().sin6_scope_id);
  rest += "]:" + std::to_string(port());
  std::string whole = "fi_sockaddr_in6" + rest;
  if (whole.size() < text_bytes) return whole;
  whole = "fi_sockaddr" + rest;
  return whole.size() < text_bytes ? whole : rest.substr(std::string_view("://").size());
}

uint16_t SocketAddress::port() const noexcept {
  return family() == AF_INET6 ? ntohs(in6().sin6_port) : family() == AF_INET ? ntohs(in().sin_port) : 0;
}

void SocketAddress::set_port(uint16_t port) noexcept {
  if (family() == AF_INET) in().sin_port = htons(port);
  if (family() == AF_INET6) in6().sin6_port = htons(port);
}

bool SocketAddress::is_link_local() const noexcept {
  return family() == AF_INET6 && os::is_link_local(in6().sin6_addr);
}

void SocketAddress::set_scope(uint32_t scope) noexcept {
  if (is_link_local()) in6().sin6_scope_id = scope;
}

bool SocketAddress::is_any() const noexcept {
  if (family() == AF_INET) return in().sin_addr.s_addr == htonl(INADDR_ANY);
  return family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&in6().sin6_addr);
}

bool SocketAddress::is_loopback() const noexcept {
  if (family() == AF_INET) return (ntohl(in().sin_addr.s_addr) >> 24) == 127;
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in6().sin6_addr);
}

bool operator==(const SocketAddress& a, const SocketAddress& b) noexcept {
  return a.family() == b.family() && std::memcmp(&a.storage_, &b.storage_, a.size()) == 0;
}

bool same_host(SocketAddress a, SocketAddress b) noexcept {
  for (SocketAddress* address : {&a, &b}) {
    address->set_port(0);
    address->set_scope(0);
  }
  return a == b;
}

bool same_neighbour(const SocketAddress& a, const SocketAddress& b) noexcept {
  return same_host(a, b) && (!a.is_link_local() || a.scope() == b.scope());
}

SocketAddress local_address(int socket) noexcept {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {};
  return SocketAddress::from(&storage, length).value_or(SocketAddress());
}

SocketAddress remote_address(int socket) noexcept {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {};
  return SocketAddress::from(&storage, length).value_or(SocketAddress());
}

SocketAddress source_toward(const SocketAddress& destination) noexcept {
  if (!destination) return {};
  // A connected datagram socket sends nothing; the kernel only looks up the route.
  const Fd probe(::socket(destination.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe) return {};
  SocketAddress to = destination;
  if (to.port() == 0) to.set_port(9);
  if (::connect(probe.get(), to.get(), to.size()) != 0) return {};
  SocketAddress source = local_address(probe.get());
  source.set_port(0);
  return source.is_any() ? SocketAddress() : source;
}

SocketAddress outgoing_address(int family) noexcept {
  // Addresses that are set aside for documentation (RFC 5737, RFC 3849): they are reached by the default route, if by any.
  const auto outside =
      SocketAddress::from_text(family == AF_INET6 ? "[2001:db8::1]:9" : "192.0.2.1:9").value();
  if (const SocketAddress source = source_toward(outside); source && !source.is_loopback()) return source;
  SocketAddress found = SocketAddress::loopback(family);
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
    if ((entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const auto address = SocketAddress::from(entry->ifa_addr, SocketAddress::length_of(family));
    if (!address || address->is_loopback()) continue;
    const bool link_local = family == AF_INET6 &&
                            is_link_local(reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr);
    if (link_local && !found.is_loopback()) continue;
    found = *address;
    found.set_port(0);
    if (!link_local) break;
  }
  ::freeifaddrs(list);
  return found;
}

bool has_family(int family) noexcept {
  const Fd probe(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!probe) return false;
  // A kernel without any IPv6 address still makes such sockets.
  const SocketAddress here = SocketAddress::loopback(family);
  if (::bind(probe.get(), here.get(), here.size()) == 0) return true;
  return !outgoing_address(family).is_loopback();  // the loopback interface is down
}

}  // namespace weft::os
