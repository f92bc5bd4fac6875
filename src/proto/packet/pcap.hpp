// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Packets as records of a capture file: the classic format with nanoseconds (pcap-savefile(5)), link type LINKTYPE_RAW.
// Each packet gets an IP and a UDP header that say between which addresses it went. Must not know files or clocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace weft::proto::pcap {

inline constexpr size_t file_head_bytes = 24;
inline constexpr size_t record_head_bytes = 16;
inline constexpr size_t udp_head_bytes = 8;
inline constexpr size_t ip4_head_bytes = 20;
inline constexpr size_t ip6_head_bytes = 40;

// One end of a UDP conversation. `host` is in network byte order; an IPv4 address takes the first 4 bytes.
struct Endpoint {
  bool is_ip6 = false;
  std::array<std::byte, 16> host{};
  uint16_t port = 0;
};

// Stands for an address that is none of IP: fd57:4546:5400::/64 (RFC 4193) and 8 bytes, which are the address itself,
// or a hash of a longer one. Port 22341.
Endpoint endpoint_of_opaque(std::span<const std::byte> address) noexcept;

// Throws std::bad_alloc, and then `out` is as before.
void append_file_head(std::vector<std::byte>& out);
// Both ends of one family. Bytes that no UDP packet has room for are left out, and the record's original length counts
// them.
void append_packet(std::vector<std::byte>& out, uint64_t time_ns, const Endpoint& source,
                   const Endpoint& destination, std::span<const std::byte> bytes);

}  // namespace weft::proto::pcap
