// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Headers byte by byte: pcap-savefile(5), RFC 791 section 3.1, RFC 8200 section 3, RFC 768.
#include "proto/packet/pcap.hpp"

#include <algorithm>
#include <cstring>

#include "base/hash.hpp"

namespace weft::proto::pcap {
namespace {

constexpr uint32_t magic_ns = 0xa1b23c4d;
constexpr uint32_t linktype_raw = 101;
constexpr size_t snapshot_bytes = size_t{1} << 18;
constexpr size_t ip4_bytes_max = 65535;    // of the whole packet
constexpr size_t ip6_payload_max = 65535;  // of what follows the head
constexpr uint16_t opaque_port = 22341;
constexpr uint8_t protocol_udp = 17;
constexpr uint8_t hop_limit = 64;

// Fields of the file are little-endian, those of packets big-endian.
struct Writer {
  std::byte* at;
  void byte(uint8_t value) noexcept { *at++ = std::byte{value}; }
  void little(uint32_t value, int bytes) noexcept {
    for (int i = 0; i < bytes; ++i) byte(static_cast<uint8_t>(value >> (8 * i)));
  }
  void big(uint32_t value, int bytes) noexcept {
    for (int i = bytes - 1; i >= 0; --i) byte(static_cast<uint8_t>(value >> (8 * i)));
  }
  void copy(std::span<const std::byte> bytes) noexcept {
    if (!bytes.empty()) std::memcpy(at, bytes.data(), bytes.size());
    at += bytes.size();
  }
};

// The Internet checksum (RFC 1071): 16-bit words, big-endian, an odd last byte padded with zero.
class Checksum {
 public:
  void add(std::span<const std::byte> bytes) noexcept {
    for (size_t i = 0; i < bytes.size(); ++i)
      sum_ += std::to_integer<uint64_t>(bytes[i]) << (i % 2 == 0 ? 8 : 0);
  }
  void add(uint16_t word) noexcept { sum_ += word; }
  uint16_t value() const noexcept {
    uint64_t sum = sum_;
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<uint16_t>(~sum);
  }

 private:
  uint64_t sum_ = 0;
};

void put_big(std::byte* at, uint16_t value) noexcept {
  Writer writer{at};
  writer.big(value, 2);
}

}  // namespace

Endpoint endpoint_of_opaque(std::span<const std::byte> address) noexcept {
  Endpoint end;
  end.is_ip6 = true;
  end.port = opaque_port;
  Writer writer{end.host.data()};
  writer.big(0xfd574546, 4);
  writer.big(0x54000000, 4);
  if (address.size() <= 8) {
    writer.copy(address);
    return end;
  }
  uint64_t hash = address.size();
  for (const std::byte byte : address)
    hash = hash_pair(hash + hash_factor_a, std::to_integer<uint64_t>(byte));
  writer.big(static_cast<uint32_t>(hash >> 32), 4);
  writer.big(static_cast<uint32_t>(hash), 4);
  return end;
}

void append_file_head(std::vector<std::byte>& out) {
  const size_t at = out.size();
  out.resize(at + file_head_bytes);
  Writer writer{out.data() + at};
  writer.little(magic_ns, 4);
  writer.little(2, 2);  // version 2.4
  writer.little(4, 2);
  writer.little(0, 4);  // time zone
  writer.little(0, 4);  // accuracy of the time stamps
  writer.little(snapshot_bytes, 4);
  writer.little(linktype_raw, 4);
}

void append_packet(std::vector<std::byte>& out, uint64_t time_ns, const Endpoint& source,
                   const Endpoint& destination, std::span<const std::byte> bytes) {
  const bool ip6 = source.is_ip6;
  const size_t ip_head = ip6 ? ip6_head_bytes : ip4_head_bytes;
  const size_t room = (ip6 ? ip6_payload_max : ip4_bytes_max - ip4_head_bytes) - udp_head_bytes;
  const size_t heads = ip_head + udp_head_bytes;
  const size_t original = heads + bytes.size();
  bytes = bytes.first(std::min(bytes.size(), room));
  const size_t begin = out.size();
  out.resize(begin + record_head_bytes + heads + bytes.size());

  Writer writer{out.data() + begin};
  writer.little(static_cast<uint32_t>(time_ns / 1'000'000'000), 4);
  writer.little(static_cast<uint32_t>(time_ns % 1'000'000'000), 4);
  writer.little(static_cast<uint32_t>(heads + bytes.size()), 4);
  writer.little(static_cast<uint32_t>(original), 4);

  std::byte* const ip = writer.at;
  const auto udp_bytes = static_cast<uint16_t>(udp_head_bytes + bytes.size());
  const size_t host_bytes = ip6 ? 16 : 4;
  const auto from = std::span(source.host).first(host_bytes);
  const auto to = std::span(destination.host).first(host_bytes);
  if (ip6) {
    writer.big(uint32_t{6} << 28, 4);  // version, traffic class, flow label
    writer.big(udp_bytes, 2);
    writer.byte(protocol_udp);
    writer.byte(hop_limit);
  } else {
    writer.byte(0x45);  // version, head of 5 words
    writer.byte(0);     // DSCP, ECN
    writer.big(static_cast<uint32_t>(ip4_head_bytes + udp_bytes), 2);
    writer.big(0, 2);       // identification: none is needed, since
    writer.big(0x4000, 2);  // the packet is not to be fragmented (RFC 6864 section 4.1)
    writer.byte(hop_limit);
    writer.byte(protocol_udp);
    writer.big(0, 2);  // checksum, below
  }
  writer.copy(from);
  writer.copy(to);
  if (!ip6) {
    Checksum head;
    head.add(std::span(ip, ip4_head_bytes));
    put_big(ip + 10, head.value());
  }

  std::byte* const udp = writer.at;
  writer.big(source.port, 2);
  writer.big(destination.port, 2);
  writer.big(udp_bytes, 2);
  writer.big(0, 2);  // checksum, below
  writer.copy(bytes);
  Checksum whole;  // with the pseudo header
  whole.add(from);
  whole.add(to);
  whole.add(uint16_t{protocol_udp});
  whole.add(udp_bytes);
  whole.add(std::span(udp, udp_bytes));
  put_big(udp + 6, whole.value() != 0 ? whole.value() : uint16_t{0xffff});
}

}  // namespace weft::proto::pcap
