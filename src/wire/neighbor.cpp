// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// ARP and Neighbor Discovery.
#include "wire/neighbor.hpp"

#include <algorithm>
#include <cstring>

#include "wire/bytes.hpp"

namespace weft::wire {
namespace {

constexpr uint16_t hardware_ethernet = 1;
constexpr uint8_t type_solicitation = 135;
constexpr uint8_t type_advertisement = 136;
constexpr uint8_t option_source = 1;
constexpr uint8_t option_target = 2;
constexpr size_t message_bytes = 24;
constexpr size_t option_unit = 8;
constexpr size_t pseudo_bytes = 40;  // RFC 8200 section 8.1
constexpr size_t packet_bytes_max = 1280;

// Zero for a packet that holds its right checksum.
uint16_t checksum(const Ip6& ip, Bytes packet) noexcept {
  std::array<std::byte, pseudo_bytes + packet_bytes_max> all{};
  std::ranges::copy(ip.source, all.begin());
  std::ranges::copy(ip.destination, all.begin() + 16);
  store_big(all.data() + 32, static_cast<uint32_t>(packet.size()));
  all[39] = std::byte{Neighbor::protocol};
  std::ranges::copy(packet, all.begin() + pseudo_bytes);
  return internet_checksum({all.data(), pseudo_bytes + packet.size()});
}

}  // namespace

bool Arp::read(Bytes packet, Arp& out) noexcept {
  if (packet.size() < bytes) return false;
  const std::byte* at = packet.data();
  if (load_big<uint16_t>(at) != hardware_ethernet || load_big<uint16_t>(at + 2) != Ethernet::type_ip4 ||
      load_byte(at + 4) != 6 || load_byte(at + 5) != 4)
    return false;
  out.operation = load_big<uint16_t>(at + 6);
  std::copy_n(at + 8, 6, out.sender.begin());
  std::copy_n(at + 14, 4, out.sender_ip.begin());
  std::copy_n(at + 18, 6, out.target.begin());
  std::copy_n(at + 24, 4, out.target_ip.begin());
  return out.operation == request || out.operation == reply;
}

void Arp::write(std::byte* out) const noexcept {
  store_big(out, hardware_ethernet);
  store_big(out + 2, Ethernet::type_ip4);
  out[4] = std::byte{6};
  out[5] = std::byte{4};
  store_big(out + 6, operation);
  std::ranges::copy(sender, out + 8);
  std::ranges::copy(sender_ip, out + 14);
  std::ranges::copy(target, out + 18);
  std::ranges::copy(target_ip, out + 24);
}

bool Neighbor::read(const Ip6& ip, Bytes packet, Neighbor& out) noexcept {
  if (ip.next_header != protocol || ip.hops != hops || packet.size() < message_bytes ||
      packet.size() > packet_bytes_max || checksum(ip, packet) != 0)
    return false;
  const std::byte* at = packet.data();
  const uint8_t type = load_byte(at);
  if ((type != type_solicitation && type != type_advertisement) || load_byte(at + 1) != 0) return false;
  out.is_advertisement = type == type_advertisement;
  const uint8_t flags = load_byte(at + 4);
  out.is_router = out.is_advertisement && (flags & 0x80) != 0;
  out.is_solicited = out.is_advertisement && (flags & 0x40) != 0;
  out.overrides = out.is_advertisement && (flags & 0x20) != 0;
  std::copy_n(at + 8, 16, out.target.begin());
  if (out.target[0] == std::byte{0xff}) return false;
  out.has_mac = false;
  const uint8_t wanted = out.is_advertisement ? option_target : option_source;
  for (Bytes options = packet.subspan(message_bytes); !options.empty();) {
    if (options.size() < 2) return false;
    const size_t length = option_unit * load_byte(&options[1]);
    if (length == 0 || length > options.size()) return false;
    if (load_byte(options.data()) == wanted && length == option_unit) {
      std::copy_n(options.data() + 2, 6, out.mac.begin());
      out.has_mac = true;
    }
    options = options.subspan(length);
  }
  return true;
}

size_t Neighbor::write(const Ip6& ip, std::byte* out) const noexcept {
  const size_t length = message_bytes + (has_mac ? option_unit : 0);
  std::fill_n(out, length, std::byte{0});
  out[0] = std::byte{is_advertisement ? type_advertisement : type_solicitation};
  out[4] =
      static_cast<std::byte>((is_router ? 0x80 : 0) | (is_solicited ? 0x40 : 0) | (overrides ? 0x20 : 0));
  std::ranges::copy(target, out + 8);
  if (has_mac) {
    out[message_bytes] = std::byte{is_advertisement ? option_target : option_source};
    out[message_bytes + 1] = std::byte{1};
    std::ranges::copy(mac, out + message_bytes + 2);
  }
  store_big(out + 2, checksum(ip, {out, length}));
  return length;
}

}  // namespace weft::wire
