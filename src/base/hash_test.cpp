// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of the mixing functions: what they must do well is spread the keys that programs really use.
#include "base/hash.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace weft {
namespace {

// The longest of 256 lists after 4096 keys; 16 on average, about 33 when the keys fall at random.
template <class Hash>
int longest(Hash hash) {
  std::array<int, 256> lists{};
  for (uint64_t i = 0; i < 4096; ++i) ++lists[hash(i) & 255];
  return *std::max_element(lists.begin(), lists.end());
}

constexpr int longest_allowed = 48;

TEST(Hash, SpreadsCountersInAnyBitsOfAWord) {
  for (int shift = 0; shift <= 52; ++shift) {
    EXPECT_LE(longest([=](uint64_t i) { return hash_word(i << shift); }), longest_allowed) << shift;
    EXPECT_LE(longest([=](uint64_t i) { return hash_word(i << shift, hash_factor_b); }), longest_allowed)
        << shift;
  }
}

TEST(Hash, SpreadsPairsThatDifferInOneWordOrBoth) {
  for (uint64_t fixed : {uint64_t{0}, uint64_t{1}, uint64_t{77}, UINT64_MAX}) {
    EXPECT_LE(longest([=](uint64_t i) { return hash_pair(i, fixed, hash_factor_b); }), longest_allowed)
        << fixed;
    EXPECT_LE(longest([=](uint64_t i) { return hash_pair(fixed, i, hash_factor_b); }), longest_allowed)
        << fixed;
  }
  EXPECT_LE(longest([](uint64_t i) { return hash_pair(i & 63, i >> 6, hash_factor_b); }), longest_allowed);
  EXPECT_LE(longest([](uint64_t i) { return hash_pair((i & 63) << 32, i >> 6, hash_factor_b); }),
            longest_allowed);
}

TEST(Hash, SeedMovesKeys) {
  int same = 0;
  for (uint64_t i = 0; i < 4096; ++i) same += (hash_word(i, 1) & 255) == (hash_word(i, hash_factor_b) & 255);
  EXPECT_LE(same, 64);
}

}  // namespace
}  // namespace weft
