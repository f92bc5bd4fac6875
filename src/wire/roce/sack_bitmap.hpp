// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The payload of a SACK bitmap, a packet of Weft's own (opcode_sack): what a responder has beyond the packet that it
// waits for, which is the PSN of the BTH. docs/roce.md, "Selective repeat". Stateless.
//
//   0   newest PSN that came, 24 bits in a word; it was kept or not
//   4   0 to 8 words of bits: bit k of byte n is the PSN of the BTH + 1 + 8 * n + k, set: it is kept. Others: it is not
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/bytes.hpp"
#include "wire/ip.hpp"
#include "wire/roce/headers.hpp"

namespace weft::wire::roce {

struct SackBitmap {
  static constexpr size_t bits_max = 256;
  static constexpr size_t bytes_max = 4 + bits_max / 8;

  uint32_t newest = 0;
  std::array<uint8_t, bits_max / 8> bits{};

  bool has(size_t index) const noexcept { return (bits[index / 8] >> (index % 8) & 1) != 0; }
  void add(size_t index) noexcept {
    bits[index / 8] = static_cast<uint8_t>(bits[index / 8] | 1u << (index % 8));
  }

  // False: a length that no map has.
  [[nodiscard]] static bool read(Bytes from, SackBitmap& out) noexcept {
    if (from.size() < 4 || from.size() > bytes_max || from.size() % 4 != 0) return false;
    out.newest = load_big<uint32_t>(from.data()) & mask24;
    out.bits = {};
    for (size_t i = 4; i < from.size(); ++i) out.bits[i - 4] = load_byte(from.data() + i);
    return true;
  }
  // Without the words at the end that are zero. Returns how many bytes of `out`, which has room for bytes_max.
  size_t write(std::byte* out) const noexcept {
    store_big(out, newest & mask24);
    size_t bytes = bits.size();
    while (bytes > 0 && bits[bytes - 1] == 0) --bytes;
    bytes = (bytes + 3) / 4 * 4;
    for (size_t i = 0; i < bytes; ++i) out[4 + i] = std::byte{bits[i]};
    return 4 + bytes;
  }
};

}  // namespace weft::wire::roce
