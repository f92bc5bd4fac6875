// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Who has this address: ARP (RFC 826) for IPv4, Neighbor Solicitation and Advertisement (RFC 4861 sections 4.3, 4.4,
// 7.1) for IPv6. For links that see Ethernet frames. Stateless; must not know caches or timers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/ip.hpp"

namespace weft::wire {

using Mac = std::array<std::byte, 6>;

struct Arp {
  static constexpr size_t bytes = 28;
  static constexpr uint16_t ethernet_type = 0x0806;
  static constexpr uint16_t request = 1;
  static constexpr uint16_t reply = 2;

  uint16_t operation = request;
  Mac sender{};
  std::array<std::byte, 4> sender_ip{};
  Mac target{};
  std::array<std::byte, 4> target_ip{};

  // Of Ethernet and IPv4, a request or a reply; everything else is refused.
  [[nodiscard]] static bool read(Bytes packet, Arp& out) noexcept;
  void write(std::byte* out) const noexcept;
};

struct Neighbor {
  static constexpr uint8_t protocol = 58;  // ICMPv6
  static constexpr uint8_t hops = 255;     // a packet with less has passed a router, and is refused
  static constexpr size_t bytes_max = 32;  // with one link-layer address

  bool is_advertisement = false;
  bool is_router = false;  // these three of an advertisement
  bool is_solicited = false;
  bool overrides = false;
  std::array<std::byte, 16> target{};
  bool has_mac = false;
  Mac mac{};  // the sender's of a solicitation, the target's of an advertisement

  // `ip` is the header in front of `packet`. Refuses wrong checksums, other types, options that do not fit, targets
  // that are multicast.
  [[nodiscard]] static bool read(const Ip6& ip, Bytes packet, Neighbor& out) noexcept;
  // Returns how many bytes, at most bytes_max. The checksum is for the source and destination of `ip`.
  size_t write(const Ip6& ip, std::byte* out) const noexcept;
};

}  // namespace weft::wire
