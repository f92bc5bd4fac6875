// What carries packets: the least that a device can do. Unreliable: packets may be lost, doubled, reordered and altered on the way.
// Must not know what is in them.
//
// Rules of the contract:
//   - One thread at a time calls into it; it calls back only from poll().
//   - send() takes a whole packet or nothing; refusing means "no room now", and it is tried again after a later poll().
//   - An address has address_length bytes at most; two of equal bytes are the same place.
//   - The bytes that a handler sees are valid during the call only. They are hostile.
#pragma once

#include <sys/uio.h>

#include <concepts>
#include <cstddef>
#include <span>

namespace weft::proto {

// What poll() calls; a template parameter in links, this form is for the concept.
struct PacketHandler {
  void on_packet(std::span<const std::byte> source, std::span<const std::byte> packet) noexcept;
};

template <class P>
concept PacketLink = requires(P& link, std::span<const std::byte> address, const iovec* parts,
                              PacketHandler& handler) {
  { P::address_length } -> std::convertible_to<size_t>;
  // Own address, as a peer would use it.
  { link.address() } -> std::same_as<std::span<const std::byte>>;
  // The largest packet that may reach this address (path MTU less the carrier's own headers).
  { link.packet_bytes_max(address) }
  noexcept->std::convertible_to<size_t>;
  // One packet, gathered from `count` parts.
  { link.send(address, parts, size_t{}) }
  noexcept->std::same_as<bool>;
  // Shows what has come, a bounded number of packets in one call; returns how many.
  { link.poll(handler) }
  noexcept->std::same_as<int>;
  { link.close() }
  noexcept;
};

// Many packets for the price of one call: `parts` are cut into packets of `packet_bytes`, the last may be shorter. Whole or nothing, at most
// train_packets_max packets.
template <class P>
concept HasPacketTrains = requires(P& link, std::span<const std::byte> address, const iovec* parts) {
  { P::train_packets_max } -> std::convertible_to<size_t>;
  { link.send_train(address, parts, size_t{}, size_t{}) }
  noexcept->std::same_as<bool>;
};

}  // namespace weft::proto
