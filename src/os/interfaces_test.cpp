// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What every machine has: a loopback interface, last.
#include "os/interfaces.hpp"

#include <gtest/gtest.h>

namespace weft::os {
namespace {

TEST(Interfaces, LoopbackIsLast) {
  const std::vector<Interface> found = interfaces();
  ASSERT_FALSE(found.empty());
  const Interface& last = found.back();
  EXPECT_TRUE(last.is_loopback);
  EXPECT_TRUE(last.ipv4.is_loopback() || last.ipv6.is_loopback());
  EXPECT_GE(last.mtu_bytes, 1280U);
  EXPECT_NE(last.index, 0U);
  for (const Interface& one : found) {
    EXPECT_FALSE(one.name.empty());
    EXPECT_TRUE(one.ipv4 || one.ipv6) << one.name;
  }
}

}  // namespace
}  // namespace weft::os
