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
    ASSERT_FALSE(one.addresses.empty()) << one.name;
    for (const InterfaceAddress& each : one.addresses) {
      EXPECT_EQ(each.address.port(), 0);
      EXPECT_GT(each.prefix_bits, 0U) << one.name;
    }
  }
}

TEST(Interfaces, NetworksAsText) {
  const auto text = [](const char* address, unsigned bits) {
    return network_text({SocketAddress::from_text(address).value(), bits});
  };
  EXPECT_EQ(text("192.0.2.77:0", 24), "192.0.2.0/24");
  EXPECT_EQ(text("192.0.2.77:0", 28), "192.0.2.64/28");
  EXPECT_EQ(text("192.0.2.77:0", 32), "192.0.2.77/32");
  EXPECT_EQ(text("192.0.2.77:0", 0), "0.0.0.0/0");
  EXPECT_EQ(text("[fd00:1:2:3:4::9]:0", 64), "fd00:1:2:3::/64");
  EXPECT_EQ(text("[::1]:0", 128), "::1/128");
}

}  // namespace
}  // namespace weft::os
