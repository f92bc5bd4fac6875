// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Capability chains as the kernel writes them, and such as it never should.
#include "os/vfio/capability_chain.hpp"

#include <gtest/gtest.h>
#include <linux/vfio.h>

#include <cstring>
#include <random>

namespace weft::os::vfio {
namespace {

using Bytes = std::vector<std::byte>;

void put(Bytes& to, size_t at, const void* from, size_t bytes) {
  if (to.size() < at + bytes) to.resize(at + bytes);
  std::memcpy(to.data() + at, from, bytes);
}

void header(Bytes& to, size_t at, uint16_t id, uint32_t next) {
  vfio_info_cap_header one{};
  one.id = id;
  one.version = 1;
  one.next = next;
  put(to, at, &one, sizeof one);
}

// DMA_AVAIL at 24, then IOVA_RANGE with two ranges at 40.
Bytes iommu_info(uint32_t ranges_claimed = 2) {
  Bytes bytes(24);
  header(bytes, 24, VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL, 40);
  const uint32_t avail[2] = {65535, 0};
  put(bytes, 32, avail, sizeof avail);
  header(bytes, 40, VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE, 0);
  const uint32_t count[2] = {ranges_claimed, 0};
  put(bytes, 48, count, sizeof count);
  const uint64_t ranges[4] = {0, 0xfedfffff, 0xfef00000, 0x7fffffffff};
  put(bytes, 56, ranges, sizeof ranges);
  return bytes;
}

TEST(CapabilityChain, IovaRanges) {
  const Bytes info = iommu_info();
  const auto found = capability(info, 24, VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE);
  ASSERT_EQ(found.size(), info.size() - 40);
  const auto ranges = iova_ranges(found);
  ASSERT_EQ(ranges.size(), 2U);
  EXPECT_EQ(ranges[1].first, 0xfef00000U);
  EXPECT_EQ(ranges[1].last, 0x7fffffffffU);
  EXPECT_EQ(available_mappings(capability(info, 24, VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL)), 65535U);
  EXPECT_EQ(available_mappings({}), std::nullopt);
  EXPECT_TRUE(capability(info, 24, VFIO_IOMMU_TYPE1_INFO_CAP_MIGRATION).empty());
  EXPECT_TRUE(capability(info, 0, VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL).empty());
}

TEST(CapabilityChain, CountsBeyondTheStructure) {
  const Bytes info = iommu_info(UINT32_MAX);
  EXPECT_EQ(iova_ranges(capability(info, 24, VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE)).size(), 2U);
}

TEST(CapabilityChain, CirclesAndOffsetsBeyondTheEnd) {
  Bytes info(16);
  header(info, 16, 9, 16);
  EXPECT_TRUE(capability(info, 16, 1).empty());
  header(info, 16, 9, 8);
  EXPECT_TRUE(capability(info, 16, 1).empty());
  header(info, 16, 9, 0xffffffff);
  EXPECT_TRUE(capability(info, 16, 1).empty());
  EXPECT_TRUE(capability(info, 20, 9).empty());  // only half a header
  EXPECT_TRUE(capability(info, 4000, 9).empty());
}

TEST(CapabilityChain, SparseAreasAreBounded) {
  Bytes cap;
  header(cap, 0, VFIO_REGION_INFO_CAP_SPARSE_MMAP, 0);
  const uint32_t count[2] = {5, 0};
  put(cap, 8, count, sizeof count);
  const uint64_t areas[10] = {0,      0x1000, 0x3000, 0x1000, 0x3000,
                              0x2000, 0x1800, 0x1000, 0x2000, UINT64_MAX & ~uint64_t{0xfff}};
  put(cap, 16, areas, sizeof areas);
  const auto found = mappable_areas(cap, 0x4000, 4096);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[1].offset, 0x3000U);
  EXPECT_EQ(found[1].bytes, 0x1000U);
  EXPECT_TRUE(mappable_areas(std::span(cap).first(12), 0x4000, 4096).empty());
}

TEST(CapabilityChain, RandomBytes) {
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    Bytes bytes(random() % 96);
    for (std::byte& one : bytes) one = std::byte(random() % 4 == 0 ? random() % 256 : random() % 64);
    const auto found = capability(bytes, random() % 64, uint16_t(random() % 4));
    ASSERT_LE(iova_ranges(found).size(), 6U);
    for (const MappableArea& area : mappable_areas(found, 0x10000, 4096))
      ASSERT_LE(area.offset + area.bytes, 0x10000U);
  }
}

}  // namespace
}  // namespace weft::os::vfio
