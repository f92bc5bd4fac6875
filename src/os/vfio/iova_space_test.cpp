// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The allocator of device addresses: reserved ranges, alignment, and random use against a model.
#include "os/vfio/iova_space.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace weft::os::vfio {
namespace {

constexpr uint64_t page = 4096;
// What an Intel IOMMU of 39 bits says: all but the interrupt messages' window.
const std::vector<IovaRange> intel = {{0, 0xfedfffff}, {0xfef00000, (uint64_t{1} << 39) - 1}};

TEST(IovaSpace, NeverGivesPageZeroNorReservedRanges) {
  IovaSpace space(intel, page, 64);
  EXPECT_EQ(space.free_bytes(), (uint64_t{1} << 39) - 0x100000 - page);
  EXPECT_EQ(space.allocate(1, 1), page);
  // Too large for what is left below the window.
  EXPECT_EQ(space.allocate(0xfee00000, 1), 0xfef00000U);
}

TEST(IovaSpace, StaysWithinTheAddressesOfTheDevice) {
  IovaSpace space(intel, page, 32);
  EXPECT_EQ(space.free_bytes(), (uint64_t{1} << 32) - 0x100000 - page);
  EXPECT_EQ(space.allocate(uint64_t{1} << 32, page), std::nullopt);
  EXPECT_EQ(IovaSpace({}, page, 64).allocate(1, 1), std::nullopt);
}

TEST(IovaSpace, WholeAddressSpace) {
  const IovaRange all[] = {{0, UINT64_MAX}};
  IovaSpace space(all, page, 64);
  EXPECT_EQ(space.free_bytes(), (uint64_t{1} << 63) - page);
  EXPECT_EQ(space.allocate(UINT64_MAX, page), std::nullopt);
  EXPECT_EQ(space.allocate(0, page), std::nullopt);
  EXPECT_EQ(space.allocate(page, uint64_t{1} << 40), uint64_t{1} << 40);
}

TEST(IovaSpace, RangesThatAreNoMultiplesOrContradictThemselves) {
  const IovaRange odd[] = {
      {0x1001, 0x3ffe}, {0x9000, 0x8000}, {0x2000, 0x2fff}, {0x3000, 0x5fff}, {0x7800, 0x7fff}};
  IovaSpace space(odd, page, 64);
  EXPECT_EQ(space.free_bytes(), 4 * page);
  EXPECT_EQ(space.pieces(), 1U);
  EXPECT_EQ(space.allocate(4 * page, page), 0x2000U);
}

TEST(IovaSpace, AddressesComeBackLate) {
  const IovaRange four[] = {{0x1000, 0x4fff}};
  IovaSpace space(four, page, 64);
  EXPECT_EQ(space.allocate(page, page), 0x1000U);
  space.free(0x1000, page);
  EXPECT_EQ(space.allocate(page, page), 0x2000U);
  EXPECT_EQ(space.allocate(page, page), 0x3000U);
  EXPECT_EQ(space.allocate(page, page), 0x4000U);
  EXPECT_EQ(space.allocate(page, page), 0x1000U);
  EXPECT_EQ(space.allocate(page, page), std::nullopt);
}

// Random takes and returns against a list of what is held: aligned, inside, disjoint, and all of it comes back as one piece a range.
TEST(IovaSpace, RandomUseAgainstAModel) {
  struct Held {
    uint64_t address;
    uint64_t bytes;
  };
  for (unsigned seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const uint64_t granule = seed % 4 == 0 ? 65536 : page;
    const IovaRange ranges[] = {{0, 0x3fffff}, {0x500000, 0x7fffff}, {0x10000000, 0x107fffff}};
    IovaSpace space(ranges, granule, 64);
    const uint64_t all = space.free_bytes();
    std::vector<Held> held;
    for (int step = 0; step < 3000; ++step) {
      if (held.empty() || random() % 5 < 3) {
        const uint64_t bytes = 1 + random() % (random() % 8 == 0 ? 0x200000 : 0x9000);
        const uint64_t alignment = uint64_t{1} << (random() % 21);
        const auto taken = space.allocate(bytes, alignment);
        if (!taken) continue;
        const uint64_t rounded = (bytes + granule - 1) / granule * granule;
        ASSERT_EQ(*taken % std::max(alignment, granule), 0U);
        ASSERT_GE(*taken, granule);
        ASSERT_TRUE(std::ranges::any_of(ranges, [&](const IovaRange& one) {
          return *taken >= one.first && *taken + rounded - 1 <= one.last;
        }));
        for (const Held& other : held)
          ASSERT_TRUE(*taken + rounded <= other.address || other.address + other.bytes <= *taken);
        held.push_back({*taken, rounded});
      } else {
        const size_t index = random() % held.size();
        space.free(held[index].address, held[index].bytes);
        held[index] = held.back();
        held.pop_back();
      }
      uint64_t sum = space.free_bytes();
      for (const Held& one : held) sum += one.bytes;
      ASSERT_EQ(sum, all);
    }
    for (const Held& one : held) space.free(one.address, one.bytes);
    EXPECT_EQ(space.free_bytes(), all);
    EXPECT_EQ(space.pieces(), 3U);
  }
}

}  // namespace
}  // namespace weft::os::vfio
