// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Enumerations that a program filled in, as numbers.
#pragma once

#include <cstdint>
#include <cstring>

namespace weft::fi {

// The number in an enumeration that a program filled in. It may be none of the enumerators, and then reading the enumeration is undefined.
template <class Enum>
uint32_t raw(const Enum& value) noexcept {
  static_assert(sizeof(Enum) == sizeof(uint32_t));
  uint32_t number;
  std::memcpy(&number, &value, sizeof number);
  return number;
}

}  // namespace weft::fi
