// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Addresses of a provider over packets of somebody else.
#include "providers/packets.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace weft::providers {
namespace {

struct Wire : TextAddresses {
  static constexpr size_t address_bytes_max = 64;
  static constexpr bool alters_packets = false;
  static constexpr bool leaves_machine = false;
  int open(Bytes) { return 0; }
  void close() noexcept {}
  Bytes address() noexcept { return {}; }
  size_t packet_bytes_max(Bytes) noexcept { return 512; }
  int send(Bytes, const iovec*, size_t) noexcept { return 0; }
  int receive(PacketSink&) noexcept { return 0; }
};
constexpr PacketsTable table = table_of<Wire>("wire");

struct PacketsProviderTest : testing::Test {
  PacketsProviderTest() { PacketsProvider::use(table); }
};
using Provider = PacketsProvider;

std::string text_of(const Result<std::vector<std::byte>>& bytes) {
  return bytes && !bytes->empty() ? reinterpret_cast<const char*>(bytes->data()) : "";
}
std::string resolved(const char* node, const char* service, bool source = false) {
  return text_of(Provider::resolve(FI_ADDR_STR, node, service, source));
}

TEST_F(PacketsProviderTest, NamesOfPeople) {
  EXPECT_EQ(resolved(nullptr, nullptr, true), "");
  EXPECT_EQ(resolved("fi_wire://there", nullptr), "fi_wire://there");
  EXPECT_EQ(resolved("there", nullptr), "fi_wire://there");
  EXPECT_EQ(resolved("there", nullptr, true), "");  // some address of this machine
  EXPECT_EQ(resolved("127.0.0.1", "5000"), "fi_wire://5000");
  EXPECT_EQ(resolved(nullptr, "5000", true), "fi_wire://5000");
}

TEST_F(PacketsProviderTest, WhatIsNoAddressIsNamed) {
  const auto other = Provider::resolve(FI_ADDR_STR, "shm://x", nullptr, false);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().why, "shm://x is no address of wire");
  const auto spaces = Provider::resolve(FI_ADDR_STR, nullptr, "two words", false);
  ASSERT_FALSE(spaces);
  EXPECT_EQ(spaces.error().why, "two words: no address of wire");
  // Its text and the name before it need 63 characters at most.
  const std::string longest(53, 'x');
  EXPECT_EQ(resolved(nullptr, longest.c_str()), "fi_wire://" + longest);
  EXPECT_EQ(resolved(nullptr, (longest + "x").c_str()), "");
}

TEST_F(PacketsProviderTest, BytesAndText) {
  auto bytes = Provider::resolve(FI_ADDR_STR, nullptr, "here", false);
  ASSERT_TRUE(bytes);
  EXPECT_EQ(bytes->size(), Provider::addrlen(FI_ADDR_STR));
  EXPECT_EQ(Provider::to_string(FI_ADDR_STR, bytes->data()), "fi_wire://here");
  EXPECT_TRUE(Provider::normalise(FI_ADDR_STR, bytes->data()));
  std::memcpy(bytes->data(), "fi_rope", 7);
  EXPECT_EQ(Provider::to_string(FI_ADDR_STR, bytes->data()), "");
  EXPECT_FALSE(Provider::normalise(FI_ADDR_STR, bytes->data()));
}

TEST_F(PacketsProviderTest, ReachIsWhatTheTypeSays) {
  EXPECT_EQ(Provider::kinds[0].reach, uint64_t{FI_LOCAL_COMM});
  EXPECT_EQ(Provider::version, uint32_t{FI_VERSION(1, 0)});
  EXPECT_TRUE(Provider::available(FI_ADDR_STR));
}

}  // namespace
}  // namespace weft::providers
