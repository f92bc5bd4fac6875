// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What `weft kofi` makes of the kernel's tables and of folders of configfs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "failure.hpp"
#include "kofi_system.hpp"

namespace weft::tool::kofi_system {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Folders : public testing::Test {
 protected:
  void SetUp() override {
    root = testing::TempDir() + "weft-kofi-XXXXXX";
    ASSERT_NE(::mkdtemp(root.data()), nullptr);
    paths = {root + "/debug", root + "/config"};
  }
  void TearDown() override { std::filesystem::remove_all(root); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
  std::string root;
  Paths paths;
};

std::string failure_of(const auto& call) {
  try {
    call();
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "no failure";
}

TEST(Modules, WhatTheyNeedComesBeforeThemOnce) {
  EXPECT_THAT(load_order({"kofi_tcp", "kofi_blk"}), ElementsAre("kofi", "kofi_tcp", "configfs", "kofi_blk"));
  EXPECT_THAT(load_order({"kofi_verbs", "kofi"}), ElementsAre("ib_core", "rdma_cm", "kofi", "kofi_verbs"));
  EXPECT_THROW(load_order({"ext4"}), Failure);
}

TEST(Providers, OneLineEachBehindTheHeads) {
  const auto found =
      parse_providers("name version objects opened\nkofi_loop 1.0 3 77\nkofi_tcp 1.0 0 0\nbroken\n");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, "kofi_loop");
  EXPECT_EQ(found[0].version, "1.0");
  EXPECT_EQ(found[0].objects, 3u);
  EXPECT_THAT(parse_providers(""), IsEmpty());
}

TEST_F(Folders, WithoutTheModulesItSaysWhatToDo) {
  EXPECT_THAT(failure_of([&] { providers(paths); }), HasSubstr("weft kofi load"));
  EXPECT_THAT(failure_of([&] { connect(paths, "disk0", {}); }), HasSubstr("kofi_blk is not loaded"));
  EXPECT_THAT(failure_of([&] { disconnect(paths, "disk0"); }), HasSubstr("no block device 'disk0'"));
  EXPECT_THAT(block_devices(paths), IsEmpty());
}

TEST_F(Folders, DevicesAreListedAndFoundByNameOrDisk) {
  write("/config/kofi_blk/disk0/provider", "kofi_tcp\n");
  write("/config/kofi_blk/disk0/address", "10.0.0.1\n");
  write("/config/kofi_blk/disk0/device", "/dev/kofi0\n");
  write("/config/kofi_blk/disk0/state", "live generation 1\n");
  write("/config/kofi_blk/other/device", "");
  const auto found = block_devices(paths);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].provider, "kofi_tcp");
  EXPECT_EQ(found[0].device, "/dev/kofi0");
  EXPECT_EQ(found[0].state, "live generation 1");
  EXPECT_EQ(found[1].device, "");
  EXPECT_EQ(free_name(paths), "disk1");
  // Without a file that takes it, it stays.
  EXPECT_THAT(failure_of([&] { disconnect(paths, "/dev/kofi0"); }), HasSubstr("disk0 (/dev/kofi0)"));
  EXPECT_THAT(failure_of([&] { disconnect(paths, ""); }), HasSubstr("no block device ''"));
}

TEST_F(Folders, ADeviceThatCannotBeConnectedLeavesNothing) {
  std::filesystem::create_directories(root + "/config/kofi_blk");
  EXPECT_THAT(failure_of([&] {
                connect(paths, "disk0", {{"address", "10.0.0.1"}});
              }),
              HasSubstr("address '10.0.0.1'"));
  EXPECT_THAT(block_devices(paths), IsEmpty());
  EXPECT_THROW(connect(paths, "../x", {}), Failure);
  EXPECT_THROW(connect(paths, "", {}), Failure);
  write("/config/kofi_blk/disk0/device", "");
  EXPECT_THAT(failure_of([&] { connect(paths, "disk0", {}); }), HasSubstr("there is a device of that name"));
}

}  // namespace
}  // namespace weft::tool::kofi_system
