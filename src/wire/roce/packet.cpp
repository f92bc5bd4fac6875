// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Packets to structs and back. The opcode's traits say what must be there; all of it is compared with what is there
// before the first byte is read.
#include "wire/roce/packet.hpp"

namespace weft::wire::roce {

bool parse(Bytes bytes, Packet& out) noexcept { return parse(bytes, bytes, out); }

bool parse(Bytes headers, Bytes bytes, Packet& out) noexcept {
  if (bytes.size() < bth_bytes || bytes.size() % 4 != 0) return false;
  const std::byte* at = headers.data();
  out.bth = Bth::read(at);
  const OpcodeTraits& traits = traits_of(out.bth.opcode);
  if (!traits.exists || out.bth.version != 0 || bytes.size() < traits.headers_bytes) return false;
  const size_t rest = bytes.size() - traits.headers_bytes;
  if (out.bth.pad > rest || (!traits.has_payload && rest != 0)) return false;
  at += bth_bytes;
  if ((traits.headers & has_xrceth) != 0) {
    out.xrc_srqn = load_big<uint32_t>(at) & mask24;
    at += 4;
  }
  if ((traits.headers & has_deth) != 0) {
    out.deth = Deth::read(at);
    at += 8;
  }
  if ((traits.headers & has_reth) != 0) {
    if ((traits.headers & has_feth) != 0) {
      out.feth = Feth::of(load_big<uint32_t>(at));
      at += 4;
    }
    out.reth = Reth::read(at);
    at += 16;
  }
  if ((traits.headers & has_atomic_eth) != 0) {
    out.atomic = AtomicEth::read(at);
    at += 28;
  }
  if ((traits.headers & has_aeth) != 0) {
    out.aeth = Aeth::read(at);
    at += 4;
  }
  if ((traits.headers & has_atomic_ack) != 0) {
    out.atomic_ack = load_big<uint64_t>(at);
    at += 8;
  }
  if ((traits.headers & has_immediate) != 0) {
    out.immediate = load_big<uint32_t>(at);
    at += 4;
  }
  if ((traits.headers & has_ieth) != 0) out.invalidate = load_big<uint32_t>(at);
  out.payload = bytes.subspan(traits.headers_bytes, rest - out.bth.pad);
  return true;
}

size_t write_headers(const Packet& packet, std::byte* out) noexcept {
  const uint16_t headers = packet.traits().headers;
  std::byte* at = out;
  packet.bth.write(at);
  at += bth_bytes;
  if ((headers & has_xrceth) != 0) {
    store_big(at, packet.xrc_srqn & mask24);
    at += 4;
  }
  if ((headers & has_deth) != 0) {
    packet.deth.write(at);
    at += 8;
  }
  if ((headers & has_reth) != 0) {
    if ((headers & has_feth) != 0) {
      store_big(at, packet.feth.bits());
      at += 4;
    }
    packet.reth.write(at);
    at += 16;
  }
  if ((headers & has_atomic_eth) != 0) {
    packet.atomic.write(at);
    at += 28;
  }
  if ((headers & has_aeth) != 0) {
    packet.aeth.write(at);
    at += 4;
  }
  if ((headers & has_atomic_ack) != 0) {
    store_big(at, packet.atomic_ack);
    at += 8;
  }
  if ((headers & has_immediate) != 0) {
    store_big(at, packet.immediate);
    at += 4;
  }
  if ((headers & has_ieth) != 0) {
    store_big(at, packet.invalidate);
    at += 4;
  }
  return static_cast<size_t>(at - out);
}

}  // namespace weft::wire::roce
