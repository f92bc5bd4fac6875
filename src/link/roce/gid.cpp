// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// GIDs to addresses and back.
#include "link/roce/gid.hpp"

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "wire/bytes.hpp"

namespace weft::link::roce {
namespace {

constexpr std::array<uint8_t, 12> mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr std::array<uint8_t, 8> weft_prefix{0xfd, 0x57, 0x45, 0x46, 0x54, 0x01, 0, 0};
constexpr size_t port_at = 8;
constexpr size_t host_at = 12;
constexpr std::array<uint8_t, 8> link_local{0xfe, 0x80, 0, 0, 0, 0, 0, 0};
constexpr std::array<uint8_t, 6> weft_link_prefix{0xfd, 0x57, 0x45, 0x46, 0x54, 0x02};
constexpr size_t link_port_at = 6;

template <size_t n>
bool begins_with(const Gid& gid, const std::array<uint8_t, n>& prefix) noexcept {
  return std::memcmp(gid.data(), prefix.data(), n) == 0;
}

}  // namespace

Gid standard_gid(const os::SocketAddress& address) noexcept {
  Gid gid{};
  if (address.family() == AF_INET6) {
    sockaddr_in6 in;
    std::memcpy(&in, address.get(), sizeof in);
    std::memcpy(gid.data(), &in.sin6_addr, gid.size());
  } else if (address.family() == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, address.get(), sizeof in);
    std::memcpy(gid.data(), mapped.data(), mapped.size());
    std::memcpy(gid.data() + host_at, &in.sin_addr, 4);
  }
  return gid;
}

std::optional<Gid> gid_with_port(const os::SocketAddress& address) noexcept {
  Gid gid = standard_gid(address);
  if (address.family() == AF_INET6 && begins_with(gid, link_local)) {
    std::memcpy(gid.data(), weft_link_prefix.data(), weft_link_prefix.size());
    wire::store_big(gid.data() + link_port_at, address.port());
    return gid;
  }
  if (address.family() != AF_INET) return {};
  std::memset(gid.data(), 0, host_at);
  std::memcpy(gid.data(), weft_prefix.data(), weft_prefix.size());
  wire::store_big(gid.data() + port_at, address.port());
  return gid;
}

bool has_port(const Gid& gid) noexcept {
  return begins_with(gid, weft_prefix) || begins_with(gid, weft_link_prefix);
}

bool is_group(const Gid& gid) noexcept {
  if (gid[0] == std::byte{0xff}) return true;
  return (begins_with(gid, mapped) || begins_with(gid, weft_prefix)) &&
         (gid[host_at] & std::byte{0xf0}) == std::byte{0xe0};
}

Gid group_for(const Gid& group, const Gid& source) noexcept {
  if (!begins_with(source, weft_prefix) || !begins_with(group, mapped)) return group;
  Gid gid = group;
  std::memset(gid.data(), 0, host_at);
  std::memcpy(gid.data(), weft_prefix.data(), weft_prefix.size());
  wire::store_big(gid.data() + port_at, group_port);
  return gid;
}

os::SocketAddress address_of(const Gid& gid) noexcept {
  const bool is_weft = begins_with(gid, weft_prefix);
  if (is_weft || begins_with(gid, mapped)) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = wire::big(is_weft ? wire::load_big<uint16_t>(gid.data() + port_at) : standard_port);
    std::memcpy(&in.sin_addr, gid.data() + host_at, 4);
    return *os::SocketAddress::from(&in, sizeof in);
  }
  sockaddr_in6 in{};
  in.sin6_family = AF_INET6;
  in.sin6_port = wire::big(standard_port);
  std::memcpy(&in.sin6_addr, gid.data(), gid.size());
  if (begins_with(gid, weft_link_prefix)) {
    in.sin6_port = wire::big(wire::load_big<uint16_t>(gid.data() + link_port_at));
    std::memcpy(&in.sin6_addr, link_local.data(), link_local.size());
  }
  return *os::SocketAddress::from(&in, sizeof in);
}

}  // namespace weft::link::roce
