// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The invariant CRC of RoCEv2: IBTA annex A17 and volume 1, 7.8. A CRC-32 (that of Ethernet) over 8 bytes of ones
// and the packet from the IP header to the pad, with ones for what routers change: TOS, TTL and checksum of IPv4;
// traffic class, flow label and hop limit of IPv6; the UDP checksum; byte 4 of the BTH. It stands behind the pad,
// least significant byte first. Stateless.
//
// `headers` are the IP header (20 bytes of IPv4, 40 of IPv6) and the UDP header. They are as on the wire, or rebuilt
// by who sees a socket only.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/ip.hpp"

namespace weft::wire::roce {

// CRC-32 (IEEE 802.3 clause 3.2.9) continued from `crc`; 0 begins.
uint32_t crc32(uint32_t crc, const void* bytes, size_t count) noexcept;

// Of a packet in pieces, from the BTH to the pad. The first piece has at least the BTH. As a number: store it least
// significant byte first.
uint32_t icrc(Bytes headers, const iovec* parts, size_t count) noexcept;
// Of a packet in one piece, of at least bth_bytes.
uint32_t icrc(Bytes headers, Bytes packet) noexcept;

// `datagram` is the payload of UDP: packet and ICRC. False also where it is too short to have one.
[[nodiscard]] bool icrc_is_right(Bytes headers, Bytes datagram) noexcept;

// The kernel's rxe (Linux 6.12, 7.2) has the whole packet a second time in the ICRC of a FLUSH, which has no payload, and takes no other.
// `of_packet` is the right one.
uint32_t icrc_of_rxe_flush(uint32_t of_packet, Bytes packet) noexcept;
// A FLUSH with that ICRC. Where the identification in `headers` does not count, any that makes it right will do.
[[nodiscard]] bool is_flush_of_rxe(Bytes headers, Bytes datagram, bool has_identification) noexcept;

// Who receives by a UDP socket does not see the identification of the IPv4 header, which the ICRC covers. The CRC is
// linear, and the effect of 16 bits on it is injective: so there is at most one identification that makes the ICRC
// right, and for an altered packet there is one with probability 2^-16. Returns it; none: the packet is altered. The
// identification in `headers` does not count.
std::optional<uint16_t> solve_identification(Bytes ip4_headers, Bytes datagram) noexcept;

}  // namespace weft::wire::roce
