// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Big-endian fields at a pointer whose room was checked by the caller. Stateless.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weft::wire {

template <std::unsigned_integral T>
constexpr T swap_bytes(T value) noexcept {
  if constexpr (sizeof(T) == 1) return value;
  else if constexpr (sizeof(T) == 2) return __builtin_bswap16(value);
  else if constexpr (sizeof(T) == 4) return __builtin_bswap32(value);
  else return __builtin_bswap64(value);
}

// From network byte order to the machine's, and back.
template <std::unsigned_integral T>
constexpr T big(T value) noexcept {
  return std::endian::native == std::endian::big ? value : swap_bytes(value);
}

template <std::unsigned_integral T>
inline T load_big(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return big(value);
}

template <std::unsigned_integral T>
inline void store_big(std::byte* at, T value) noexcept {
  value = big(value);
  std::memcpy(at, &value, sizeof value);
}

inline uint8_t load_byte(const std::byte* at) noexcept { return std::to_integer<uint8_t>(*at); }

}  // namespace weft::wire
