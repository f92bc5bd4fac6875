// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What `weft nic` says of cards, and what it makes of the kernel's tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <vector>

#include "nic_card.hpp"
#include "nic_network.hpp"

namespace weft::tool::cards {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Routes, V4) {
  const std::string table =
      "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
      "eth0\t00000000\t010000C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
      "eth0\t000000C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
      "eth1\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n"
      "eth1\tbroken\n";
  std::vector<std::string> gateways;
  EXPECT_THAT(routes4(table, "eth0", gateways), ElementsAre("0.0.0.0/0", "192.0.0.0/24"));
  EXPECT_THAT(gateways, ElementsAre("192.0.0.1"));
  EXPECT_THAT(routes4(table, "eth1", gateways), ElementsAre("10.0.0.0/8"));
  EXPECT_THAT(routes4(table, "eth", gateways), ElementsAre());
}

TEST(Routes, V6LeavesOutWhatEveryInterfaceHas) {
  const std::string none(32, '0');
  const auto line = [&](const std::string& to, const std::string& prefix, const std::string& by) {
    return to + " " + prefix + " " + none + " 00 " + by + " 00000100 00000001 00000000 00000001     eth0\n";
  };
  const std::string table = line("fe800000000000000000000000000000", "40", none) +
                            line("ff000000000000000000000000000000", "08", none) +
                            line("fd140000000000000000000000000000", "40", none) +
                            line(none, "00", "fd140000000000000000000000000001") + "fd14 40\n";
  std::vector<std::string> gateways;
  EXPECT_THAT(routes6(table, "eth0", gateways), ElementsAre("fd14::/64", "::/0"));
  EXPECT_THAT(gateways, ElementsAre("fd14::1"));
}

TEST(Interface, WhatTheKernelHasPutOnIt) {
  std::string root = testing::TempDir() + "weft_nic_XXXXXX";
  ASSERT_NE(::mkdtemp(root.data()), nullptr);
  const std::filesystem::path folder = root + "/sys/class/net/eth1";
  std::filesystem::create_directories(folder);
  for (const char* name : {"upper_br0", "upper_eth1.7", "lower_eth2", "master"})
    std::filesystem::create_symlink("../br0", folder / name);
  EXPECT_THAT(uppers_of("eth1", root), ElementsAre("br0", "eth1.7"));
  EXPECT_THAT(uppers_of("eth2", root), ElementsAre());
  std::filesystem::remove_all(root);
}

Card some_card() {
  Card card;
  card.function.address = "0000:00:04.0";
  card.function.vendor = 0x8086;
  card.function.device = 0x10d3;
  card.function.class_code = 0x020000;
  card.function.driver = "e1000e";
  card.function.interfaces = {"eth1"};
  InterfaceState eth1;
  eth1.name = "eth1";
  eth1.mac = "52:54:00:12:34:56";
  eth1.mtu = 1500;
  card.interfaces.push_back(eth1);
  card.obstacles.push_back(
      {pci::Need::driver, "0000:00:04.0 is bound to the kernel's driver e1000e", "weft nic bind"});
  return card;
}

TEST(Card, IsLeftToTheKernelWithAddressesRoutesOrOutOfSight) {
  Card card = some_card();
  EXPECT_THAT(card.reasons_to_leave(), ElementsAre());
  EXPECT_THAT(list_text({card}), HasSubstr("can be bound"));
  card.interfaces[0].addresses = {"10.0.0.5/24"};
  card.interfaces[0].routes = {"10.0.0.0/24"};
  EXPECT_THAT(card.reasons_to_leave(),
              ElementsAre("eth1 has the address 10.0.0.5/24", "the route 10.0.0.0/24 goes through eth1"));
  EXPECT_THAT(list_text({card}), HasSubstr("the kernel's network uses it"));
  EXPECT_THAT(info_text(card), HasSubstr("--force twice"));
  card.interfaces[0].addresses.clear();
  card.interfaces[0].routes.clear();
  card.interfaces[0].uppers = {"br0", "eth1.7"};
  EXPECT_THAT(card.reasons_to_leave(), ElementsAre("eth1 carries br0, eth1.7"));
  card.interfaces.clear();
  EXPECT_THAT(card.reasons_to_leave(), ElementsAre(HasSubstr("another network namespace")));
  card.function.driver = "vfio-pci";
  EXPECT_THAT(card.reasons_to_leave(), ElementsAre());
}

TEST(Card, WhatIsMissingIsExplainedOnceForTheMachine) {
  Card card = some_card();
  card.obstacles.insert(card.obstacles.begin(),
                        {pci::Need::iommu, "this machine has no IOMMU", "switch it on"});
  const std::string text = list_text({card, card});
  EXPECT_THAT(text, HasSubstr("needs an IOMMU"));
  EXPECT_EQ(text.find("switch it on"), text.rfind("switch it on"));
  EXPECT_THAT(info_text(card), HasSubstr("1. this machine has no IOMMU\n     switch it on\n  2. "));
  EXPECT_THAT(list_text({}), HasSubstr("no network card"));
}

TEST(Card, AsJson) {
  Card card = some_card();
  card.function.group = 3;
  card.before = nic_binding::Binding{"e1000e", {card.interfaces[0]}};
  const auto json = to_json(card);
  EXPECT_EQ(json["vendor"], "8086");
  EXPECT_EQ(json["iommu_group"], 3);
  EXPECT_EQ(json["weft_driver"], "e1000e");
  EXPECT_EQ(json["interfaces"][0]["mac"], "52:54:00:12:34:56");
  EXPECT_EQ(json["before"]["driver"], "e1000e");
  EXPECT_EQ(json["needs"].size(), 1U);
}

TEST(Card, Drivers) {
  EXPECT_EQ(driver_for(0x1af4, 0x1041), "virtio_net");
  EXPECT_EQ(driver_for(0x1af4, 0x1000), "virtio_net");
  EXPECT_EQ(driver_for(0x8086, 0x10f6), "e1000e");
  EXPECT_EQ(driver_for(0x15b3, 0x1017), "");
}

}  // namespace
}  // namespace weft::tool::cards
