// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What two MessageLinks say to each other (docs/wire/message.md): a head of 4 bytes, then frames or a handshake. Stateless; must not know
// connections.
//
//   byte 0     kind
//   byte 1     zero
//   byte 2, 3  credits: so many messages of the other side have been taken since it was last told
//   Frames     then frames, each a head as in proto/stream/head.hpp and its payload
//   Hello      then "weft", version (2 bytes), receive buffers (2 bytes), the endpoint's incarnation (8 bytes), its
//              address; in place of credits the head has the largest payload, in KiB, of a frame that its sender takes
//              alone in a message; 0: no message may be longer than the endpoints' usual bound
//   Welcome    likewise
//   Defer, Credits, Bye   nothing more
// Numbers are little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "proto/stream/head.hpp"

namespace weft::link::message {

enum class Kind : uint8_t {
  Frames = 1,
  Hello = 2,    // from the side that connected
  Welcome = 3,  // the answer: frames may follow, both ways
  Defer = 4,    // the answer: another connection between us two goes first
  Credits = 5,  // nothing but credits
  Bye = 6,      // the endpoint closes
};

inline constexpr size_t head_bytes = 4;
inline constexpr uint16_t handshake_version = 1;
inline constexpr size_t handshake_bytes_min = head_bytes + 16;
inline constexpr size_t address_bytes_max = 64;

struct Head {
  Kind kind;
  uint16_t credits;
};

inline void put_head(const Head& head, std::byte* out) noexcept {
  out[0] = static_cast<std::byte>(head.kind);
  out[1] = std::byte{0};
  std::memcpy(out + 2, &head.credits, sizeof(head.credits));
}

// False: no message of ours.
[[nodiscard]] inline bool parse_head(std::span<const std::byte> message, Head& head) noexcept {
  if (message.size() < head_bytes || message[1] != std::byte{0}) return false;
  const auto kind = static_cast<uint8_t>(message[0]);
  if (kind < static_cast<uint8_t>(Kind::Frames) || kind > static_cast<uint8_t>(Kind::Bye)) return false;
  head.kind = static_cast<Kind>(kind);
  std::memcpy(&head.credits, message.data() + 2, sizeof(head.credits));
  return true;
}

struct Handshake {
  uint16_t version = handshake_version;
  uint16_t receive_count = 0;
  uint64_t incarnation = 0;  // a random number of the endpoint: tells a new one at an old address
  std::string address;       // where it listens
  uint16_t large_frame_kib = 0;
};

// `out` has room for handshake_bytes_min + address_bytes_max. Returns the bytes, the head included.
inline size_t write_handshake(Kind kind, const Handshake& handshake, std::byte* out) noexcept {
  put_head({kind, handshake.large_frame_kib}, out);
  std::byte* at = out + head_bytes;
  std::memcpy(at, "weft", 4);
  std::memcpy(at + 4, &handshake.version, 2);
  std::memcpy(at + 6, &handshake.receive_count, 2);
  std::memcpy(at + 8, &handshake.incarnation, 8);
  const size_t length =
      handshake.address.size() < address_bytes_max ? handshake.address.size() : address_bytes_max;
  std::memcpy(at + 16, handshake.address.data(), length);
  return handshake_bytes_min + length;
}

// Null, or what is wrong with it.
[[nodiscard]] inline const char* read_handshake(std::span<const std::byte> message, Handshake& handshake) {
  if (message.size() < handshake_bytes_min || std::memcmp(message.data() + head_bytes, "weft", 4) != 0)
    return "it is none of Weft";
  const std::byte* at = message.data() + head_bytes;
  std::memcpy(&handshake.large_frame_kib, message.data() + 2, 2);
  std::memcpy(&handshake.version, at + 4, 2);
  if (handshake.version != handshake_version) return "it has another version";
  if (message.size() - handshake_bytes_min > address_bytes_max) return "its address is too long";
  std::memcpy(&handshake.receive_count, at + 6, 2);
  std::memcpy(&handshake.incarnation, at + 8, 8);
  handshake.address.assign(reinterpret_cast<const char*>(at + 16), message.size() - handshake_bytes_min);
  return nullptr;
}

}  // namespace weft::link::message
