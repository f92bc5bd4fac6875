// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// weft/pci.hpp and weft/nic_binding.hpp over trees that look like /sys.
#include <weft/pci.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <random>
#include <string>
#include <vector>

#include <weft/nic_binding.hpp>

#include "os/vfio/device.hpp"
#include "os/vfio/fake_tree.hpp"

namespace weft::os::vfio {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* nic = "0000:00:04.0";
constexpr const char* mate = "0000:00:04.1";

std::vector<pci::Need> needs(const FakeTree& tree, const std::string& address = nic) {
  std::vector<pci::Need> all;
  for (const pci::Obstacle& one : pci::obstacles(*pci::function_at(address, tree.root()), tree.root()))
    all.push_back(one.need);
  return all;
}

TEST(Pci, Addresses) {
  EXPECT_EQ(pci::address_of("0000:00:04.0"), "0000:00:04.0");
  EXPECT_EQ(pci::address_of("3B:1f.7"), "0000:3b:1f.7");
  for (const char* wrong : {"", "04.0", "0000:00:04", "0000:00:04.8", "0000:00:04.0 ", "0000:00:0g.0",
                            "../../../../x", "0000/00:04.0", "00000:00:04.0"})
    EXPECT_EQ(pci::address_of(wrong), std::nullopt) << wrong;
}

TEST(Pci, WhatAFunctionIs) {
  const FakeTree tree;
  tree.function(nic, "0x8086", "0x10d3", "0x020000", "e1000e", 3);
  tree.folder("/sys/bus/pci/devices/0000:00:04.0/net/eth1");
  tree.function("0000:00:05.0", "0x1af4", "0x1041", "0x020000", "virtio-pci", -1);
  tree.folder("/sys/bus/pci/devices/0000:00:05.0/virtio2/net/eth0");
  tree.function("0000:00:00.0", "0x8086", "0x29c0", "0x060000", "", 0);
  const auto all = pci::functions(tree.root());
  ASSERT_EQ(all.size(), 3U);
  EXPECT_FALSE(all[0].is_network());
  EXPECT_EQ(all[0].driver, "");
  EXPECT_TRUE(all[1].is_network());
  EXPECT_EQ(all[1].vendor, 0x8086);
  EXPECT_EQ(all[1].device, 0x10d3);
  EXPECT_EQ(all[1].driver, "e1000e");
  EXPECT_EQ(all[1].override_driver, "");
  EXPECT_EQ(all[1].group, 3U);
  EXPECT_THAT(all[1].interfaces, ElementsAre("eth1"));
  EXPECT_EQ(all[2].group, std::nullopt);
  EXPECT_THAT(all[2].interfaces, ElementsAre("eth0"));
  EXPECT_FALSE(pci::function_at("0000:00:06.0", tree.root()));
  EXPECT_FALSE(pci::function_at("../devices/0000:00:04.0", tree.root()));
}

TEST(Pci, StepByStep) {
  const FakeTree tree;
  tree.function(nic, "0x8086", "0x10d3", "0x020000", "e1000e", -1);
  using enum pci::Need;
  EXPECT_THAT(needs(tree), ElementsAre(iommu, modules, driver));
  tree.folder("/sys/class/iommu/dmar0");
  EXPECT_THAT(needs(tree), ElementsAre(group, modules, driver));
  tree.function(nic, "0x8086", "0x10d3", "0x020000", "e1000e", 3);
  tree.vfio(3);
  tree.remove("/sys/module/vfio_iommu_type1");
  EXPECT_THAT(needs(tree), ElementsAre(modules, driver));
  tree.vfio(3);
  EXPECT_THAT(needs(tree), ElementsAre(driver));
  tree.bind(nic, "vfio-pci");
  EXPECT_THAT(needs(tree), ElementsAre());
  tree.remove("/dev/vfio/3");
  EXPECT_THAT(needs(tree), ElementsAre(character_device));
  tree.file("/sys/bus/pci/devices/0000:00:04.0/iommu_group/name", "vfio-noiommu");
  EXPECT_THAT(needs(tree), ElementsAre(isolation, character_device));
}

TEST(Pci, WhoBlocksAGroup) {
  const FakeTree tree;
  tree.vfio(3);
  tree.function(nic, "0x8086", "0x10d3", "0x020000", "vfio-pci", 3);
  tree.function(mate, "0x8086", "0x10d3", "0x020000", "e1000e", 3);
  tree.function("0000:00:1c.0", "0x8086", "0x3420", "0x060400", "pcieport", 3);
  tree.function("0000:00:1d.0", "0x8086", "0x1111", "0x040300", "snd_hda_intel", 4);
  EXPECT_THAT(pci::group_members(3, tree.root()), ElementsAre(nic, mate, "0000:00:1c.0"));
  const auto all = pci::obstacles(*pci::function_at(nic, tree.root()), tree.root());
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].need, pci::Need::group_mates);
  EXPECT_THAT(all[0].what, HasSubstr("0000:00:04.1 in it is bound to e1000e"));
  for (const char* harmless : {"", "vfio-pci", "pci-stub", "mlx5_vfio_pci"}) {
    tree.bind(mate, harmless);
    EXPECT_THAT(needs(tree), ElementsAre()) << harmless;
  }
}

TEST(Pci, HoldersOfAGroup) {
  const FakeTree tree;
  tree.function(nic, "0x8086", "0x10d3", "0x020000", "vfio-pci", 3);
  tree.file("/proc/77/comm", "fi_pingpong");
  tree.link("/proc/77/fd/4", "/dev/vfio/vfio");
  tree.link("/proc/77/fd/5", "/dev/vfio/3");
  tree.file("/proc/78/comm", "other");
  tree.link("/proc/78/fd/5", "/dev/vfio/31");
  tree.file("/proc/self/comm", "nobody");
  const auto holders = pci::group_holders(*pci::function_at(nic, tree.root()), tree.root());
  ASSERT_EQ(holders.size(), 1U);
  EXPECT_EQ(holders[0].pid, 77U);
  EXPECT_EQ(holders[0].name, "fi_pingpong");
}

TEST(Refusals, OpenSaysWhatIsInTheWay) {
  const FakeTree tree;
  tree.function(nic, "0x8086", "0x10d3", "0x020000", "e1000e", -1);
  const auto why = [&](const char* address) {
    auto device = Device::open(address, {.root = tree.root()});
    EXPECT_FALSE(device);
    return device ? Error{0, ""} : device.error();
  };
  EXPECT_EQ(why("eth0").code, EINVAL);
  EXPECT_EQ(why("00:05.0").code, ENODEV);
  EXPECT_EQ(why("00:04.0").code, ENOTSUP);
  EXPECT_THAT(why("00:04.0").why, HasSubstr("no IOMMU"));
  EXPECT_THAT(why("00:04.0").why, HasSubstr("2 more: weft nic info 0000:00:04.0"));
  tree.function(nic, "0x8086", "0x10d3", "0x020000", "e1000e", 3);
  tree.folder("/sys/class/iommu/dmar0");
  EXPECT_EQ(why("00:04.0").code, ENXIO);
  EXPECT_THAT(why("00:04.0").why, HasSubstr("has not loaded vfio vfio_iommu_type1 vfio-pci"));
  tree.vfio(3);
  EXPECT_EQ(why("00:04.0").code, EBUSY);
  EXPECT_THAT(why("00:04.0").why,
              HasSubstr("bound to the kernel's driver e1000e; weft nic bind 0000:00:04.0"));
  tree.bind(nic, "");
  EXPECT_THAT(why("00:04.0").why, HasSubstr("bound to no driver"));
}

TEST(Binding, ThereAndBack) {
  nic_binding::Binding binding{"e1000e", {}};
  binding.interfaces.push_back(
      {"eth1", "52:54:00:12:34:56", 9000, true, {"10.0.0.5/24", "fd00::5/64"}, {"10.0.0.1"}});
  binding.interfaces.push_back({"eth2", "", 1500, false, {}, {}});
  const FakeTree tree;
  tree.file("/run/weft/nic/0000:00:04.0", nic_binding::to_text(binding));
  const auto again = nic_binding::read(nic, tree.root());
  ASSERT_TRUE(again);
  EXPECT_EQ(nic_binding::to_text(*again), nic_binding::to_text(binding));
  EXPECT_FALSE(nic_binding::read(mate, tree.root()));
  EXPECT_FALSE(nic_binding::read("../0000:00:04.0", tree.root()));
}

TEST(Binding, DamagedFilesAreRefused) {
  EXPECT_TRUE(nic_binding::from_text("driver x\ninterface e\nnew-in-2.0 something\n"));
  for (const char* text :
       {"mtu 1500\n", "interface e\nmtu 70000\n", "interface e\nmac 5:4\n", "interface e\nup 2\n",
        "interface e\naddress 10.0.0.1\n", "interface e\naddress 10.0.0.1/33\n", "interface e\ngateway x\n",
        "interface ../e\n", "driver a/b\n", "interface\n"})
    EXPECT_FALSE(nic_binding::from_text(text)) << text;
  EXPECT_FALSE(nic_binding::from_text(std::string(nic_binding::text_max + 1, '\n')));
  std::mt19937 random(3);
  const std::string good =
      "driver e\ninterface e\nmac 52:54:00:12:34:56\nmtu 9\nup 1\naddress ::/0\ngateway ::1\n";
  for (int round = 0; round < 5000; ++round) {
    std::string text = good;
    for (unsigned i = random() % 4; i < 4; ++i) text[random() % text.size()] = char(random() % 128);
    const auto read = nic_binding::from_text(text);
    EXPECT_TRUE(!read || nic_binding::from_text(nic_binding::to_text(*read)));
  }
}

}  // namespace
}  // namespace weft::os::vfio
