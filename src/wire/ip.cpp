// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Headers below RoCEv2.
#include "wire/ip.hpp"

#include <algorithm>
#include <cstring>

#include "wire/bytes.hpp"

namespace weft::wire {
namespace {

template <size_t n>
void copy_in(std::array<std::byte, n>& to, const std::byte* from) noexcept {
  std::copy_n(from, n, to.begin());
}

}  // namespace

void InternetSum::add(Bytes bytes) noexcept {
  uint64_t sum = 0;
  const auto count = [&](const std::byte* from, size_t length) {
    uint64_t word = 0;
    std::memcpy(&word, from, length);
    sum += word;
    sum += sum < word ? 1 : 0;
  };
  size_t at = 0;
  for (; at + sizeof sum <= bytes.size(); at += sizeof sum) count(bytes.data() + at, sizeof sum);
  if (at < bytes.size()) count(bytes.data() + at, bytes.size() - at);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  // A piece that begins at an odd place has its bytes the other way round (RFC 1071 section 2 (B)).
  sum_ += is_odd_ ? swap_bytes(static_cast<uint16_t>(sum)) : sum;
  is_odd_ ^= bytes.size() % 2 != 0;
}

uint16_t InternetSum::checksum() const noexcept {
  uint64_t sum = sum_;
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return big(static_cast<uint16_t>(~sum));
}

uint16_t internet_checksum(Bytes bytes) noexcept {
  InternetSum sum;
  sum.add(bytes);
  return sum.checksum();
}

InternetSum udp_sum(Bytes headers) noexcept {
  InternetSum sum;
  const Bytes udp = headers.last(Udp::bytes);
  const bool is_ip6 = headers.size() == Ip6::bytes + Udp::bytes;
  sum.add(is_ip6 ? headers.subspan(8, 32) : headers.subspan(12, 8));
  std::array<std::byte, 4> rest{};  // of the pseudo header
  rest[1] = std::byte{protocol_udp};
  std::copy_n(&udp[4], 2, &rest[2]);
  sum.add(rest);
  sum.add(udp);
  return sum;
}

bool Ethernet::read(Bytes frame, Ethernet& out, Bytes& rest) noexcept {
  if (frame.size() < bytes) return false;
  copy_in(out.destination, frame.data());
  copy_in(out.source, frame.data() + 6);
  out.type = load_big<uint16_t>(&frame[12]);
  out.vlan = 0;
  size_t head = bytes;
  if (out.type == type_vlan) {
    if (frame.size() < bytes + tag_bytes) return false;
    out.vlan = load_big<uint16_t>(&frame[14]);
    out.type = load_big<uint16_t>(&frame[16]);
    head += tag_bytes;
  }
  rest = frame.subspan(head);
  return true;
}

void Ethernet::write(std::byte* out) const noexcept {
  std::ranges::copy(destination, out);
  std::ranges::copy(source, out + 6);
  store_big(out + 12, type);
}

bool Ip4::read(Bytes packet, Ip4& out, Bytes& rest) noexcept {
  if (packet.size() < bytes || load_byte(packet.data()) != 0x45) return false;
  const std::byte* at = packet.data();
  out.traffic_class = load_byte(at + 1);
  out.total_bytes = load_big<uint16_t>(at + 2);
  out.identification = load_big<uint16_t>(at + 4);
  out.fragment = load_big<uint16_t>(at + 6);
  out.hops = load_byte(at + 8);
  out.protocol = load_byte(at + 9);
  copy_in(out.source, at + 12);
  copy_in(out.destination, at + 16);
  if (out.total_bytes < bytes || out.total_bytes > packet.size()) return false;
  if (internet_checksum(packet.first(bytes)) != 0) return false;
  rest = packet.subspan(bytes, out.total_bytes - bytes);
  return true;
}

void Ip4::write(std::byte* out) const noexcept {
  out[0] = std::byte{0x45};
  out[1] = std::byte{traffic_class};
  store_big(out + 2, total_bytes);
  store_big(out + 4, identification);
  store_big(out + 6, fragment);
  out[8] = std::byte{hops};
  out[9] = std::byte{protocol};
  store_big(out + 10, uint16_t{0});
  std::ranges::copy(source, out + 12);
  std::ranges::copy(destination, out + 16);
  store_big(out + 10, internet_checksum({out, bytes}));
}

bool Ip6::read(Bytes packet, Ip6& out, Bytes& rest) noexcept {
  if (packet.size() < bytes) return false;
  const std::byte* at = packet.data();
  const auto first = load_big<uint32_t>(at);
  if (first >> 28 != 6) return false;
  out.traffic_class = static_cast<uint8_t>(first >> 20);
  out.flow_label = first & 0xfffff;
  out.payload_bytes = load_big<uint16_t>(at + 4);
  out.next_header = load_byte(at + 6);
  out.hops = load_byte(at + 7);
  copy_in(out.source, at + 8);
  copy_in(out.destination, at + 24);
  if (out.payload_bytes > packet.size() - bytes) return false;
  rest = packet.subspan(bytes, out.payload_bytes);
  return true;
}

void Ip6::write(std::byte* out) const noexcept {
  store_big(out, uint32_t{6} << 28 | uint32_t{traffic_class} << 20 | (flow_label & 0xfffff));
  store_big(out + 4, payload_bytes);
  out[6] = std::byte{next_header};
  out[7] = std::byte{hops};
  std::ranges::copy(source, out + 8);
  std::ranges::copy(destination, out + 24);
}

bool Udp::read(Bytes datagram, Udp& out, Bytes& rest) noexcept {
  if (datagram.size() < bytes) return false;
  const std::byte* at = datagram.data();
  out.source = load_big<uint16_t>(at);
  out.destination = load_big<uint16_t>(at + 2);
  out.length = load_big<uint16_t>(at + 4);
  out.checksum = load_big<uint16_t>(at + 6);
  if (out.length != datagram.size()) return false;
  rest = datagram.subspan(bytes);
  return true;
}

void Udp::write(std::byte* out) const noexcept {
  store_big(out, source);
  store_big(out + 2, destination);
  store_big(out + 4, length);
  store_big(out + 6, checksum);
}

bool Datagram::read(Bytes packet, Datagram& out) noexcept {
  if (packet.empty()) return false;
  out.is_ip6 = load_byte(packet.data()) >> 4 == 6;
  Bytes rest;
  if (out.is_ip6) {
    if (!Ip6::read(packet, out.ip6, rest) || out.ip6.next_header != protocol_udp) return false;
  } else {
    if (!Ip4::read(packet, out.ip4, rest) || out.ip4.protocol != protocol_udp || out.ip4.is_fragment())
      return false;
  }
  if (!Udp::read(rest, out.udp, out.payload)) return false;
  out.headers = packet.first(static_cast<size_t>(out.payload.data() - packet.data()));
  return true;
}

}  // namespace weft::wire
