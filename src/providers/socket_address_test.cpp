// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Names of hosts and services in the three formats of a provider over IP.
#include "providers/socket_address.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "os/host.hpp"

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

// A source that two interfaces have is refused; the names of the interfaces tell them apart.
TEST(SocketAddresses, ALinkLocalSourceNamesItsInterface) {
  bool made = false;
  std::thread([&made] {
    if (::unshare(CLONE_NEWNET) != 0) return;
    // NOLINTNEXTLINE(cert-env33-c, concurrency-mt-unsafe)
    made = std::system(
               "ip link add ll1 index 11 type veth peer name ll2 index 12 2>/dev/null && "
               "ip link set ll1 addrgenmode none up && ip link set ll2 addrgenmode none up && "
               "ip addr add fe80::1/64 dev ll1 nodad && ip addr add fe80::1/64 dev ll2 nodad && "
               "ip addr add fe80::2/64 dev ll2 nodad") == 0;
    if (!made) return;
    const std::string refusal = resolved(FI_SOCKADDR_IN6, "fe80::1", "5", true);
    EXPECT_TRUE(refusal.starts_with("error: ")) << refusal;
    EXPECT_NE(refusal.find("%ll1 or %ll2"), std::string::npos) << refusal;
    EXPECT_EQ(resolved(FI_SOCKADDR_IN6, "fe80::1%ll2", "5", true), "fi_sockaddr_in6://[fe80::1%12]:5");
    EXPECT_EQ(resolved(FI_ADDR_STR, "fi_sockaddr_in6://[fe80::1%ll1]:5", nullptr, true),
              "fi_sockaddr_in6://[fe80::1%11]:5");
    EXPECT_EQ(resolved(FI_SOCKADDR_IN6, "fe80::2", "5", true), "fi_sockaddr_in6://[fe80::2%12]:5");
    EXPECT_EQ(resolved(FI_SOCKADDR_IN6, "fe80::1", "5"), "fi_sockaddr_in6://[fe80::1]:5");
    EXPECT_TRUE(os::is_this_host("fe80::2%ll2"));
    EXPECT_FALSE(os::is_this_host("fe80::2%ll1"));
  }).join();
  if (!made) GTEST_SKIP() << "no network namespaces here";
}

}  // namespace
}  // namespace weft::providers
