// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The first bytes on a connection, both ways: who speaks, in which version, to whom (docs/wire/stream.md). Stateless; must not know sockets.
//
//   0  "WEFT"        16 incarnation of the endpoint (8)  48  address that the connect went to (24)
//   4  version (2)   24 its listening address (24)       72  bytes of data (2), reason of a refusal (2)
//   6  bytes (2)         family 4, 6 or 0 (2), port (2)  76  zero (4)
//   8  type, kind        scope (4), address (16)         80  data
//  10  zero (2)
//  12  features (4)
//
// Numbers are little-endian. Magic, version and bytes keep their places in every version, and so does a refusal.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "os/socket_address.hpp"

namespace weft::link::tcp {

inline constexpr uint16_t wire_version = 1;
inline constexpr size_t handshake_bytes_min = 80;
inline constexpr size_t handshake_data_max = 256;
inline constexpr size_t handshake_bytes_max = handshake_bytes_min + handshake_data_max;
inline constexpr size_t handshake_prefix_bytes = 8;  // magic, version, bytes

enum class HandshakeType : uint8_t { Hello = 1, Welcome = 2, Refusal = 3 };
enum class ConnectionKind : uint8_t { Rdm = 1, Msg = 2 };

enum class RefusalReason : uint16_t {
  None = 0,
  Version = 1,    // another version of these bytes
  Kind = 2,       // an RDM endpoint met a MSG endpoint
  Features = 3,   // a feature that this side cannot do without, or cannot do
  Malformed = 4,  // no handshake at all
  Duplicate = 5,  // there is, or will be, another connection between the two
  Program = 6,    // fi_reject; its data came along
  Resources = 7,  // no memory, no descriptor
};
const char* to_text(RefusalReason reason) noexcept;

struct Handshake {
  HandshakeType type = HandshakeType::Hello;
  ConnectionKind kind = ConnectionKind::Rdm;
  uint32_t features = 0;      // that this side can use; both use what both have (none is defined yet)
  uint64_t incarnation = 0;   // tells an endpoint from an earlier one with its address
  os::SocketAddress address;  // where it listens; none for a connected endpoint
  os::SocketAddress target;   // Hello: whom it means to reach
  RefusalReason reason = RefusalReason::None;
  uint16_t data_bytes = 0;
  std::array<std::byte, handshake_data_max> data{};

  void set_data(const void* bytes, size_t count) noexcept;  // at most handshake_data_max
  std::span<const std::byte> data_span() const noexcept { return std::span(data).first(data_bytes); }
};

// Returns the bytes written; `out` has room for handshake_bytes_max.
size_t pack_handshake(const Handshake& handshake, std::byte* out) noexcept;

// How many bytes the handshake has that begins with handshake_prefix_bytes bytes; 0: it is none.
size_t handshake_size(const std::byte* prefix) noexcept;
// Whether that is because it is of another version, whose handshakes have another length.
bool is_foreign_version(const std::byte* prefix) noexcept;
// Reads a whole handshake. None: sound. Version, Malformed: it has to be refused.
RefusalReason unpack_handshake(std::span<const std::byte> bytes, Handshake& out) noexcept;

}  // namespace weft::link::tcp
