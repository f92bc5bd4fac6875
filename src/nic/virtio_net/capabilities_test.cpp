// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The capability list of configuration space: what the parser takes, and what it leaves.
#include "nic/virtio_net/capabilities.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "nic/virtio_net/spec.hpp"

namespace weft::nic::virtio_net {
namespace {

struct Space : testing::Test {
  Space() {
    bytes[0x06] = std::byte{1 << 4};
    add({.type = capability::common, .bar = 4, .offset = 0x100, .bytes = 0x38});
    add({.type = capability::notify, .bar = 2, .offset = 0x202, .bytes = 16, .multiplier = 4});
    add({.type = capability::device, .bar = 0, .offset = 0x300, .bytes = 12});
  }
  struct Entry {
    uint8_t type = 0;
    uint8_t bar = 0;
    uint32_t offset = 0;
    uint32_t bytes = 0;
    uint32_t multiplier = 0;
  };
  // Appends, or writes over the capability at `at`.
  size_t add(const Entry& entry) {
    const size_t at = free;
    bytes[last ? last + 1 : 0x34] = static_cast<std::byte>(at);
    free += 20;
    last = at;
    put(at, entry);
    return at;
  }
  void put(size_t at, const Entry& entry) {
    bytes[at] = std::byte{capability::vendor_specific};
    bytes[at + capability::bytes] = std::byte{20};
    bytes[at + capability::type] = std::byte{entry.type};
    bytes[at + capability::bar] = std::byte{entry.bar};
    std::memcpy(&bytes[at + capability::offset], &entry.offset, 4);
    std::memcpy(&bytes[at + capability::length], &entry.bytes, 4);
    std::memcpy(&bytes[at + capability::notify_multiplier], &entry.multiplier, 4);
  }
  bool is_found() const { return static_cast<bool>(find_regions(bytes)); }

  static constexpr size_t first = 64;  // common, notify, device
  static constexpr size_t second = 84;
  static constexpr size_t third = 104;
  std::array<std::byte, pci_config_bytes> bytes{};
  size_t free = first;
  size_t last = 0;
};

TEST_F(Space, HasTheRegions) {
  auto found = find_regions(bytes);
  ASSERT_TRUE(found) << found.error().why;
  EXPECT_EQ(found->common.bar, 4u);
  EXPECT_EQ(found->common.offset, 0x100u);
  EXPECT_EQ(found->common.bytes, 0x38u);
  EXPECT_EQ(found->notify.bar, 2u);
  EXPECT_EQ(found->notify.offset, 0x202u);
  EXPECT_EQ(found->notify_multiplier, 4u);
  EXPECT_EQ(found->device.bytes, 12u);
}

TEST_F(Space, FirstOfATypeCounts) {
  add({.type = capability::common, .bar = 1, .offset = 0, .bytes = 0x38});
  EXPECT_EQ(find_regions(bytes)->common.bar, 4u);
  put(first, {.type = capability::common, .bar = 6, .offset = 0, .bytes = 0x38});  // no BAR: not usable
  EXPECT_EQ(find_regions(bytes)->common.bar, 1u);
}

TEST_F(Space, OthersArePassedOver) {
  put(free, {.type = capability::common, .bar = 0, .offset = 0, .bytes = 0x38});
  bytes[free] = std::byte{0x11};  // MSI-X
  bytes[free + 1] = std::byte{first};
  bytes[0x34] = static_cast<std::byte>(free);
  EXPECT_EQ(find_regions(bytes)->common.bar, 4u);
}

TEST_F(Space, ACircleEnds) {
  bytes[third + 1] = std::byte{first};
  EXPECT_TRUE(is_found());
  bytes[first + 1] = std::byte{first};
  auto found = find_regions(bytes);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ENODEV);
}

TEST_F(Space, LowBitsOfPointersAreReserved) {
  bytes[0x34] |= std::byte{3};
  bytes[first + 1] |= std::byte{2};
  EXPECT_TRUE(is_found());
}

TEST_F(Space, WithoutAListThereIsNothing) {
  bytes[0x06] = {};
  EXPECT_FALSE(is_found());
  bytes.fill(std::byte{0xff});
  EXPECT_FALSE(is_found());
  bytes.fill({});
  EXPECT_FALSE(is_found());
}

TEST_F(Space, WhatCannotBeIsNotUsable) {
  const auto with = [&](size_t at, const Entry& entry) {
    const auto before = bytes;
    put(at, entry);
    const bool found = is_found();
    bytes = before;
    return found;
  };
  EXPECT_FALSE(with(first, {.type = capability::common, .bar = 0, .offset = 2, .bytes = 0x38}));
  EXPECT_FALSE(with(first, {.type = capability::common, .bar = 0, .offset = 0, .bytes = 0x37}));
  EXPECT_FALSE(with(first, {.type = capability::common, .bar = 0, .offset = 0xfffffffc, .bytes = 0x38}));
  EXPECT_FALSE(
      with(second, {.type = capability::notify, .bar = 0, .offset = 1, .bytes = 16, .multiplier = 4}));
  EXPECT_FALSE(
      with(second, {.type = capability::notify, .bar = 0, .offset = 0, .bytes = 1, .multiplier = 4}));
  EXPECT_FALSE(
      with(second, {.type = capability::notify, .bar = 0, .offset = 0, .bytes = 16, .multiplier = 3}));
  EXPECT_FALSE(
      with(second, {.type = capability::notify, .bar = 0, .offset = 0, .bytes = 16, .multiplier = 6}));
  EXPECT_TRUE(
      with(second, {.type = capability::notify, .bar = 0, .offset = 0, .bytes = 16, .multiplier = 0}));
  EXPECT_FALSE(with(third, {.type = capability::device, .bar = 0, .offset = 0, .bytes = 5}));
  bytes[second + capability::bytes] = std::byte{19};
  EXPECT_FALSE(is_found());
}

TEST_F(Space, ACapabilityEndsWithTheSpace) {
  const size_t at = pci_config_bytes - capability::bytes_min;
  std::memcpy(&bytes[at], &bytes[first], capability::bytes_min);
  bytes[at + 1] = std::byte{second};
  bytes[0x34] = static_cast<std::byte>(at);
  bytes[at + capability::bytes] = std::byte{capability::bytes_min};
  EXPECT_TRUE(is_found());
  bytes[at + capability::bytes] = std::byte{capability::bytes_min + 1};
  EXPECT_FALSE(is_found());
  bytes[0x34] = static_cast<std::byte>(at + 4);
  bytes[at + 4] = std::byte{capability::vendor_specific};
  EXPECT_FALSE(is_found());
}

}  // namespace
}  // namespace weft::nic::virtio_net
