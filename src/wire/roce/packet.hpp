// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A RoCEv2 packet from the BTH to the pad, without the ICRC: the checked way from bytes to structs and back.
// Stateless; must not know IP.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/ip.hpp"
#include "wire/roce/headers.hpp"
#include "wire/roce/opcode.hpp"

namespace weft::wire::roce {

struct Packet {
  Bth bth;
  // Those that the opcode has; the others are as they were.
  uint32_t xrc_srqn = 0;
  Deth deth;
  Reth reth;
  AtomicEth atomic;
  Aeth aeth;
  uint64_t atomic_ack = 0;  // the value before the operation
  uint32_t immediate = 0;   // in the byte order of the machine
  uint32_t invalidate = 0;  // rkey
  Bytes payload;            // without the pad
  // PSNs from bth.psn on that it covers; in no header. More than one: an aggregate (proto/roce, PacketOutput::send_aggregate()).
  uint32_t psns = 1;
  Feth feth;

  const OpcodeTraits& traits() const noexcept { return traits_of(bth.opcode); }
  Transport transport() const noexcept { return transport_of(bth.opcode); }
  Operation operation() const noexcept { return operation_of(bth.opcode); }
};

// `bytes` is the payload of a UDP datagram without its last icrc_bytes. False: no such opcode, another version,
// headers that do not fit, a payload or pad where none may be, a length that is no multiple of 4 (9.2, 9.6). Then
// `out` is unspecified. `out.payload` refers to `bytes`.
[[nodiscard]] bool parse(Bytes bytes, Packet& out) noexcept;
// For bytes that somebody may change meanwhile: `headers` is a copy of the first headers_bytes_max of them, or of all.
// Only their number is taken from `bytes`.
[[nodiscard]] bool parse(Bytes headers, Bytes bytes, Packet& out) noexcept;

// Writes BTH and extended headers, headers_bytes of the opcode's traits, which is at most headers_bytes_max; returns
// how many.
size_t write_headers(const Packet& packet, std::byte* out) noexcept;

constexpr uint8_t pad_of(size_t payload_bytes) noexcept { return static_cast<uint8_t>(-payload_bytes & 3); }

}  // namespace weft::wire::roce
