// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// PacketLink: unreliable packets between addresses, the least that a device can do. Packets may be lost, duplicated,
// reordered and altered. What more a link can do is in abilities.hpp. Must not know what the packets carry.
//
// Contract:
//   - The owner calls from one thread at a time. The link calls its handler from poll() only.
//   - open() is called once, before everything but the setters that say "before open()"; close() ends it and may be
//     called again.
//   - An address has at most address_length bytes. Two addresses of equal bytes are the same place.
//   - send() takes a whole packet or nothing. False means "no room now": the owner tries again after a later poll().
//     A packet that cannot reach its destination is taken and lost, as on the way.
//   - `parts` and the bytes behind them belong to the caller and change after the call.
#pragma once

#include <sys/uio.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.hpp"

namespace weft::proto {

// The two ECN bits of the IP header, RFC 3168 section 5.
enum class Ecn : uint8_t { NotCapable = 0, Capable1 = 1, Capable0 = 2, CongestionExperienced = 3 };

// One packet that arrived. All spans are valid during the handler's call only. The bytes come from the network and are
// not validated.
struct ReceivedPacket {
  std::span<const std::byte> source;  // the sender's address, in the form that send() takes
  std::span<const std::byte>
      destination;  // the address it was sent to: the link's own, or that of a multicast group
  std::span<const std::byte> bytes;  // the payload of the packet, what the sender gave to send()
  // The headers in front of `bytes` as they arrived, from the network layer (the first byte of the IP header, or of the
  // GRH) on. Empty: the link does not show them. RoCEv2's ICRC covers them, and UD queue pairs deliver the GRH.
  std::span<const std::byte> headers = {};
  // Of the IPv4 header; 0 where there is none or the link does not know. udp: the place among the packets that came joined,
  // which is what the sender's kernel numbers them by.
  uint16_t ip_identification = 0;
  Ecn ecn = Ecn::NotCapable;  // of the IP header, from links with HasCongestionMarks
};

// Who receives packets. Links take the handler as a template parameter; this type is the archetype for the concept.
struct PacketHandlerArchetype {
  void on_packet(const ReceivedPacket& packet) noexcept;
};

template <class P>
concept PacketLink = requires(P& link, std::span<const std::byte> address, const iovec* parts, size_t count,
                              PacketHandlerArchetype& handler) {
  { P::address_length } -> std::convertible_to<size_t>;
  // Begins to receive at `address`; what is zero or empty in it the link chooses. After a refusal only close() is
  // called.
  { link.open(address) } -> std::same_as<Result<void>>;
  { link.close() }
  noexcept;
  // The link's own address as a peer sends to it, from open() to close().
  { link.address() } -> std::same_as<std::span<const std::byte>>;
  // The largest packet that reaches this address in one piece: the path MTU without the headers of the link and of the
  // layers below. May change.
  { link.packet_bytes_max(address) }
  noexcept->std::convertible_to<size_t>;
  // One packet, gathered from `count` parts.
  { link.send(address, parts, count) }
  noexcept->std::same_as<bool>;
  // Hands what has arrived to the handler, a bounded number of packets a call; returns how many. The handler may call
  // send().
  { link.poll(handler) }
  noexcept->std::same_as<int>;
};

}  // namespace weft::proto
