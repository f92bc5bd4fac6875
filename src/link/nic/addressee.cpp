// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The few bytes of a frame that say for whom it is.
#include "link/nic/addressee.hpp"

#include <algorithm>

#include "wire/bytes.hpp"
#include "wire/ip.hpp"
#include "wire/neighbor.hpp"

namespace weft::link::nic {
namespace {

using Kind = Addressee::Kind;

constexpr size_t ip4_fragment_at = 6;
constexpr size_t ip4_protocol_at = 9;
constexpr size_t ip6_next_header_at = 6;
constexpr size_t icmp6_target_at = 8;  // RFC 4861 section 4.3
constexpr std::byte neighbor_solicitation{135};

Addressee udp(wire::Bytes datagram, const wire::Mac& to) noexcept {
  if (datagram.size() < wire::Udp::bytes) return {};
  const bool is_to_group = (to[0] & std::byte{1}) != std::byte{0};
  return {is_to_group ? Kind::Group : Kind::Port, wire::load_big<uint16_t>(&datagram[2]), to};
}

Addressee ip4(wire::Bytes packet, const wire::Mac& to) noexcept {
  if (packet.size() < wire::Ip4::bytes) return {};
  const size_t head = 4 * (wire::load_byte(packet.data()) & 15U);
  const bool is_fragment = (wire::load_big<uint16_t>(&packet[ip4_fragment_at]) & 0x3fff) != 0;
  if (head < wire::Ip4::bytes || head > packet.size() || is_fragment) return {};
  if (wire::load_byte(&packet[ip4_protocol_at]) != wire::protocol_udp) return {};
  return udp(packet.subspan(head), to);
}

Addressee ip6(wire::Bytes packet, const wire::Mac& to, const ethernet::Host& own) noexcept {
  if (packet.size() < wire::Ip6::bytes) return {};
  const uint8_t next = wire::load_byte(&packet[ip6_next_header_at]);
  const wire::Bytes above = packet.subspan(wire::Ip6::bytes);
  if (next == wire::protocol_udp) return udp(above, to);
  if (next != wire::Neighbor::protocol || above.size() < icmp6_target_at + own.size()) return {};
  const bool is_question = above[0] == neighbor_solicitation &&
                           std::equal(own.begin(), own.end(), above.begin() + icmp6_target_at);
  return {is_question ? Kind::Host : Kind::Everyone, 0, {}};
}

Addressee arp(wire::Bytes packet, const ethernet::Host& own) noexcept {
  wire::Arp message;
  if (!wire::Arp::read(packet, message)) return {};
  const bool is_question = message.operation == wire::Arp::request &&
                           std::equal(message.target_ip.begin(), message.target_ip.end(), own.begin() + 12);
  return {is_question ? Kind::Host : Kind::Everyone, 0, {}};
}

}  // namespace

Addressee addressee_of(std::span<const std::byte> frame, const ethernet::Host& own) noexcept {
  wire::Ethernet ethernet;
  wire::Bytes rest;
  if (!wire::Ethernet::read(frame, ethernet, rest)) return {};
  switch (ethernet.type) {
    case wire::Ethernet::type_ip4:
      return ip4(rest, ethernet.destination);
    case wire::Ethernet::type_ip6:
      return ip6(rest, ethernet.destination, own);
    case wire::Arp::ethernet_type:
      return arp(rest, own);
    default:
      return {};
  }
}

}  // namespace weft::link::nic
