// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Mixing functions for hash tables of integers. Not for cryptography. Knows nothing of ours.
#pragma once

#include <cstdint>

namespace weft {

__extension__ typedef unsigned __int128 Wide128;

// The two halves of a 128-bit product, folded: one multiplication, and every bit of both factors reaches the
// low bits.
constexpr uint64_t fold_multiply(uint64_t a, uint64_t b) noexcept {
  const Wide128 product = static_cast<Wide128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Odd constants with about half of their bits set and no short period: the fractions of the golden ratio and
// of the square root of 2.
inline constexpr uint64_t hash_factor_a = 0x9e3779b97f4a7c15u;
inline constexpr uint64_t hash_factor_b = 0x6a09e667f3bcc909u;

// One word. `seed` makes the collisions of a table unpredictable to a peer that chooses the words.
constexpr uint64_t hash_word(uint64_t word, uint64_t seed = 0) noexcept {
  return fold_multiply(word ^ seed, hash_factor_a);
}

// Two words. The second multiplication is off the critical path when `second` is known early.
constexpr uint64_t hash_pair(uint64_t first, uint64_t second, uint64_t seed = 0) noexcept {
  return fold_multiply(first ^ seed, hash_factor_a ^ (second * hash_factor_b));
}

}  // namespace weft
