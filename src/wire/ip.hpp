// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Ethernet, IPv4, IPv6 and UDP headers: a plain struct of each, a checked way in and a way out. IEEE 802.3 clause 3,
// RFC 791, RFC 8200, RFC 768. Stateless; must not know what UDP carries.
//
// read() is false when the bytes are too few or contradict themselves; `rest` is then unchanged. It never looks
// beyond `bytes`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::wire {

using Bytes = std::span<const std::byte>;

inline constexpr uint8_t protocol_udp = 17;

struct Ethernet {
  static constexpr size_t bytes = 14;
  static constexpr size_t tag_bytes = 4;
  static constexpr uint16_t type_ip4 = 0x0800;
  static constexpr uint16_t type_ip6 = 0x86dd;
  static constexpr uint16_t type_vlan = 0x8100;

  std::array<std::byte, 6> destination{};
  std::array<std::byte, 6> source{};
  uint16_t type = 0;
  uint16_t vlan = 0;  // the tag, where there is one (IEEE 802.1Q); read only

  [[nodiscard]] static bool read(Bytes frame, Ethernet& out, Bytes& rest) noexcept;
  void write(std::byte* out) const noexcept;  // `bytes` bytes, without a tag
};

struct Ip4 {
  static constexpr size_t bytes = 20;  // without options
  static constexpr uint16_t dont_fragment = 0x4000;

  uint8_t traffic_class = 0;  // DSCP and ECN
  uint16_t total_bytes = 0;
  uint16_t identification = 0;
  uint16_t fragment = dont_fragment;  // flags and offset
  uint8_t hops = 64;
  uint8_t protocol = protocol_udp;
  std::array<std::byte, 4> source{};
  std::array<std::byte, 4> destination{};

  // Refuses options and wrong checksums. `rest` is what total_bytes says, without what Ethernet padded.
  [[nodiscard]] static bool read(Bytes packet, Ip4& out, Bytes& rest) noexcept;
  void write(std::byte* out) const noexcept;  // `bytes` bytes, with the checksum
  bool is_fragment() const noexcept { return (fragment & 0x3fff) != 0; }
};

struct Ip6 {
  static constexpr size_t bytes = 40;

  uint8_t traffic_class = 0;
  uint32_t flow_label = 0;  // 20 bits
  uint16_t payload_bytes = 0;
  uint8_t next_header = protocol_udp;
  uint8_t hops = 64;
  std::array<std::byte, 16> source{};
  std::array<std::byte, 16> destination{};

  [[nodiscard]] static bool read(Bytes packet, Ip6& out, Bytes& rest) noexcept;
  void write(std::byte* out) const noexcept;  // `bytes` bytes
};

struct Udp {
  static constexpr size_t bytes = 8;

  uint16_t source = 0;
  uint16_t destination = 0;
  uint16_t length = 0;    // with this header
  uint16_t checksum = 0;  // 0: none

  // The length must be that of `datagram`: RoCEv2 has nothing between UDP and the end of the IP packet.
  [[nodiscard]] static bool read(Bytes datagram, Udp& out, Bytes& rest) noexcept;
  void write(std::byte* out) const noexcept;
};

// A whole UDP datagram from its IP header on; no fragments.
struct Datagram {
  bool is_ip6 = false;
  Ip4 ip4;
  Ip6 ip6;
  Udp udp;
  Bytes headers;  // IP and UDP
  Bytes payload;

  [[nodiscard]] static bool read(Bytes packet, Datagram& out) noexcept;
};

// The checksum of RFC 1071 over bytes that lie in pieces, of any lengths.
class InternetSum {
 public:
  void add(Bytes bytes) noexcept;
  uint16_t checksum() const noexcept;  // zero over bytes that hold their right checksum

 private:
  uint64_t sum_ = 0;  // of words of the machine's order
  bool is_odd_ = false;
};

uint16_t internet_checksum(Bytes bytes) noexcept;

// Of UDP (RFC 768, RFC 8200 section 8.1): `headers` is the IP header, of 20 or 40 bytes, and the UDP header, whose
// checksum counts too. What goes out has zero there, and a result of zero goes as 0xffff.
InternetSum udp_sum(Bytes headers) noexcept;

}  // namespace weft::wire
