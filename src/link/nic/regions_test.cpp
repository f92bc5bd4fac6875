// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which piece has these bytes.
#include "link/nic/regions.hpp"

#include <gtest/gtest.h>

#include <list>
#include <random>

namespace weft::link::nic {
namespace {

const void* at(uintptr_t address) { return reinterpret_cast<const void*>(address); }

TEST(NicRegions, FindsWholeRangesOnly) {
  Regions regions;
  EXPECT_EQ(regions.find(at(0x1000), 1), nullptr);
  const Piece* const piece = regions.add(at(0x1000), 0x100, 7);
  EXPECT_EQ(regions.find(at(0x1000), 0x100), piece);
  EXPECT_EQ(regions.find(at(0x10ff), 1), piece);
  EXPECT_EQ(regions.find(at(0x10ff), 2), nullptr);
  EXPECT_EQ(regions.find(at(0xfff), 2), nullptr);
  EXPECT_EQ(regions.find(at(0x1001), SIZE_MAX), nullptr);
  regions.remove(piece);
  EXPECT_EQ(regions.find(at(0x1000), 1), nullptr);
  EXPECT_TRUE(regions.empty());
}

TEST(NicRegions, AgreesWithASearchOfAll) {
  std::mt19937 random(1);
  Regions regions;
  std::list<Piece> all;
  std::vector<Piece*> pieces;
  for (int round = 0; round < 20'000; ++round) {
    if (random() % 3 == 0 && !pieces.empty()) {
      const size_t which = random() % pieces.size();
      regions.remove(pieces[which]);
      pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(which));
    } else if (pieces.size() < 40) {
      pieces.push_back(regions.add(at(0x1000 + random() % 1000), 1 + random() % 300, 0));
    }
    const uintptr_t begin = 0x1000 + random() % 1300;
    const size_t bytes = random() % 200;
    bool is_there = false;
    for (const Piece* piece : pieces) is_there |= begin >= piece->begin && begin + bytes <= piece->end;
    const Piece* const found = regions.find(at(begin), bytes);
    ASSERT_EQ(found != nullptr, is_there) << round;
    if (found != nullptr) {
      ASSERT_TRUE(begin >= found->begin && begin + bytes <= found->end);
    }
  }
}

}  // namespace
}  // namespace weft::link::nic
