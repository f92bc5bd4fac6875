// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Any bytes as a RoCEv2 packet: the parser does not look beyond them, and what it understood is written again to the
// same bytes, but for reserved bits.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "wire/roce/icrc.hpp"
#include "wire/roce/packet.hpp"
#include "wire/roce/sack_bitmap.hpp"

namespace {

using namespace weft::wire;

void transport(Bytes bytes) {
  roce::Packet packet;
  if (!roce::parse(bytes, packet)) return;
  std::vector<std::byte> again(roce::headers_bytes_max);
  again.resize(roce::write_headers(packet, again.data()));
  again.insert(again.end(), packet.payload.begin(), packet.payload.end());
  again.resize(again.size() + packet.bth.pad);
  if (again.size() != bytes.size()) std::abort();
  roce::Packet second;
  if (!roce::parse(again, second)) std::abort();
  if (second.bth.psn != packet.bth.psn || second.payload.size() != packet.payload.size()) std::abort();
  if (!packet.payload.empty() &&
      std::memcmp(second.payload.data(), packet.payload.data(), packet.payload.size()) != 0)
    std::abort();
  roce::SackBitmap map, same;
  if (!roce::SackBitmap::read(packet.payload, map)) return;
  std::array<std::byte, roce::SackBitmap::bytes_max> written;
  if (!roce::SackBitmap::read(Bytes(written).first(map.write(written.data())), same) ||
      same.bits != map.bits || same.newest != map.newest)
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t rest = size - 1;
  const auto held = std::make_unique<std::byte[]>(rest);  // ends where the bytes end
  std::memcpy(held.get(), data + 1, rest);
  Bytes bytes(held.get(), rest);
  switch (data[0] % 3) {
    case 0:
      transport(bytes);
      break;
    case 1: {
      Ethernet ethernet;
      if (!Ethernet::read(bytes, ethernet, bytes)) break;
      [[fallthrough]];
    }
    default: {
      Datagram datagram;
      if (!Datagram::read(bytes, datagram)) break;
      const bool right = roce::icrc_is_right(datagram.headers, datagram.payload);
      if (!datagram.is_ip6) {
        const auto solved = roce::solve_identification(datagram.headers, datagram.payload);
        if (right && solved != datagram.ip4.identification) std::abort();
      }
      if (datagram.payload.size() > roce::icrc_bytes)
        transport(datagram.payload.first(datagram.payload.size() - roce::icrc_bytes));
    }
  }
  return 0;
}
