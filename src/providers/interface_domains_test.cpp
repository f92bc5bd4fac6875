// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Interfaces as places: loopback is there on every machine that is up.
#include "providers/interface_domains.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "os/interfaces.hpp"
#include "providers/tcp.hpp"
#include "providers/weft.hpp"

namespace weft::providers {
namespace {

os::SocketAddress address(const char* text) { return os::SocketAddress::from_text(text).value(); }

class DomainAddresses : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv("FI_TCP_IFACE");
    const auto found = os::interfaces();
    if (found.empty() || !found.back().is_loopback || !found.back().ipv4.is_loopback())
      GTEST_SKIP() << "no loopback interface is up";
    loopback_ = found.back().name;
  }
  void TearDown() override { unsetenv("FI_TCP_IFACE"); }

  std::string loopback_;
};

TEST_F(DomainAddresses, EveryAddressOfEveryInterface) {
  size_t count = 0;
  for (const os::Interface& one : os::interfaces()) count += one.addresses.size();
  const auto all = domain_addresses(AF_UNSPEC, "FI_TCP_IFACE", {}, {});
  EXPECT_EQ(all.size(), count);
  for (const DomainAddress& one : all) {
    EXPECT_TRUE(one.is_listed) << one.interface;
    EXPECT_EQ(one.leaves_host, one.interface != loopback_);
  }
  EXPECT_EQ(all.back().interface, loopback_);
  for (const DomainAddress& one : domain_addresses(AF_INET, nullptr, {}, {}))
    EXPECT_EQ(one.source.family(), AF_INET);
}

TEST_F(DomainAddresses, LoopbackIsANetworkOfOneAddress) {
  const auto found = domain_addresses(AF_UNSPEC, nullptr, address("127.0.0.1:7"), {});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].interface, loopback_);
  EXPECT_EQ(found[0].network, "127.0.0.1/32");
  EXPECT_EQ(found[0].source.port(), 7) << "that of the source that was given";
}

TEST_F(DomainAddresses, ASourceThatNoInterfaceHas) {
  EXPECT_TRUE(domain_addresses(AF_UNSPEC, nullptr, address("198.51.100.254:7"), {}).empty());
}

TEST_F(DomainAddresses, AnyAddressWithAPortIsForWhoNamesADomain) {
  const auto found = domain_addresses(AF_UNSPEC, nullptr, address("0.0.0.0:7"), {});
  ASSERT_FALSE(found.empty());
  for (const DomainAddress& one : found) {
    EXPECT_FALSE(one.is_listed);
    EXPECT_EQ(one.source.family(), AF_INET);
    EXPECT_EQ(one.source.port(), 7);
  }
}

TEST_F(DomainAddresses, TheRouteToADestinationIsFirst) {
  const auto found = domain_addresses(AF_UNSPEC, nullptr, {}, address("127.0.0.1:7"));
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].interface, loopback_);
  EXPECT_EQ(found[0].source.port(), 0);
  EXPECT_EQ(std::ranges::count_if(found, &DomainAddress::is_listed), 1);
  for (const DomainAddress& one : found) EXPECT_EQ(one.source.family(), AF_INET);
}

TEST_F(DomainAddresses, TheSettingNamesOneInterface) {
  setenv("FI_TCP_IFACE", loopback_.c_str(), 1);
  for (const DomainAddress& one : domain_addresses(AF_UNSPEC, "FI_TCP_IFACE", {}, {}))
    EXPECT_EQ(one.is_listed, one.interface == loopback_);
  setenv("FI_TCP_IFACE", "nope0", 1);
  for (const DomainAddress& one : domain_addresses(AF_UNSPEC, "FI_TCP_IFACE", {}, {}))
    EXPECT_TRUE(one.is_listed) << "there is no such interface: all";
}

TEST_F(DomainAddresses, InTheFormOfAProvider) {
  const auto all = Tcp::interface_domains(FI_SOCKADDR_IN, {}, {});
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back().source.size(), sizeof(sockaddr_in));
  EXPECT_EQ(Tcp::to_string(FI_SOCKADDR_IN, all.back().source.data()), "fi_sockaddr_in://127.0.0.1:0");
  const auto text = Tcp::interface_domains(FI_ADDR_STR, Tcp::form(FI_ADDR_STR, address("127.0.0.1:9")), {});
  ASSERT_EQ(text.size(), 1u);
  EXPECT_EQ(Tcp::to_string(FI_ADDR_STR, text[0].source.data()), "fi_sockaddr_in://127.0.0.1:9");
}

TEST_F(DomainAddresses, WeftListsThemWhereOneIsAsked) {
  for (const InterfaceDomain& one : Weft::interface_domains(FI_ADDR_STR, {}, {}))
    EXPECT_FALSE(one.is_listed) << one.domain;
  setenv("FI_TCP_IFACE", loopback_.c_str(), 1);
  const auto interface_domains = Weft::interface_domains(FI_ADDR_STR, {}, {});
  const auto found = std::ranges::find_if(interface_domains, &InterfaceDomain::is_listed);
  ASSERT_NE(found, interface_domains.end());
  EXPECT_EQ(Weft::to_string(FI_ADDR_STR, found->source.data()), "weft://127.0.0.1:0");
}

}  // namespace
}  // namespace weft::providers
