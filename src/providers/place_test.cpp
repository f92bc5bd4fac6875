// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Interfaces as places: loopback is there on every machine that is up.
#include "providers/place.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "os/interfaces.hpp"
#include "providers/tcp.hpp"
#include "providers/weft.hpp"

namespace weft::providers {
namespace {

os::SocketAddress address(const char* text) { return os::SocketAddress::from_text(text).value(); }

class Places : public ::testing::Test {
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

TEST_F(Places, EveryAddressOfEveryInterface) {
  size_t count = 0;
  for (const os::Interface& one : os::interfaces()) count += one.addresses.size();
  const auto all = interface_places(AF_UNSPEC, "FI_TCP_IFACE", {}, {});
  EXPECT_EQ(all.size(), count);
  for (const InterfacePlace& one : all) {
    EXPECT_TRUE(one.is_listed) << one.interface;
    EXPECT_EQ(one.leaves_host, one.interface != loopback_);
  }
  EXPECT_EQ(all.back().interface, loopback_);
  for (const InterfacePlace& one : interface_places(AF_INET, nullptr, {}, {}))
    EXPECT_EQ(one.source.family(), AF_INET);
}

TEST_F(Places, LoopbackIsANetworkOfOneAddress) {
  const auto found = interface_places(AF_UNSPEC, nullptr, address("127.0.0.1:7"), {});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].interface, loopback_);
  EXPECT_EQ(found[0].network, "127.0.0.1/32");
  EXPECT_EQ(found[0].source.port(), 7) << "that of the source that was given";
}

TEST_F(Places, ASourceThatNoInterfaceHas) {
  EXPECT_TRUE(interface_places(AF_UNSPEC, nullptr, address("198.51.100.254:7"), {}).empty());
}

TEST_F(Places, AnyAddressWithAPortIsForWhoNamesADomain) {
  const auto found = interface_places(AF_UNSPEC, nullptr, address("0.0.0.0:7"), {});
  ASSERT_FALSE(found.empty());
  for (const InterfacePlace& one : found) {
    EXPECT_FALSE(one.is_listed);
    EXPECT_EQ(one.source.family(), AF_INET);
    EXPECT_EQ(one.source.port(), 7);
  }
}

TEST_F(Places, TheRouteToADestinationIsFirst) {
  const auto found = interface_places(AF_UNSPEC, nullptr, {}, address("127.0.0.1:7"));
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].interface, loopback_);
  EXPECT_EQ(found[0].source.port(), 0);
  EXPECT_EQ(std::ranges::count_if(found, &InterfacePlace::is_listed), 1);
  for (const InterfacePlace& one : found) EXPECT_EQ(one.source.family(), AF_INET);
}

TEST_F(Places, TheSettingNamesOneInterface) {
  setenv("FI_TCP_IFACE", loopback_.c_str(), 1);
  for (const InterfacePlace& one : interface_places(AF_UNSPEC, "FI_TCP_IFACE", {}, {}))
    EXPECT_EQ(one.is_listed, one.interface == loopback_);
  setenv("FI_TCP_IFACE", "nope0", 1);
  for (const InterfacePlace& one : interface_places(AF_UNSPEC, "FI_TCP_IFACE", {}, {}))
    EXPECT_TRUE(one.is_listed) << "there is no such interface: all";
}

TEST_F(Places, InTheFormOfAProvider) {
  const auto all = Tcp::places(FI_SOCKADDR_IN, {}, {});
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back().source.size(), sizeof(sockaddr_in));
  EXPECT_EQ(Tcp::to_string(FI_SOCKADDR_IN, all.back().source.data()), "fi_sockaddr_in://127.0.0.1:0");
  const auto text = Tcp::places(FI_ADDR_STR, Tcp::form(FI_ADDR_STR, address("127.0.0.1:9")), {});
  ASSERT_EQ(text.size(), 1u);
  EXPECT_EQ(Tcp::to_string(FI_ADDR_STR, text[0].source.data()), "fi_sockaddr_in://127.0.0.1:9");
}

TEST_F(Places, WeftListsThemWhereOneIsAsked) {
  for (const Place& one : Weft::places(FI_ADDR_STR, {}, {})) EXPECT_FALSE(one.is_listed) << one.domain;
  setenv("FI_TCP_IFACE", loopback_.c_str(), 1);
  const auto places = Weft::places(FI_ADDR_STR, {}, {});
  const auto found = std::ranges::find_if(places, &Place::is_listed);
  ASSERT_NE(found, places.end());
  EXPECT_EQ(Weft::to_string(FI_ADDR_STR, found->source.data()), "weft://127.0.0.1:0");
}

}  // namespace
}  // namespace weft::providers
