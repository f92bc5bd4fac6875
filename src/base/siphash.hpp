// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// SipHash-2-4 (Aumasson and Bernstein, 2012): a short keyed checksum that nobody can make who does not have the key. Knows nothing of ours.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace weft {

struct SipKey {
  uint64_t first = 0;
  uint64_t second = 0;
};

inline uint64_t siphash(const SipKey& key, std::span<const std::byte> bytes) noexcept {
  static_assert(std::endian::native == std::endian::little, "words of the input are little-endian");
  uint64_t a = key.first ^ 0x736f6d6570736575u;
  uint64_t b = key.second ^ 0x646f72616e646f6du;
  uint64_t c = key.first ^ 0x6c7967656e657261u;
  uint64_t d = key.second ^ 0x7465646279746573u;
  const auto rounds = [&](int count) {
    for (; count > 0; --count) {
      a += b;
      b = std::rotl(b, 13) ^ a;
      a = std::rotl(a, 32);
      c += d;
      d = std::rotl(d, 16) ^ c;
      a += d;
      d = std::rotl(d, 21) ^ a;
      c += b;
      b = std::rotl(b, 17) ^ c;
      c = std::rotl(c, 32);
    }
  };
  const auto absorb = [&](uint64_t word) {
    d ^= word;
    rounds(2);
    a ^= word;
  };
  size_t at = 0;
  for (; at + sizeof(uint64_t) <= bytes.size(); at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    absorb(word);
  }
  uint64_t last = uint64_t{bytes.size()} << 56;
  for (size_t i = 0; at + i < bytes.size(); ++i) last |= std::to_integer<uint64_t>(bytes[at + i]) << (8 * i);
  absorb(last);
  c ^= 0xff;
  rounds(4);
  return a ^ b ^ c ^ d;
}

}  // namespace weft
