// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Opcodes of the base transport header: IBTA volume 1, 9.2; XRC: annex A14; CNP: annex A17; FLUSH: annex A19. Stateless.
// Two of the codes that 9.2.1 leaves to manufacturers are Weft's, and are sent to Weft alone: SACK bitmaps (sack_bitmap.hpp) and
// window updates, whose AETH has the window in place of the MSN (docs/roce.md, "UC").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft::wire::roce {

// The upper 3 bits of an opcode.
enum class Transport : uint8_t {
  ReliableConnection = 0,
  Unreliable = 1,
  Datagram = 3,
  Congestion = 4,
  Extended = 5
};

// The lower 5 bits.
enum class Operation : uint8_t {
  SendFirst = 0x00,
  SendMiddle = 0x01,
  SendLast = 0x02,
  SendLastImmediate = 0x03,
  SendOnly = 0x04,
  SendOnlyImmediate = 0x05,
  WriteFirst = 0x06,
  WriteMiddle = 0x07,
  WriteLast = 0x08,
  WriteLastImmediate = 0x09,
  WriteOnly = 0x0a,
  WriteOnlyImmediate = 0x0b,
  ReadRequest = 0x0c,
  ReadResponseFirst = 0x0d,
  ReadResponseMiddle = 0x0e,
  ReadResponseLast = 0x0f,
  ReadResponseOnly = 0x10,
  Acknowledge = 0x11,
  AtomicAcknowledge = 0x12,
  CompareSwap = 0x13,
  FetchAdd = 0x14,
  SendLastInvalidate = 0x16,
  SendOnlyInvalidate = 0x17,
  // Both are answered by a READ response without a payload.
  Flush = 0x1c,        // A19: FETH and RETH
  AtomicWrite = 0x1d,  // IBTA volume 1, release 1.6: RETH and 8 bytes
};
inline constexpr uint8_t operation_count = 0x18;
inline constexpr uint8_t opcode_cnp = 0x81;
inline constexpr uint8_t opcode_sack = 0xd1;
inline constexpr uint8_t opcode_window_update = 0xd2;

constexpr uint8_t opcode(Transport transport, Operation operation) noexcept {
  return static_cast<uint8_t>(static_cast<unsigned>(transport) << 5 | static_cast<unsigned>(operation));
}
constexpr Transport transport_of(uint8_t code) noexcept { return static_cast<Transport>(code >> 5); }
constexpr Operation operation_of(uint8_t code) noexcept { return static_cast<Operation>(code & 31); }

// The extended headers, in the order in which they follow the BTH.
enum Header : uint16_t {
  has_xrceth = 1,
  has_deth = 2,
  has_reth = 4,
  has_atomic_eth = 8,
  has_aeth = 16,
  has_atomic_ack = 32,
  has_immediate = 64,
  has_ieth = 128,
  has_feth = 256,  // in front of the RETH, and never without it
};

inline constexpr size_t bth_bytes = 12;
inline constexpr size_t icrc_bytes = 4;
inline constexpr size_t headers_bytes_max =
    bth_bytes + 4 + 28 + 4;  // the longest: XRC, atomic or WRITE with immediate

// What an opcode says of its packet.
struct OpcodeTraits {
  uint16_t headers = 0;
  uint8_t headers_bytes = 0;  // with the BTH
  bool exists = false;
  bool has_payload = false;
  bool is_request = false;  // for the responder
  bool begins = false;      // FIRST or ONLY
  bool ends = false;        // LAST or ONLY
};

namespace detail {

constexpr OpcodeTraits traits(uint8_t code) noexcept {
  OpcodeTraits t;
  if (code == opcode_cnp) {
    t.exists = t.has_payload = t.begins = t.ends = true;
    t.headers_bytes = bth_bytes;
    return t;
  }
  if (code == opcode_sack || code == opcode_window_update) {
    t.exists = t.begins = t.ends = true;
    t.has_payload = code == opcode_sack;
    t.headers = has_aeth;
    t.headers_bytes = bth_bytes + 4;
    return t;
  }
  const uint8_t kind = code >> 5;
  const uint8_t op = code & 31;
  if (kind != 0 && kind != 1 && kind != 3 && kind != 5) return t;
  const bool flush = op == 0x1c;
  const bool atomic_write = op == 0x1d;
  if ((op >= operation_count && !flush && !atomic_write) || op == 0x15) return t;
  if (kind == 1 && op > 0x0b) return t;
  if (kind == 3 && op != 0x04 && op != 0x05) return t;
  const bool invalidates = op == 0x16 || op == 0x17;
  const bool send = op <= 0x05 || invalidates;
  const bool write = op >= 0x06 && op <= 0x0b;
  const bool response = op >= 0x0d && op <= 0x12;
  t.exists = true;
  t.is_request = !response;
  t.has_payload = send || write || atomic_write || (op >= 0x0d && op <= 0x10);
  const bool middle = op == 0x01 || op == 0x07 || op == 0x0e;
  const bool first = op == 0x00 || op == 0x06 || op == 0x0d;
  const bool last = op == 0x02 || op == 0x03 || op == 0x08 || op == 0x09 || op == 0x0f || op == 0x16;
  t.begins = !middle && !last;
  t.ends = !middle && !first;
  if (kind == 5 && t.is_request) t.headers |= has_xrceth;
  if (kind == 3) t.headers |= has_deth;
  if ((write && t.begins) || op == 0x0c || flush || atomic_write) t.headers |= has_reth;
  if (flush) t.headers |= has_feth;
  if (op == 0x13 || op == 0x14) t.headers |= has_atomic_eth;
  if (response && op != 0x0e) t.headers |= has_aeth;
  if (op == 0x12) t.headers |= has_atomic_ack;
  if (op == 0x03 || op == 0x05 || op == 0x09 || op == 0x0b) t.headers |= has_immediate;
  if (invalidates) t.headers |= has_ieth;
  constexpr std::array<uint8_t, 9> sizes{4, 8, 16, 28, 4, 8, 4, 4, 4};
  t.headers_bytes = bth_bytes;
  for (size_t i = 0; i < sizes.size(); ++i)
    if ((t.headers >> i & 1) != 0) t.headers_bytes = static_cast<uint8_t>(t.headers_bytes + sizes[i]);
  return t;
}

constexpr std::array<OpcodeTraits, 256> all_traits() noexcept {
  std::array<OpcodeTraits, 256> all{};
  for (unsigned code = 0; code < 256; ++code) all[code] = traits(static_cast<uint8_t>(code));
  return all;
}

inline constexpr std::array<OpcodeTraits, 256> table = all_traits();

}  // namespace detail

constexpr const OpcodeTraits& traits_of(uint8_t code) noexcept { return detail::table[code]; }

}  // namespace weft::wire::roce
