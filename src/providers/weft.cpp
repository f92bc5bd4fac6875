// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Names of hosts and ports to addresses of the provider weft.
#include "providers/weft.hpp"

#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <string_view>

#include "base/settings.hpp"
#include "providers/socket_address.hpp"

namespace weft::providers {
namespace {

using link::composite::Address;

std::string_view text_at(const void* bytes) {
  const char* text = static_cast<const char*>(bytes);
  return {text, ::strnlen(text, Address::text_bytes)};
}

std::vector<std::byte> text_of(const Address& address) {
  std::vector<std::byte> bytes(Address::text_bytes);
  const std::string text = address.text();
  std::memcpy(bytes.data(), text.data(), std::min(text.size(), bytes.size() - 1));
  return bytes;
}

}  // namespace

Result<std::vector<std::byte>> WeftAddresses::resolve(uint32_t, const char* node, const char* service,
                                                      bool source) {
  if (node != nullptr && std::string_view(node).starts_with("weft://")) {
    const auto address = Address::from_text(node);
    if (!address) return Error{EINVAL, std::string(node) + " is no address of weft"};
    return text_of(*address);
  }
  auto bytes = SocketAddresses::resolve(FI_ADDR_STR, node, service, source);
  if (!bytes || bytes->empty()) return bytes;
  const auto where = os::SocketAddress::from_text(text_at(bytes->data()));
  if (!where) return Error{EINVAL, std::string(text_at(bytes->data())) + " is no address with a port"};
  return text_of({*where, {}});
}

std::vector<std::byte> WeftAddresses::unnamed(uint32_t) {
  return text_of({os::SocketAddress::any(AF_INET), {}});
}

bool WeftAddresses::normalise(uint32_t, std::byte* bytes) noexcept try {
  const auto address = Address::from_text(text_at(bytes));
  if (!address) return false;
  const auto text = text_of(*address);
  std::memcpy(bytes, text.data(), text.size());
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

std::string WeftAddresses::to_string(uint32_t, const void* bytes) {
  const auto address = Address::from_text(text_at(bytes));
  return address ? address->text() : std::string();
}

std::optional<os::SocketAddress> WeftAddresses::parse(uint32_t, const void* bytes) noexcept {
  const auto address = Address::from_text(text_at(bytes));
  if (!address) return {};
  return address->where;
}

std::vector<std::byte> WeftAddresses::form(uint32_t, const os::SocketAddress& address) {
  return text_of({address, {}});
}

std::vector<InterfaceDomain> Weft::interface_domains(uint32_t format, std::span<const std::byte> source,
                                                     std::span<const std::byte> destination) {
  const char* const named = settings::text("FI_TCP_IFACE");
  const bool one_is_asked = named != nullptr && is_listable_interface(named);
  auto interface_domains =
      make_interface_domains<WeftAddresses>(format, AF_UNSPEC, "FI_TCP_IFACE", source, destination);
  // Who named an interface is bound to that, whichever leads to the destination.
  for (InterfaceDomain& entry : interface_domains)
    entry.is_listed = one_is_asked && (destination.empty() ? entry.is_listed : entry.domain == named);
  return interface_domains;
}

}  // namespace weft::providers
