// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The transport headers of InfiniBand as plain structs: IBTA volume 1, 9.2 and 9.3, XRCETH: annex A14. read() and
// write() take pointers whose room the caller has checked (packet.hpp does). Numbers are in the machine's byte order
// here, big-endian on the wire. Reserved bits are written as zero and ignored when read, but for Bth::tag. Stateless.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/bytes.hpp"
#include "wire/roce/opcode.hpp"

namespace weft::wire::roce {

inline constexpr uint32_t mask24 = 0xffffff;

// Base transport header, 9.2.
struct Bth {
  uint8_t opcode = 0;
  bool solicited = false;
  bool migrated = false;
  uint8_t pad = 0;  // bytes behind the payload, 0 to 3
  uint8_t version = 0;
  uint16_t pkey = 0xffff;
  bool fecn = false;  // A17: RoCEv2 marks by the ECN bits of IP, and routers leave this to native InfiniBand
  bool becn = false;
  uint32_t destination = 0;  // QPN
  bool ack_request = false;
  uint32_t psn = 0;
  // The reserved bits of bytes 4 and 8, 13 of them, which the specification has written as zero and ignored. Between
  // adapters of Weft they identify the sender of a request, or mark an answer (proto/roce/tag.hpp). Byte 4 is not covered by the ICRC.
  uint16_t tag = 0;

  static Bth read(const std::byte* at) noexcept {
    Bth h;
    h.opcode = load_byte(at);
    const uint8_t flags = load_byte(at + 1);
    h.solicited = (flags & 0x80) != 0;
    h.migrated = (flags & 0x40) != 0;
    h.pad = flags >> 4 & 3;
    h.version = flags & 15;
    h.pkey = load_big<uint16_t>(at + 2);
    const auto where = load_big<uint32_t>(at + 4);
    h.fecn = (where & 0x80000000u) != 0;
    h.becn = (where & 0x40000000u) != 0;
    h.destination = where & mask24;
    const auto when = load_big<uint32_t>(at + 8);
    h.ack_request = (when & 0x80000000u) != 0;
    h.psn = when & mask24;
    h.tag = static_cast<uint16_t>((where >> 24 & 0x3f) << 7 | (when >> 24 & 0x7f));
    return h;
  }
  void write(std::byte* at) const noexcept {
    at[0] = std::byte{opcode};
    at[1] = static_cast<std::byte>((solicited ? 0x80 : 0) | (migrated ? 0x40 : 0) | (pad & 3) << 4 |
                                   (version & 15));
    store_big(at + 2, pkey);
    store_big(at + 4, (fecn ? 0x80000000u : 0u) | (becn ? 0x40000000u : 0u) |
                          (uint32_t{tag} >> 7 & 0x3f) << 24 | (destination & mask24));
    store_big(at + 8, (ack_request ? 0x80000000u : 0u) | (uint32_t{tag} & 0x7f) << 24 | (psn & mask24));
  }
};

// Where an RDMA request reads or writes.
struct Reth {
  uint64_t address = 0;
  uint32_t key = 0;
  uint32_t length = 0;

  static Reth read(const std::byte* at) noexcept {
    return {load_big<uint64_t>(at), load_big<uint32_t>(at + 8), load_big<uint32_t>(at + 12)};
  }
  void write(std::byte* at) const noexcept {
    store_big(at, address);
    store_big(at + 8, key);
    store_big(at + 12, length);
  }
};

// What a FLUSH makes visible, A19.4.1. The values are those of <infiniband/verbs.h> (ibv_wr_post(3)).
enum Placement : uint16_t { placement_global = 1, placement_persistent = 2 };
enum Selectivity : uint16_t { selects_range = 0, selects_region = 1 };
struct Feth {
  uint16_t placement = 0;    // 4 bits
  uint16_t selectivity = 0;  // 2 bits

  static Feth of(uint32_t bits) noexcept {
    return {static_cast<uint16_t>(bits & 15), static_cast<uint16_t>(bits >> 4 & 3)};
  }
  uint32_t bits() const noexcept { return (uint32_t{selectivity} & 3) << 4 | (placement & 15u); }
  bool is_valid() const noexcept {
    return placement != 0 && placement <= (placement_global | placement_persistent) &&
           selectivity <= selects_region;
  }
};

// For a compare and swap `swap_add` is what is stored, for a fetch and add what is added.
struct AtomicEth {
  uint64_t address = 0;
  uint32_t key = 0;
  uint64_t swap_add = 0;
  uint64_t compare = 0;

  static AtomicEth read(const std::byte* at) noexcept {
    return {load_big<uint64_t>(at), load_big<uint32_t>(at + 8), load_big<uint64_t>(at + 12),
            load_big<uint64_t>(at + 20)};
  }
  void write(std::byte* at) const noexcept {
    store_big(at, address);
    store_big(at + 8, key);
    store_big(at + 12, swap_add);
    store_big(at + 20, compare);
  }
};

// Syndromes, 9.7.5.2.
enum class AckKind : uint8_t { Ack = 0, RnrNak = 1, Reserved = 2, Nak = 3 };
enum class NakCode : uint8_t {
  Sequence = 0,
  InvalidRequest = 1,
  RemoteAccess = 2,
  RemoteOperation = 3,
  InvalidRdRequest = 4
};
inline constexpr uint8_t syndrome_ack = 0x1f;  // an ACK without a count of credits
constexpr uint8_t syndrome(NakCode code) noexcept {
  return static_cast<uint8_t>(0x60 | static_cast<unsigned>(code));
}
constexpr uint8_t syndrome_rnr(uint8_t timer) noexcept { return static_cast<uint8_t>(0x20 | (timer & 31)); }

struct Aeth {
  uint8_t syndrome = syndrome_ack;
  uint32_t msn = 0;

  AckKind kind() const noexcept { return static_cast<AckKind>(syndrome >> 5 & 3); }
  uint8_t value() const noexcept { return syndrome & 31; }  // credits, RNR timer or NAK code

  static Aeth read(const std::byte* at) noexcept { return {load_byte(at), load_big<uint32_t>(at) & mask24}; }
  void write(std::byte* at) const noexcept { store_big(at, uint32_t{syndrome} << 24 | (msn & mask24)); }
};

// Datagrams.
struct Deth {
  uint32_t qkey = 0;
  uint32_t source = 0;  // QPN

  static Deth read(const std::byte* at) noexcept {
    return {load_big<uint32_t>(at), load_big<uint32_t>(at + 4) & mask24};
  }
  void write(std::byte* at) const noexcept {
    store_big(at, qkey);
    store_big(at + 4, source & mask24);
  }
};

}  // namespace weft::wire::roce
