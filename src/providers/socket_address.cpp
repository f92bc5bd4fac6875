// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Names of hosts and services to IP addresses (getaddrinfo(3)), and their three formats.
#include "providers/socket_address.hpp"

#include <netdb.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include "os/interfaces.hpp"
#include "os/plain_address.hpp"

namespace weft::providers {
namespace {

using os::SocketAddress;

int family_of(uint32_t format) noexcept {
  return format == FI_SOCKADDR_IN ? AF_INET : format == FI_SOCKADDR_IN6 ? AF_INET6 : AF_UNSPEC;
}

Error wrong_family(uint32_t format, const char* node) {
  return {EAFNOSUPPORT,
          std::string(node) + " is no " + (format == FI_SOCKADDR_IN6 ? "IPv6" : "IPv4") + " address"};
}

std::optional<uint16_t> port_number(const char* service) noexcept {
  uint16_t port = 0;
  const std::string_view text = service == nullptr ? "0" : service;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || at != text.data() + text.size()) return {};
  return port;
}

Result<SocketAddress> look_up(uint32_t format, const char* node, const char* service, bool source) {
  addrinfo hints{};
  hints.ai_family = family_of(format);
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = source ? AI_PASSIVE : 0;
  addrinfo* list = nullptr;
  // getaddrinfo takes larger numbers modulo 65536.
  if (service != nullptr && *service != 0 &&
      std::string_view(service).find_first_not_of("0123456789") == std::string_view::npos &&
      !port_number(service))
    return Error{ENODATA, std::string("port ") + service + ": above 65535"};
  const int failed = ::getaddrinfo(node, service == nullptr ? "0" : service, &hints, &list);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  const std::string name = std::string(node != nullptr ? node : "(this machine)") +
                           (service != nullptr ? std::string(" port ") + service : "");
  if (failed == EAI_SYSTEM) return Error{errno, name + ": " + std::strerror(errno)};
  if (failed == EAI_MEMORY) return Error{ENOMEM, name + ": out of memory"};
  if (failed != 0) return Error{ENODATA, name + ": " + ::gai_strerror(failed)};
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (const auto address = SocketAddress::from(entry->ai_addr, entry->ai_addrlen)) return *address;
  }
  return Error{ENODATA, name + ": no IP address"};
}

// A source that is a link-local address without scope gets that of the interface that has it, if one alone does.
Result<SocketAddress> with_scope(const SocketAddress& address) {
  if (!address.is_link_local() || address.scope() != 0) return address;
  SocketAddress found = address;
  std::string first;
  for (const os::Interface& interface : os::interfaces()) {
    for (const os::InterfaceAddress& one : interface.addresses) {
      if (!os::same_host(one.address, address)) continue;
      if (found.scope() != 0)
        return Error{EINVAL, os::plain_text(address) + ": the interfaces " + first + " and " +
                                 interface.name + " have this address; add %" + first + " or %" +
                                 interface.name};
      found.set_scope(one.address.scope());
      first = interface.name;
    }
  }
  return found;
}

Result<std::vector<std::byte>> form_of(uint32_t format, const SocketAddress& address, bool source) {
  if (!source) return SocketAddresses::form(format, address);
  const auto scoped = with_scope(address);
  if (!scoped) return scoped.error();
  return SocketAddresses::form(format, *scoped);
}

}  // namespace

bool SocketAddresses::available(uint32_t format) noexcept {
  return format == FI_ADDR_STR || os::has_family(family_of(format));
}

std::optional<SocketAddress> SocketAddresses::parse(uint32_t format, const void* bytes) noexcept {
  if (format == FI_ADDR_STR) {
    const char* text = static_cast<const char*>(bytes);
    return SocketAddress::from_text({text, ::strnlen(text, SocketAddress::text_bytes)});
  }
  const auto address = SocketAddress::from(bytes, addrlen(format));
  const int family = format == FI_SOCKADDR_IN6 ? AF_INET6 : AF_INET;
  return address && address->family() == family ? address : std::nullopt;
}

std::vector<std::byte> SocketAddresses::form(uint32_t format, const SocketAddress& address) {
  std::vector<std::byte> bytes(addrlen(format));
  if (format == FI_ADDR_STR) {
    const std::string text = address.text();
    std::memcpy(bytes.data(), text.data(), std::min(text.size(), bytes.size() - 1));
  } else {
    std::memcpy(bytes.data(), address.get(), std::min<size_t>(address.size(), bytes.size()));
  }
  return bytes;
}

std::vector<InterfaceDomain> SocketAddresses::domains_with_setting(uint32_t format, const char* setting,
                                                                   std::span<const std::byte> source,
                                                                   std::span<const std::byte> destination) {
  return make_interface_domains<SocketAddresses>(format, family_of(format), setting, source, destination);
}

Result<std::vector<std::byte>> SocketAddresses::resolve(uint32_t format, const char* node,
                                                        const char* service, bool source) {
  const std::string_view host = node == nullptr ? "" : node;
  if (node == nullptr && service == nullptr) return std::vector<std::byte>{};
  if (host.starts_with("fi_sockaddr")) {
    const auto address = SocketAddress::from_text(host);
    if (!address) return Error{EINVAL, std::string(host) + " is no address with a port"};
    if (format != FI_ADDR_STR && address->family() != family_of(format)) return wrong_family(format, node);
    return form_of(format, *address, source);
  }
  if (host.find("://") != std::string_view::npos)
    return Error{EINVAL, std::string(host) + " is no address of IP"};
  const int family = format == FI_SOCKADDR_IN6 ? AF_INET6 : AF_INET;
  // Numbers need no resolver.
  const auto port = port_number(service);
  if (port && host.empty())
    return form(format, source ? SocketAddress::any(family, *port) : SocketAddress::loopback(family, *port));
  if (port) {
    const bool colons = host.find(':') != std::string_view::npos;
    const std::string text = (colons ? '[' + std::string(host) + ']' : std::string(host)) + ':';
    if (const auto address = SocketAddress::from_text(text + std::to_string(*port))) {
      if (format != FI_ADDR_STR && address->family() != family) return wrong_family(format, node);
      return form_of(format, *address, source);
    }
  }
  auto address = look_up(format, host.empty() ? nullptr : node, service, source);
  if (!address) return address.error();
  return form_of(format, *address, source);
}

std::vector<std::byte> SocketAddresses::unnamed(uint32_t format) {
  return form(format, SocketAddress::any(format == FI_SOCKADDR_IN6 ? AF_INET6 : AF_INET));
}

bool SocketAddresses::normalise(uint32_t format, std::byte* bytes) noexcept {
  const auto address = parse(format, bytes);
  if (!address) return false;
  if (format != FI_ADDR_STR) {
    std::memcpy(bytes, address->get(), address->size());
    return true;
  }
  try {
    const auto text = form(format, *address);
    std::memcpy(bytes, text.data(), text.size());
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

std::string SocketAddresses::to_string(uint32_t format, const void* bytes) {
  const auto address = parse(format, bytes);
  return address ? address->text() : std::string();
}

}  // namespace weft::providers
