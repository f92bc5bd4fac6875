// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of the addresses that are not tried again for a while.
#include "link/shm/refused_addresses.hpp"

#include <gtest/gtest.h>

namespace weft::link::shm {
namespace {

TEST(ShmRefusedAddresses, AnAddressIsRefusedForAWhile) {
  RefusedAddresses refused;
  EXPECT_FALSE(refused.has(7, 100));
  refused.add(7, 100);
  EXPECT_TRUE(refused.has(7, 100));
  EXPECT_FALSE(refused.has(8, 100));
  EXPECT_TRUE(refused.has(7, 99 + RefusedAddresses::refused_ns));
  EXPECT_FALSE(refused.has(7, 100 + RefusedAddresses::refused_ns));
}

TEST(ShmRefusedAddresses, TheOldestIsForgotten) {
  RefusedAddresses refused;
  for (uint64_t token = 1; token <= RefusedAddresses::count_max + 1; ++token) refused.add(token, 100);
  EXPECT_FALSE(refused.has(1, 100));
  EXPECT_TRUE(refused.has(2, 100));
  EXPECT_TRUE(refused.has(RefusedAddresses::count_max + 1, 100));
}

}  // namespace
}  // namespace weft::link::shm
