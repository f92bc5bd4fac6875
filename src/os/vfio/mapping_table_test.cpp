// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Users of mappings: a page can be reached while, and only while, somebody has it mapped.
#include "os/vfio/mapping_table.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace weft::os::vfio {
namespace {

constexpr size_t page = 4096;
constexpr nic::DmaAccess both{};
constexpr nic::DmaAccess reads{true, false};

TEST(MappingTable, SamePagesAreSharedOthersAreNot) {
  MappingTable table;
  EXPECT_EQ(table.share(0x10000, page, both), std::nullopt);
  table.add({0x1000, 0x10000, page, both});
  EXPECT_EQ(table.share(0x10000, page, both), 0x1000U);
  EXPECT_EQ(table.share(0x10000, page, reads), std::nullopt);
  EXPECT_EQ(table.share(0x10000, 2 * page, both), std::nullopt);
  EXPECT_EQ(table.size(), 1U);
  EXPECT_FALSE(table.drop(0x1abc));
  const auto last = table.drop(0x1fff);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->memory, 0x10000U);
  EXPECT_EQ(table.size(), 0U);
  EXPECT_EQ(table.share(0x10000, page, both), std::nullopt);
}

TEST(MappingTable, AddressesOfNoMappingAreRefused) {
  MappingTable table;
  table.add({0x4000, 0x10000, page, both});
  EXPECT_FALSE(table.drop(0));
  EXPECT_FALSE(table.drop(0x3fff));
  EXPECT_FALSE(table.drop(0x5000));
  EXPECT_FALSE(table.drop(UINT64_MAX));
  EXPECT_EQ(table.size(), 1U);
  EXPECT_TRUE(table.drop_any());
  EXPECT_FALSE(table.drop_any());
}

// Random regions over few pages: what the table has mapped of each page is what its living regions cover.
TEST(MappingTable, ReachablePagesAreThoseOfLivingRegions) {
  struct Region {
    uintptr_t first_page;
    size_t pages;
    uint64_t address;
  };
  for (unsigned seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    MappingTable table;
    std::vector<Region> living;
    std::map<uint64_t, DmaMapping> mapped;  // as the IOMMU has them
    uint64_t next = page;
    for (int step = 0; step < 2000; ++step) {
      if (living.empty() || random() % 2 == 0) {
        Region region{1 + random() % 6, 1 + random() % 3, 0};
        const uintptr_t memory = region.first_page * page;
        auto shared = table.share(memory, region.pages * page, both);
        if (!shared) {
          const DmaMapping fresh{next, memory, region.pages * page, both};
          next += region.pages * page;
          table.add(fresh);
          mapped.emplace(fresh.iova, fresh);
          shared = fresh.iova;
        }
        region.address = *shared + random() % page;
        living.push_back(region);
      } else {
        const size_t index = random() % living.size();
        if (const auto last = table.drop(living[index].address)) {
          ASSERT_EQ(mapped.erase(last->iova), 1U);
        }
        living.erase(living.begin() + long(index));
      }
      ASSERT_EQ(table.size(), mapped.size());
      std::vector<bool> wanted(16), reached(16);
      for (const Region& one : living)
        for (size_t i = 0; i < one.pages; ++i) wanted[one.first_page + i] = true;
      for (const auto& [iova, one] : mapped)
        for (size_t i = 0; i < one.bytes / page; ++i) reached[one.memory / page + i] = true;
      ASSERT_EQ(wanted, reached);
    }
  }
}

}  // namespace
}  // namespace weft::os::vfio
