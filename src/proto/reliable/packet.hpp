// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A packet of the reliable protocol: the plain struct, and the checked way between it and bytes. docs/wire/reliable.md has it byte by byte.
// Stateless; must not know connections.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace weft::proto::reliable {

enum class PacketType : uint8_t {
  Data = 1,      // bytes of the stream, acknowledgement, or both, or neither (a probe)
  Reset = 2,     // I do not know the connection that you mean
  Close = 3,     // my stream ends at `offset`, and I am leaving
  CloseAck = 4,  // heard that
};

enum PacketFlag : uint8_t {
  has_handshake = 1,  // who I am
  has_ack = 2,        // what I have received
  wants_ack = 4,      // answer at once
  is_copy = 32,       // sent more than once on purpose: nothing to report
  saw_duplicate = 8,  // bytes came that I had: something was sent again without need
  has_check = 16,     // CRC-32C over the packet
  has_length = 64,    // in place of it: how many bytes the packet has
};

inline constexpr size_t ranges_max = 16;  // in one packet
inline constexpr size_t handshake_address_max = 64;
inline constexpr unsigned stamp_shift = 6;  // stamps count 64 ns
inline constexpr size_t fixed_head_bytes = 24;
inline constexpr size_t check_bytes = 4;  // and so has the length
inline constexpr size_t ack_head_bytes = 20;
inline constexpr size_t range_bytes = 8;
inline constexpr size_t handshake_head_bytes = 17;
inline constexpr size_t head_bytes_max = fixed_head_bytes + check_bytes + ack_head_bytes +
                                         ranges_max * range_bytes + handshake_head_bytes +
                                         handshake_address_max;

// Bytes [begin, end) of a stream.
struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct Packet {
  PacketType type = PacketType::Data;
  uint8_t flags = 0;
  uint8_t range_count = 0;
  uint32_t to = 0;      // the receiver's number of the connection; 0: not known yet
  uint32_t from = 0;    // the sender's
  uint32_t stamp = 0;   // the sender's clock
  uint64_t offset = 0;  // of the first payload byte in the stream

  uint32_t length =
      0;  // with has_length: of the packet, as its sender said; decode() has it also where it refuses the packet for it

  // with has_ack
  uint64_t ack = 0;     // everything before it has come
  uint32_t window = 0;  // bytes behind ack that may be sent
  uint32_t echo = 0;    // newest stamp seen
  uint32_t hold = 0;    // how long ago, in the unit of stamps
  std::array<Range, ranges_max> ranges;

  // with has_handshake
  uint64_t incarnation = 0;       // of the sender's side of the connection; later ones are larger
  uint64_t peer_incarnation = 0;  // of the receiver's side as far as the sender knows; 0: not known yet
  std::span<const std::byte> address;

  std::span<const std::byte> payload;  // what decode() found behind the head
};

// An acknowledgement without payload that has both flags says in `offset` how many packets of the connection came again without need, so far.
// Elsewhere nobody looks at the offset of a packet without payload.
constexpr bool reports_needless(const Packet& packet) noexcept {
  constexpr uint8_t flags = has_ack | saw_duplicate | is_copy;
  return packet.type == PacketType::Data && (packet.flags & flags) == flags && packet.payload.empty();
}

// Bytes of the head that encode() would write.
constexpr size_t head_bytes(uint8_t flags, size_t ranges, size_t address_bytes) noexcept {
  return fixed_head_bytes + ((flags & (has_check | has_length)) != 0 ? check_bytes : 0) +
         ((flags & has_ack) != 0 ? ack_head_bytes + ranges * range_bytes : 0) +
         ((flags & has_handshake) != 0 ? handshake_head_bytes + address_bytes : 0);
}

// Writes the head, at most head_bytes_max, and returns its length. The field of check or length stays zero: seal() fills it.
size_t encode(const Packet& packet, std::byte* out) noexcept;

// Puts the check of head and payload pieces, or their length, into an encoded head that has one of the flags.
struct Piece {
  const std::byte* at;
  size_t bytes;
};
void seal(std::byte* head, size_t bytes, std::span<const Piece> payload) noexcept;

// False: no packet of this version, or one that contradicts itself, or its check or length is wrong. Refuses packets without one of `must_have`,
// which is has_check, has_length or 0.
[[nodiscard]] bool decode(std::span<const std::byte> bytes, uint8_t must_have, Packet& out) noexcept;

// CRC-32C (Castagnoli, RFC 3720 appendix B.4), continued from `crc`.
uint32_t crc32c(uint32_t crc, const std::byte* at, size_t bytes) noexcept;

}  // namespace weft::proto::reliable
