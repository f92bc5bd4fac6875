// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Addresses of composite endpoints: one spelling each, 63 characters at most, nonsense refused.
#include "link/composite/address.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "os/host.hpp"

namespace weft::link::composite {
namespace {

constexpr LocalName some_local{0x123456789abc, 4194303, 77, 0xfedcba9876543210};

Names::Parts parts_of(const char* where, const LocalName& local) {
  const Address address{*os::SocketAddress::from_text(where), local};
  const std::string text = address.text();
  Names::Parts parts;
  EXPECT_TRUE(Names::split(std::as_bytes(std::span(text)), parts)) << text;
  return parts;
}

std::string joined(const Names::Parts& parts) {
  std::array<std::byte, Names::address_length> bytes{};
  EXPECT_TRUE(Names::join(parts, bytes));
  EXPECT_EQ(bytes.back(), std::byte{0});
  return reinterpret_cast<const char*>(bytes.data());
}

TEST(CompositeAddress, EveryFormGoesThereAndBack) {
  for (const char* where :
       {"10.1.2.3:40123", "255.255.255.255:65535", "[fd00::1]:7", "[::1]:65535",
        "[2001:db8:1111:2222:3333:4444:5555:6666]:65535", "[fe80::a%2]:40123",
        "[fe80::211:22ff:fe33:4455%2]:40123", "[fe80::211:22ff:fe33:4455%4294967295]:65535",
        "[fe80::211:22ff:fe33:4455]:40123"}) {
    for (const LocalName& local : {some_local, LocalName{}}) {
      const Address address{*os::SocketAddress::from_text(where), local};
      const std::string text = address.text();
      EXPECT_LT(text.size(), Address::text_bytes) << text;
      const auto back = Address::from_text(text);
      ASSERT_TRUE(back) << text;
      EXPECT_TRUE(back->where == address.where) << text;
      EXPECT_TRUE(back->local == local) << text;
      EXPECT_EQ(back->text(), text);
      EXPECT_EQ(joined(parts_of(where, local)), text);
    }
  }
}

TEST(CompositeAddress, IsReadableWhereItFits) {
  const Address four{*os::SocketAddress::from_text("10.1.2.3:40123"), {}};
  EXPECT_EQ(four.text(), "weft://10.1.2.3:40123");
  const Address six{*os::SocketAddress::from_text("[fd00::12]:40123"), some_local};
  EXPECT_TRUE(six.text().starts_with("weft://[fd00::12]:40123/")) << six.text();
}

// Earlier versions wrote no scope there.
TEST(CompositeAddress, AScopeThatIsNotStatedIsNone) {
  const auto bare = Address::from_text("weft://~_oAAAAAAAAACESL__jNEVZy7");
  ASSERT_TRUE(bare);
  EXPECT_TRUE(bare->where == *os::SocketAddress::from_text("[fe80::211:22ff:fe33:4455]:40123"));
  const auto scoped = Address::from_text("weft://~_oAAAAACAAACESL__jNEVZy7");
  ASSERT_TRUE(scoped);
  EXPECT_TRUE(scoped->where == *os::SocketAddress::from_text("[fe80::211:22ff:fe33:4455%2]:40123"));
}

TEST(CompositeAddress, HoldsTheNameOfTheSharedMemoryLink) {
  const Names::Parts parts = parts_of("10.1.2.3:40123", some_local);
  EXPECT_STREQ(reinterpret_cast<const char*>(parts.local.data()), "fi_shm://4194303:77:fedcba9876543210");
  EXPECT_EQ(parts.host, some_local.host);
}

TEST(CompositeAddress, NonsenseIsRefused) {
  const std::string good = Address{*os::SocketAddress::from_text("10.1.2.3:40123"), some_local}.text();
  for (const std::string& text : {std::string(),
                                  std::string("weft://"),
                                  std::string("weft:///"),
                                  std::string("fi_shm://1:2:3"),
                                  std::string("weft://10.1.2.3"),
                                  std::string("weft://10.1.2.3:70000"),
                                  good + "A",
                                  good.substr(0, good.size() - 1),
                                  good.substr(0, good.size() - 1) + "!",
                                  std::string("weft://10.1.2.3:1/"),
                                  std::string("weft://~"),
                                  std::string("weft://~AAAA"),
                                  std::string("weft://fi_sockaddr_in://10.1.2.3:1"),
                                  std::string("weft://10.1.2.3:1?x"),
                                  std::string("weft://[fe80:0:5::1]:1"),
                                  std::string("weft://[fe80:0:5::1%2]:1"),
                                  std::string("weft://[fe81::1%2]:1"),
                                  std::string("weft://[ff02::1%2]:1"),
                                  "weft://10.1.2.3:1/" + std::string(28, 'A'),
                                  std::string(63, 'x'),
                                  std::string(100, 'w')})
    EXPECT_FALSE(Address::from_text(text)) << text;
}

TEST(HostIdentity, IsOneForThisProcess) {
  EXPECT_NE(os::sharing_identity(), 0u);
  EXPECT_EQ(os::sharing_identity(), os::sharing_identity());
  EXPECT_LT(os::sharing_identity(), uint64_t{1} << 48);
}

}  // namespace
}  // namespace weft::link::composite
