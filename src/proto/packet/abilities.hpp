// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a PacketLink may have beyond the required part: one named concept for each ability. Who uses a link asks for the
// concept with `if constexpr` and does without what is absent. docs/packets.md has the table. Must not know who
// implements what.
#pragma once

#include <sys/uio.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "proto/packet/packet_link.hpp"
#include "proto/packet/send_buffer.hpp"
#include "proto/setup.hpp"
#include "proto/sleep.hpp"

namespace weft::proto {

// --- sending ---

// Segmentation offload: one call sends many packets. The parts are cut into packets of `segment_bytes`, the last may be
// shorter; at most segments_max packets. True: all were taken, or the first ones were and the others are lost. False:
// none was taken.
template <class P>
concept HasSegmentationOffload = requires(P& link, std::span<const std::byte> to, const iovec* parts,
                                          size_t count, size_t segment_bytes) {
  { P::segments_max } -> std::convertible_to<size_t>;
  { link.send_segmented(to, parts, count, segment_bytes) }
  noexcept->std::same_as<bool>;
};

// Then: how many packets the last send has lost so. Who keeps them sends them again, as a new segmented send.
template <class P>
concept HasLostSegments = requires(const P& link) {
  { link.lost_segments() }
  noexcept->std::same_as<size_t>;
};

// Beyond so many bytes a segmented send costs a second call of the device.
template <class P>
concept HasSegmentedBytesMax = requires {
  { P::segmented_bytes_max } -> std::convertible_to<size_t>;
};

// A packet of a batch.
struct PacketToSend {
  std::span<const std::byte> to;
  const iovec* parts;
  size_t count;  // of parts
};

// Batches: one call sends packets to different addresses and of different lengths. Returns how many of the first ones
// were taken; those behind them found no room.
template <class P>
concept HasBatches = requires(P& link, const PacketToSend* packets, size_t count) {
  { link.send_batch(packets, count) }
  noexcept->std::same_as<size_t>;
};

// Zero-copy send: the device reads the payload where it lies. `head` is copied; `payload` is a part of buffer.bytes().
// When it returns true the packet was taken, and the link holds the buffer (SendBuffer::hold) until the device
// completes the packet; a link that had to copy does not hold it. poll() and collect_sent() release. After close()
// nothing is held.
template <class P>
concept HasZeroCopySend = requires(P& link, std::span<const std::byte> to, std::span<const std::byte> head,
                                   SendBuffer& buffer, std::span<const std::byte> payload) {
  { link.send_in_place(to, head, buffer, payload) }
  noexcept->std::same_as<bool>;
  { link.collect_sent() }
  noexcept;
};

// Send status: as send(), with the reason of a loss. 0, -EAGAIN for "no room now", or another negative errno: the
// packet is lost.
template <class P>
concept HasSendStatus = requires(P& link, std::span<const std::byte> to, const iovec* parts, size_t count) {
  { link.try_send(to, parts, count) }
  noexcept->std::same_as<int>;
};

// Path MTU: the network below has one, and packet_bytes_max() follows it. set_fragments(true), before open(): packets
// above it travel in fragments; otherwise they are refused.
template <class P>
concept HasPathMtu = requires(P& link) {
  { link.set_fragments(bool{}) }
  noexcept;
};

// Optional checksum: set_optional_checksum(true), before open(): packets whose UDP checksum is zero arrive over IPv6,
// too (RFC 6936); otherwise they are dropped. For owners that check the bytes themselves, as RoCEv2 does by its ICRC.
template <class P>
concept HasOptionalChecksum = requires(P& link) {
  { link.set_optional_checksum(bool{}) }
  noexcept;
};

// Congestion marks: packets carry this ECN codepoint from now on, and ReceivedPacket::ecn has that of those that
// arrive.
template <class P>
concept HasCongestionMarks = requires(P& link, Ecn ecn) {
  { link.set_ecn(ecn) }
  noexcept;
};

// --- receiving; HasSleep is in proto/sleep.hpp ---

// Bytes that the link keeps between two polls; what comes beyond them is lost. About half of them counts as bookkeeping
// of the packets.
template <class P>
concept HasReceiveBuffer = requires(P& link) {
  { link.receive_buffer_bytes() }
  noexcept->std::convertible_to<size_t>;
};

// What a packet takes of these at least: the size of a slot, where each packet has one to itself.
template <class P>
concept HasReceiveSlots = requires(P& link) {
  { link.receive_packet_bytes() }
  noexcept->std::convertible_to<size_t>;
};

// A glance: true when a poll would find nothing and do nothing, told without a system call and without the time. False
// says nothing.
template <class P>
concept HasGlance = requires(const P& link) {
  { link.has_nothing() }
  noexcept->std::same_as<bool>;
};

// Numbered segments: the IPv4 identifications of a segmented send count 0, 1, 2 ... on the wire, whoever the receiver is:
// no card below numbers them. May change with the way that the link takes.
template <class P>
concept HasNumberedSegments = requires(const P& link) {
  { link.numbers_segments() }
  noexcept->std::same_as<bool>;
};

// Refusals: the link hears that nobody receives at an address (ICMP port unreachable). watch_refusals() after open()
// asks it to keep such notes, take_refusals(f) calls f(address) for each and forgets it. They are hints: anybody can
// forge them.
template <class P>
concept HasRefusals = requires(P& link, void (*on_refused)(std::span<const std::byte>)) {
  { link.watch_refusals() }
  noexcept;
  { link.take_refusals(on_refused) }
  noexcept;
};

// Send errors: packets that the link could not send, or that the network returned, for a reason that may pass: no route, no such interface. send() takes
// them for lost. take_send_errors(f) calls f(address, errno) for each address that had some since the last call.
template <class P>
concept HasSendErrors = requires(P& link, void (*on_error)(std::span<const std::byte>, int)) {
  { link.take_send_errors(on_error) }
  noexcept;
};

// Multicast: packets to a group that was joined arrive like others; without `receives` it may only be sent to. 0 or a
// negative errno.
template <class P>
concept HasMulticast = requires(P& link, std::span<const std::byte> group) {
  { link.join(group, bool{}) } -> std::same_as<int>;
  { link.leave(group) }
  noexcept;
};

// --- what a link says of itself ---

// The link (or a layer below) has a checksum: a packet that was altered does not arrive. Others may show altered
// packets.
template <class P>
concept HasChecksum = requires {
  requires P::checks_packets;
};

// The source of a packet is byte by byte the address() of its sender.
template <class P>
concept HasTrueSources = requires {
  requires P::shows_addresses;
};

// Addresses are sockaddr_in or sockaddr_in6.
template <class P>
concept HasIpAddresses = requires {
  requires P::has_ip_addresses;
};

// What is constant for most links. A link that learns it at run time (somebody else's object) overrides it with
// traits().
struct PacketLinkTraits {
  bool checks_packets = false;
  bool ip_addresses = false;
  size_t segments_max = 1;
  size_t segmented_bytes_max = 65000;
  size_t receive_buffer_bytes = SIZE_MAX;  // SIZE_MAX: nothing is lost for want of room, or nobody knows
  size_t receive_packet_bytes = 0;
};

template <class P>
concept HasRunTimeTraits = requires(P& link, const PacketLinkTraits& constants) {
  { link.traits(constants) }
  noexcept->std::same_as<PacketLinkTraits>;
};

// Of an open link.
template <PacketLink P>
PacketLinkTraits traits_of(P& link) noexcept {
  PacketLinkTraits traits;
  traits.checks_packets = HasChecksum<P>;
  traits.ip_addresses = HasIpAddresses<P>;
  if constexpr (HasSegmentationOffload<P>) traits.segments_max = P::segments_max;
  if constexpr (HasSegmentedBytesMax<P>) traits.segmented_bytes_max = P::segmented_bytes_max;
  if constexpr (HasReceiveBuffer<P>) traits.receive_buffer_bytes = link.receive_buffer_bytes();
  if constexpr (HasReceiveSlots<P>) traits.receive_packet_bytes = link.receive_packet_bytes();
  if constexpr (HasRunTimeTraits<P>) return link.traits(traits);
  return traits;
}

// Statistics: what the link counts itself.
struct PacketStatistics {
  uint64_t sent = 0;
  uint64_t sent_bytes = 0;
  uint64_t refused = 0;  // no room: tried again by the owner
  uint64_t received = 0;
  uint64_t received_bytes = 0;
  uint64_t dropped = 0;  // arrived, and there was no room for them
};

template <class P>
concept HasStatistics = requires(const P& link) {
  { link.packet_statistics() }
  noexcept->std::same_as<PacketStatistics>;
};

// --- set-up and people; settings, warnings and traffic classes are in proto/setup.hpp ---

// Hints: parts of a sentence, each after "; ", that may explain why nobody answers.
template <class P>
concept HasHints = requires(const P& link) {
  { link.hints() } -> std::same_as<std::string>;
};

}  // namespace weft::proto
