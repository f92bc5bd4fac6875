// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The messages of the handshake, byte by byte. What comes from the other side is checked before it is believed.
#include "link/tcp/handshake.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>

namespace weft::link::tcp {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers of a hello are little-endian");

constexpr std::string_view magic = "WEFT";
constexpr size_t address_bytes = 24;
constexpr size_t at_version = 4, at_size = 6, at_type = 8, at_kind = 9, at_zero = 10, at_features = 12,
                 at_incarnation = 16, at_address = 24, at_target = 48, at_data_bytes = 72, at_reason = 74;

template <class T>
void put(std::byte* out, size_t at, T value) noexcept {
  std::memcpy(out + at, &value, sizeof(value));
}
template <class T>
T get(const std::byte* from, size_t at) noexcept {
  T value;
  std::memcpy(&value, from + at, sizeof(value));
  return value;
}

void put_address(std::byte* out, const os::SocketAddress& address) noexcept {
  std::memset(out, 0, address_bytes);
  if (!address) return;
  put<uint16_t>(out, 2, address.port());
  if (address.family() == AF_INET) {
    put<uint16_t>(out, 0, 4);
    const auto* in = reinterpret_cast<const sockaddr_in*>(address.get());
    std::memcpy(out + 8, &in->sin_addr, sizeof(in->sin_addr));
  } else {
    put<uint16_t>(out, 0, 6);
    const auto* in6 = reinterpret_cast<const sockaddr_in6*>(address.get());
    put<uint32_t>(out, 4, in6->sin6_scope_id);
    std::memcpy(out + 8, &in6->sin6_addr, sizeof(in6->sin6_addr));
  }
}

bool get_address(const std::byte* from, os::SocketAddress& out) noexcept {
  const auto family = get<uint16_t>(from, 0);
  out = {};
  if (family == 0) return true;
  std::optional<os::SocketAddress> read;
  if (family == 4) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(get<uint16_t>(from, 2));
    std::memcpy(&in.sin_addr, from + 8, sizeof(in.sin_addr));
    read = os::SocketAddress::from(&in, sizeof(in));
  } else if (family == 6) {
    sockaddr_in6 in6{};
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(get<uint16_t>(from, 2));
    in6.sin6_scope_id = get<uint32_t>(from, 4);
    std::memcpy(&in6.sin6_addr, from + 8, sizeof(in6.sin6_addr));
    read = os::SocketAddress::from(&in6, sizeof(in6));
  }
  if (!read) return false;
  out = *read;
  return true;
}

}  // namespace

const char* to_text(RefusalReason reason) noexcept {
  switch (reason) {
    case RefusalReason::None:
      return "no reason";
    case RefusalReason::Version:
      return "it speaks another version of the wire format";
    case RefusalReason::Kind:
      return "an endpoint of another type is there";
    case RefusalReason::Features:
      return "the two ends want different features";
    case RefusalReason::Malformed:
      return "it did not understand the handshake";
    case RefusalReason::Duplicate:
      return "there is another connection between the two endpoints";
    case RefusalReason::Program:
      return "its program rejected the connection";
    case RefusalReason::Resources:
      return "it is out of memory or descriptors";
  }
  return "for an unknown reason";
}

void Handshake::set_data(const void* bytes, size_t count) noexcept {
  data_bytes = static_cast<uint16_t>(std::min(count, handshake_data_max));
  if (data_bytes != 0) std::memcpy(data.data(), bytes, data_bytes);
}

size_t pack_handshake(const Handshake& handshake, std::byte* out) noexcept {
  std::memset(out, 0, handshake_bytes_min);
  const size_t bytes = handshake_bytes_min + handshake.data_bytes;
  std::memcpy(out, magic.data(), magic.size());
  put<uint16_t>(out, at_version, wire_version);
  put(out, at_size, static_cast<uint16_t>(bytes));
  put(out, at_type, static_cast<uint8_t>(handshake.type));
  put(out, at_kind, static_cast<uint8_t>(handshake.kind));
  put<uint16_t>(out, at_zero, 0);
  put(out, at_features, handshake.features);
  put(out, at_incarnation, handshake.incarnation);
  put_address(out + at_address, handshake.address);
  put_address(out + at_target, handshake.target);
  put(out, at_data_bytes, handshake.data_bytes);
  put(out, at_reason, static_cast<uint16_t>(handshake.reason));
  std::memcpy(out + handshake_bytes_min, handshake.data.data(), handshake.data_bytes);
  return bytes;
}

size_t handshake_size(const std::byte* prefix) noexcept {
  if (std::memcmp(prefix, magic.data(), magic.size()) != 0) return 0;
  const size_t bytes = get<uint16_t>(prefix, at_size);
  return bytes >= handshake_bytes_min && bytes <= handshake_bytes_max ? bytes : 0;
}

bool is_foreign_version(const std::byte* prefix) noexcept {
  return std::memcmp(prefix, magic.data(), magic.size()) == 0 &&
         get<uint16_t>(prefix, at_version) != wire_version;
}

RefusalReason unpack_handshake(std::span<const std::byte> bytes, Handshake& out) noexcept {
  if (bytes.size() < handshake_bytes_min || handshake_size(bytes.data()) != bytes.size())
    return RefusalReason::Malformed;
  const std::byte* from = bytes.data();
  out.type = static_cast<HandshakeType>(get<uint8_t>(from, at_type));
  if (get<uint16_t>(from, at_version) != wire_version && out.type != HandshakeType::Refusal)
    return RefusalReason::Version;
  out.kind = static_cast<ConnectionKind>(get<uint8_t>(from, at_kind));
  out.features = get<uint32_t>(from, at_features);
  out.incarnation = get<uint64_t>(from, at_incarnation);
  out.reason = static_cast<RefusalReason>(get<uint16_t>(from, at_reason));
  const auto data_bytes = get<uint16_t>(from, at_data_bytes);
  if (out.type < HandshakeType::Hello || out.type > HandshakeType::Refusal ||
      get<uint16_t>(from, at_zero) != 0 || data_bytes != bytes.size() - handshake_bytes_min ||
      !get_address(from + at_address, out.address) || !get_address(from + at_target, out.target))
    return RefusalReason::Malformed;
  out.set_data(from + handshake_bytes_min, data_bytes);
  return RefusalReason::None;
}

}  // namespace weft::link::tcp
