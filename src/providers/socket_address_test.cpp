// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Names of hosts and services in the three formats of a provider over IP.
#include "providers/socket_address.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace weft::providers {
namespace {

std::string resolved(uint32_t format, const char* node, const char* service, bool source = false) {
  const auto bytes = SocketAddresses::resolve(format, node, service, source);
  if (!bytes) return "error: " + bytes.error().why;
  if (bytes->empty()) return "none";
  EXPECT_EQ(bytes->size(), SocketAddresses::addrlen(format));
  return SocketAddresses::to_string(format, bytes->data());
}

TEST(SocketAddresses, Resolve) {
  EXPECT_EQ(resolved(FI_SOCKADDR_IN, nullptr, nullptr, true), "none");
  EXPECT_EQ(resolved(FI_SOCKADDR_IN, "1.2.3.4", "5"), "fi_sockaddr_in://1.2.3.4:5");
  EXPECT_EQ(resolved(FI_SOCKADDR_IN, "1.2.3.4", nullptr), "fi_sockaddr_in://1.2.3.4:0");
  EXPECT_EQ(resolved(FI_SOCKADDR_IN, nullptr, "5"), "fi_sockaddr_in://127.0.0.1:5");
  EXPECT_EQ(resolved(FI_SOCKADDR_IN, nullptr, "5", true), "fi_sockaddr_in://0.0.0.0:5");
  EXPECT_EQ(resolved(FI_SOCKADDR_IN, "fi_sockaddr://1.2.3.4:5", nullptr), "fi_sockaddr_in://1.2.3.4:5");
  EXPECT_EQ(resolved(FI_SOCKADDR_IN, "localhost", "5"), "fi_sockaddr_in://127.0.0.1:5");
  EXPECT_EQ(resolved(FI_SOCKADDR_IN6, "::1", "5"), "fi_sockaddr_in6://[::1]:5");
  EXPECT_EQ(resolved(FI_SOCKADDR_IN6, nullptr, "5", true), "fi_sockaddr_in6://[::]:5");
  EXPECT_EQ(resolved(FI_ADDR_STR, "::1", "5"), "fi_sockaddr_in6://[::1]:5");
  EXPECT_EQ(resolved(FI_ADDR_STR, "1.2.3.4", "5"), "fi_sockaddr_in://1.2.3.4:5");
  EXPECT_EQ(resolved(FI_ADDR_STR, nullptr, "5"), "fi_sockaddr_in://127.0.0.1:5");
}

TEST(SocketAddresses, RefusalsSayWhy) {
  EXPECT_EQ(resolved(FI_SOCKADDR_IN, "::1", "5"), "error: ::1 is no IPv4 address");
  EXPECT_EQ(resolved(FI_SOCKADDR_IN6, "1.2.3.4", "5"), "error: 1.2.3.4 is no IPv6 address");
  EXPECT_EQ(resolved(FI_SOCKADDR_IN, "fi_shm://1:2:3", nullptr), "error: fi_shm://1:2:3 is no address of IP");
  EXPECT_EQ(resolved(FI_SOCKADDR_IN, "fi_sockaddr_in://1.2.3.4", nullptr),
            "error: fi_sockaddr_in://1.2.3.4 is no address with a port");
  EXPECT_EQ(resolved(FI_SOCKADDR_IN, "1.2.3.4", "65536"), "error: port 65536: above 65535");
  EXPECT_EQ(resolved(FI_SOCKADDR_IN, nullptr, "70000", true), "error: port 70000: above 65535");
  EXPECT_EQ(resolved(FI_SOCKADDR_IN, "1.2.3.4", "no-such-service").rfind("error: 1.2.3.4 port", 0), 0u);
}

TEST(SocketAddresses, OneForm) {
  auto bytes = *SocketAddresses::resolve(FI_SOCKADDR_IN, "1.2.3.4", "5", false);
  const auto plain = bytes;
  bytes[15] = std::byte{7};
  EXPECT_TRUE(SocketAddresses::normalise(FI_SOCKADDR_IN, bytes.data()));
  EXPECT_EQ(bytes, plain);
  EXPECT_FALSE(SocketAddresses::normalise(FI_SOCKADDR_IN6, std::vector<std::byte>(28).data()));
  std::vector<std::byte> text(SocketAddresses::addrlen(FI_ADDR_STR));
  std::memcpy(text.data(), "fi_sockaddr://1.2.3.4:5", 24);
  EXPECT_TRUE(SocketAddresses::normalise(FI_ADDR_STR, text.data()));
  EXPECT_EQ(text, *SocketAddresses::resolve(FI_ADDR_STR, "1.2.3.4", "5", false));
  std::memcpy(text.data(), "made-up", 8);
  EXPECT_FALSE(SocketAddresses::normalise(FI_ADDR_STR, text.data()));
}

}  // namespace
}  // namespace weft::providers
