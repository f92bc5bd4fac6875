// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Text of composite addresses.
#include "link/composite/address.hpp"

#include <rdma/fabric.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/settings.hpp"
#include "os/host.hpp"

namespace weft::link::composite {
namespace {

constexpr std::string_view scheme = "weft://";
constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr size_t local_bytes = 21;
constexpr size_t where_bytes = 18;

// RFC 4648, section 5, of whole groups of three bytes.
std::string encode(std::span<const uint8_t> bytes) {
  std::string text;
  for (size_t i = 0; i + 3 <= bytes.size(); i += 3) {
    const uint32_t group = uint32_t{bytes[i]} << 16 | uint32_t{bytes[i + 1]} << 8 | uint32_t{bytes[i + 2]};
    for (int shift = 18; shift >= 0; shift -= 6) text += alphabet[group >> shift & 63];
  }
  return text;
}

bool decode(std::string_view text, std::span<uint8_t> out) noexcept {
  if (text.size() != out.size() / 3 * 4) return false;
  for (size_t i = 0; i < text.size(); i += 4) {
    uint32_t group = 0;
    for (size_t j = 0; j < 4; ++j) {
      const size_t value = alphabet.find(text[i + j]);
      if (value == std::string_view::npos) return false;
      group = group << 6 | static_cast<uint32_t>(value);
    }
    for (size_t j = 0; j < 3; ++j) out[i / 4 * 3 + j] = static_cast<uint8_t>(group >> (16 - 8 * j));
  }
  return true;
}

void put(uint8_t*& at, uint64_t value, int bytes) noexcept {
  for (int i = bytes - 1; i >= 0; --i) *at++ = static_cast<uint8_t>(value >> (8 * i));
}
uint64_t get(const uint8_t*& at, int bytes) noexcept {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value = value << 8 | *at++;
  return value;
}

std::string text_of(const LocalName& local) {
  std::array<uint8_t, local_bytes> bytes{};
  uint8_t* at = bytes.data();
  put(at, local.host, 6);
  put(at, local.process, 4);
  put(at, local.descriptor, 3);
  put(at, local.nonce, 8);
  return encode(bytes);
}

bool parse(std::string_view text, LocalName& local) noexcept {
  std::array<uint8_t, local_bytes> bytes{};
  if (!decode(text, bytes)) return false;
  const uint8_t* at = bytes.data();
  local.host = get(at, 6);
  local.process = static_cast<uint32_t>(get(at, 4));
  local.descriptor = static_cast<uint32_t>(get(at, 3));
  local.nonce = get(at, 8);
  return local.host != 0 && local.process != 0 && local.process <= INT32_MAX;
}

// Link-local addresses are of fe80::/64 (RFC 4291, 2.5.6): bytes 2 to 5 are 0, and hold the scope here.
bool is_of_link_local_prefix(const uint8_t* bytes) noexcept {
  return bytes[0] == 0xfe && bytes[1] == 0x80 && bytes[6] == 0 && bytes[7] == 0;
}
constexpr std::array<uint8_t, 4> no_scope{};

// False: its scope and its own bytes 2 to 5 could not be told apart.
bool can_be_packed(const os::SocketAddress& where) noexcept {
  if (where.family() != AF_INET6) return true;
  sockaddr_in6 in{};
  std::memcpy(&in, where.get(), sizeof(in));
  const uint8_t* const bytes = in.sin6_addr.s6_addr;
  if (!is_of_link_local_prefix(bytes)) return in.sin6_scope_id == 0;
  return std::equal(no_scope.begin(), no_scope.end(), bytes + 2);
}

std::string packed(const os::SocketAddress& where) {
  sockaddr_in6 in{};
  std::memcpy(&in, where.get(), sizeof(in));
  std::array<uint8_t, where_bytes> bytes{};
  std::memcpy(bytes.data(), &in.sin6_addr, 16);
  if (is_of_link_local_prefix(bytes.data())) {
    uint8_t* at = bytes.data() + 2;
    put(at, in.sin6_scope_id, 4);
  }
  std::memcpy(bytes.data() + 16, &in.sin6_port, 2);
  return encode(bytes);
}

std::optional<os::SocketAddress> unpacked(std::string_view text) noexcept {
  std::array<uint8_t, where_bytes> bytes{};
  if (!decode(text, bytes)) return {};
  sockaddr_in6 in{};
  in.sin6_family = AF_INET6;
  if (is_of_link_local_prefix(bytes.data())) {
    const uint8_t* at = bytes.data() + 2;
    in.sin6_scope_id = static_cast<uint32_t>(get(at, 4));
    std::copy(no_scope.begin(), no_scope.end(), bytes.begin() + 2);
  }
  std::memcpy(&in.sin6_addr, bytes.data(), 16);
  std::memcpy(&in.sin6_port, bytes.data() + 16, 2);
  return os::SocketAddress::from(&in, sizeof(in));
}

// "fi_sockaddr_in://1.2.3.4:5" without its scheme.
std::string plain(const os::SocketAddress& where) {
  const std::string text = where.text();
  const size_t scheme_end = text.find("://");
  return scheme_end == std::string::npos ? text : text.substr(scheme_end + 3);
}

}  // namespace

std::optional<Address> Address::from_text(std::string_view text) noexcept {
  if (!text.starts_with(scheme) || text.size() >= text_bytes) return {};
  text.remove_prefix(scheme.size());
  Address address;
  if (const size_t slash = text.find('/'); slash != std::string_view::npos) {
    if (!parse(text.substr(slash + 1), address.local)) return {};
    text = text.substr(0, slash);
  }
  if (text.find("://") != std::string_view::npos || text.find('?') != std::string_view::npos) return {};
  const auto where = text.starts_with('~') ? unpacked(text.substr(1)) : os::SocketAddress::from_text(text);
  if (!where || !can_be_packed(*where)) return {};
  address.where = *where;
  return address;
}

std::string Address::text() const {
  const std::string behind = local ? '/' + text_of(local) : std::string();
  std::string whole = std::string(scheme) + plain(where) + behind;
  if (whole.size() >= text_bytes && where.family() == AF_INET6)
    whole = std::string(scheme) + '~' + packed(where) + behind;
  return whole;
}

bool Names::split(std::span<const std::byte> bytes, Parts& out) noexcept {
  const auto* first = reinterpret_cast<const char*>(bytes.data());
  const auto address = Address::from_text({first, ::strnlen(first, bytes.size())});
  if (!address) return false;
  out = {};
  const auto where = address->where.bytes();
  std::copy(where.begin(), where.end(), out.remote.begin());
  out.remote_length = where.size();
  if (address->local) {
    const LocalName& local = address->local;
    std::array<char, sizeof(out.local)> name{};
    const int length = std::snprintf(name.data(), name.size(), "fi_shm://%u:%u:%016llx", local.process,
                                     local.descriptor, static_cast<unsigned long long>(local.nonce));
    std::memcpy(out.local.data(), name.data(), name.size());
    out.local_length = static_cast<size_t>(length);
    out.host = local.host;
  }
  return true;
}

bool Names::join(const Parts& parts, std::array<std::byte, address_length>& out) noexcept try {
  Address address;
  const auto where = os::SocketAddress::from(parts.remote.data(), parts.remote_length);
  if (!where || !can_be_packed(*where)) return false;
  address.where = *where;
  if (parts.local_length != 0 && parts.host != 0) {
    // The form in which the shared memory link chooses names.
    std::array<char, sizeof(parts.local) + 1> name{};
    std::memcpy(name.data(), parts.local.data(), parts.local_length);
    unsigned process = 0;
    unsigned descriptor = 0;
    unsigned long long nonce = 0;
    // NOLINTNEXTLINE(cert-err34-c): what does not read back the same is refused by whoever reads the address
    if (std::sscanf(name.data(), "fi_shm://%u:%u:%llx", &process, &descriptor, &nonce) == 3 &&
        descriptor < 1U << 24)
      address.local = {parts.host, process, descriptor, nonce};
  }
  const std::string text = address.text();
  if (text.size() >= out.size()) return false;
  out = {};
  std::memcpy(out.data(), text.data(), text.size());
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

void Names::Parts::set_remote(std::span<const std::byte> bytes) noexcept {
  remote_length = std::min(bytes.size(), remote.size());
  std::copy_n(bytes.begin(), remote_length, remote.begin());
}

void Names::Parts::set_local(std::span<const std::byte> text) noexcept {
  local_length = std::min(::strnlen(reinterpret_cast<const char*>(text.data()), text.size()), local.size());
  std::copy_n(text.begin(), local_length, local.begin());
}

uint64_t Names::host() noexcept { return os::sharing_identity(); }

bool Names::local_allowed() noexcept { return settings::flag("FI_WEFT_SHM"); }

uint32_t Names::format_for(const Parts& parts) noexcept {
  const auto where = os::SocketAddress::from(parts.remote.data(), parts.remote_length);
  if (where) return where->family() == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
  const bool only_six = os::outgoing_address(AF_INET).is_loopback() && os::has_family(AF_INET6) &&
                        !os::outgoing_address(AF_INET6).is_loopback();
  return only_six ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
}

}  // namespace weft::link::composite
