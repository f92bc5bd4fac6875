// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The head of a frame in an ordered stream of bytes: 4 to 24 bytes, little-endian, what is zero is not sent (docs/wire/stream.md). Stateless;
// must not know what carries the stream.
//
//   byte 0     kind
//   byte 1     shape: bit 0 has_b, bit 1 has_data, bits 2-3 width of a, bits 4-5 width of b (0, 4 or 8 bytes), bit 6 extension, bit 7 zero
//   byte 2, 3  low half of the length
//   then       the extension, 4 bytes, if any: high half of the length, receive context, zero
//   then       a, then b, as wide as they are
//
// Prefixes inside a payload (wire/frame.hpp) travel as they lie in memory, so both ends are little-endian machines: a big-endian port must
// convert them, and does not compile before.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "wire/frame.hpp"

namespace weft::proto::stream {

static_assert(std::endian::native == std::endian::little, "prefixes of frames are not converted yet");

inline constexpr size_t head_bytes_min = 4;
inline constexpr size_t head_bytes_max = 24;

enum Shape : uint8_t {
  shape_has_b = 0x01,
  shape_has_data = 0x02,
  shape_a_4 = 0x04,
  shape_a_8 = 0x08,
  shape_b_4 = 0x10,
  shape_b_8 = 0x20,
  shape_extension = 0x40,
};

// Writes the head; `out` has room for head_bytes_max. Returns its bytes. head.flags may have has_b and has_data.
[[gnu::always_inline]] inline size_t pack_head(const wire::FrameHead& head, std::byte* out) noexcept {
  uint8_t shape = head.flags & (wire::has_b | wire::has_data);
  size_t at = head_bytes_min;
  if (head.length > 0xffff || head.context != 0) {
    shape |= shape_extension;
    const uint32_t extension = head.length >> 16 | uint32_t{head.context} << 16;
    std::memcpy(out + at, &extension, sizeof(extension));
    at += sizeof(extension);
  }
  const auto put = [&](uint64_t value, uint8_t four, uint8_t eight) __attribute__((always_inline)) {
    if (value == 0) return;
    const size_t width = value >> 32 == 0 ? 4 : 8;
    shape |= width == 4 ? four : eight;
    std::memcpy(out + at, &value, width);
    at += width;
  };
  put(head.a, shape_a_4, shape_a_8);
  if ((head.flags & wire::has_b) != 0) put(head.b, shape_b_4, shape_b_8);
  const uint32_t first =
      static_cast<uint8_t>(head.kind) | uint32_t{shape} << 8 | (head.length & 0xffff) << 16;
  std::memcpy(out, &first, sizeof(first));
  return at;
}

// Bytes of the head that starts with these two; 0: no such shape.
[[gnu::always_inline]] inline size_t head_size(uint8_t shape) noexcept {
  constexpr uint8_t both_a = shape_a_4 | shape_a_8;
  constexpr uint8_t both_b = shape_b_4 | shape_b_8;
  if ((shape & 0x80) != 0 || (shape & both_a) == both_a || (shape & both_b) == both_b) return 0;
  // b is only there when it is meant.
  if ((shape & both_b) != 0 && (shape & shape_has_b) == 0) return 0;
  return head_bytes_min + ((shape & shape_extension) != 0 ? 4U : 0U) + (shape & both_a) +
         ((shape & both_b) >> 2);
}

enum class Unpacked : uint8_t { Head, Short, Malformed };

// Reads a head from the front of `left` bytes; `size` is set to its bytes.
[[gnu::always_inline]] inline Unpacked unpack_head(const std::byte* at, size_t left, wire::FrameHead& head,
                                                   size_t& size) noexcept {
  if (left < head_bytes_min) return Unpacked::Short;
  uint32_t first = 0;
  std::memcpy(&first, at, sizeof(first));
  const auto shape = static_cast<uint8_t>(first >> 8);
  size = head_size(shape);
  if (size == 0) return Unpacked::Malformed;
  if (left < size) return Unpacked::Short;
  head.kind = static_cast<wire::FrameKind>(static_cast<uint8_t>(first));
  head.flags = shape & (wire::has_b | wire::has_data);
  head.context = 0;
  head.length = first >> 16;
  head.a = 0;
  head.b = 0;
  at += head_bytes_min;
  if ((shape & shape_extension) != 0) {
    uint32_t extension = 0;
    std::memcpy(&extension, at, sizeof(extension));
    if (extension >> 24 != 0) return Unpacked::Malformed;
    head.length |= (extension & 0xffff) << 16;
    head.context = static_cast<uint8_t>(extension >> 16);
    at += sizeof(extension);
  }
  const auto get = [&](uint64_t& value, bool four, bool eight) {
    if (eight) {
      std::memcpy(&value, at, 8);
      at += 8;
    } else if (four) {
      uint32_t low = 0;
      std::memcpy(&low, at, 4);
      value = low;
      at += 4;
    }
  };
  get(head.a, (shape & shape_a_4) != 0, (shape & shape_a_8) != 0);
  get(head.b, (shape & shape_b_4) != 0, (shape & shape_b_8) != 0);
  return Unpacked::Head;
}

}  // namespace weft::proto::stream
