// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// IP addresses: one form, text there and back, which of ours others can reach.
#include "os/socket_address.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>

#include <cstring>
#include <string>

namespace weft::os {
namespace {

TEST(SocketAddress, TextThereAndBack) {
  for (const char* text :
       {"fi_sockaddr_in://1.2.3.4:5", "fi_sockaddr_in://127.0.0.1:65535", "fi_sockaddr_in6://[::1]:5",
        "fi_sockaddr_in6://[fe80::1%2]:7471", "fi_sockaddr_in6://[2001:db8:1:2:3:4:5:6]:1"}) {
    const auto address = SocketAddress::from_text(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(address->text(), text);
  }
  EXPECT_EQ(SocketAddress::from_text("1.2.3.4:5"), SocketAddress::from_text("fi_sockaddr://1.2.3.4:5"));
  EXPECT_EQ(SocketAddress::from_text("[::1]:5"), SocketAddress::from_text("fi_sockaddr://[::1]:5?qos=3"));
  EXPECT_EQ(SocketAddress::from_text("[::1]:5")->family(), AF_INET6);
  EXPECT_EQ(SocketAddress::from_text("1.2.3.4:5")->port(), 5);
}

TEST(SocketAddress, TheLongestTextFits) {
  const auto address = SocketAddress::from_text("[1111:2222:3333:4444:5555:6666:7777:8888]:65535");
  ASSERT_TRUE(address);
  EXPECT_LT(address->text().size(), SocketAddress::text_bytes);
  EXPECT_EQ(SocketAddress::from_text(address->text()), address);
  for (const char* scope : {"2", "12", "123456", "4294967295"}) {
    const std::string text = "[ff02:2222:3333:4444:5555:6666:7777:8888%" + std::string(scope) + "]:65535";
    const auto group = SocketAddress::from_text(text);
    ASSERT_TRUE(group) << text;
    EXPECT_LT(group->text().size(), SocketAddress::text_bytes) << text;
    EXPECT_EQ(SocketAddress::from_text(group->text()), group) << group->text();
  }
}

TEST(SocketAddress, AScopeIsANumberOrAnInterface) {
  const unsigned loopback = ::if_nametoindex("lo");
  if (loopback == 0) GTEST_SKIP() << "no interface is named lo";
  EXPECT_EQ(SocketAddress::from_text("[fe80::1%lo]:5"),
            SocketAddress::from_text("[fe80::1%" + std::to_string(loopback) + "]:5"));
  for (const char* text :
       {"[fe80::1%no-such-if]:5", "[fe80::1%a-name-that-no-interface-can-have]:5", "[::1%lo]:5"})
    EXPECT_FALSE(SocketAddress::from_text(text)) << text;
}

TEST(SocketAddress, Nonsense) {
  for (const char* text :
       {"", ":", "1.2.3.4", "1.2.3.4:", "1.2.3.4:65536", "1.2.3:4", "::1:5", "[::1]", "[::1%1]:5",
        "[1.2.3.4]:5", "fi_sockaddr_in://[::1]:5", "fi_sockaddr_in6://1.2.3.4:5", "fi_shm://1:2:3",
        "[fe80::1%]:5", "[fe80::1%x]:5", "1.2.3.4:-1", "1.2.3.4: 5"})
    EXPECT_FALSE(SocketAddress::from_text(text)) << text;
  const sockaddr_in in{.sin_family = AF_INET, .sin_port = 1, .sin_addr = {}, .sin_zero = {}};
  EXPECT_FALSE(SocketAddress::from(&in, sizeof(in) - 1));
  EXPECT_FALSE(SocketAddress::from(&in, 1));
  const sockaddr_in unix_family{.sin_family = AF_UNIX, .sin_port = 1, .sin_addr = {}, .sin_zero = {}};
  EXPECT_FALSE(SocketAddress::from(&unix_family, sizeof(unix_family)));
}

TEST(SocketAddress, OneFormForOneAddress) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(5);
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::memset(in.sin_zero, 0x55, sizeof(in.sin_zero));
  EXPECT_EQ(SocketAddress::from(&in, sizeof(in)), SocketAddress::from_text("127.0.0.1:5"));
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  in6.sin6_port = htons(5);
  in6.sin6_addr = in6addr_loopback;
  in6.sin6_flowinfo = 7;
  in6.sin6_scope_id = 9;
  EXPECT_EQ(SocketAddress::from(&in6, sizeof(in6)), SocketAddress::from_text("[::1]:5"));
}

TEST(SocketAddress, WhatOthersCanReach) {
  const SocketAddress out = outgoing_address(AF_INET);
  ASSERT_EQ(out.family(), AF_INET);
  EXPECT_FALSE(out.is_any());
  EXPECT_EQ(out.port(), 0);
  const SocketAddress near = source_toward(SocketAddress::loopback(AF_INET, 9));
  EXPECT_TRUE(near.is_loopback());
  EXPECT_TRUE(SocketAddress::any(AF_INET, 3).is_any());
  EXPECT_EQ(SocketAddress::any(AF_INET6, 3).port(), 3);
}

}  // namespace
}  // namespace weft::os
