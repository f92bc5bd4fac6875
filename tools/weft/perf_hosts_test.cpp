// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What client and server make of each other's words.
#include "perf_hosts.hpp"

#include <gtest/gtest.h>

#include "failure.hpp"

namespace weft::tool {
namespace {

Identification weft(const std::string& version, const std::string& build) {
  return {"0.1.0", "/lib/libfabric.so.1", version, build, nlohmann::json::object()};
}

TEST(PerfHosts, AlikeSidesAreNotSpokenOf) {
  EXPECT_TRUE(differences(weft("1.17 weft", "a"), weft("1.17 weft", "a")).empty());
}

TEST(PerfHosts, OtherVersionsBuildsAndSettingsAreTold) {
  Identification here = weft("1.17 weft", "a");
  Identification there = weft("1.17 weft", "b");
  EXPECT_EQ(differences(here, there).size(), 1U);
  there.version = "1.18 weft";
  there.tool = "0.2.0";
  there.settings["WEFT_CMA"] = "0";
  here.settings["WEFT_CMA"] = "1";
  here.settings["FI_TCP_IFACE"] = "lo";
  const std::vector<std::string> all = differences(here, there);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0], "the server is weft 0.2.0, this is weft 0.1.0");
  EXPECT_EQ(all[2], "FI_TCP_IFACE is not set on the server and 'lo' here");
  EXPECT_EQ(all[3], "WEFT_CMA is '0' on the server and '1' here");
}

TEST(PerfHosts, AnotherLibraryIsRefused) {
  EXPECT_THROW(differences(weft("1.17 weft", "a"), weft("1.17.0", "a")), Failure);
  EXPECT_EQ(differences(weft("1.17 weft", "a"), weft("1.17.0", "a"), true).size(), 1U)
      << "RoCEv2 is theirs, too";
}

TEST(PerfHosts, ThisProcessKnowsItself) {
  setenv("WEFT_CMA", "0", 1);
  setenv("WEFT_PERF_SIDE", "stock", 1);
  const Identification one = own_identification();
  unsetenv("WEFT_CMA");
  unsetenv("WEFT_PERF_SIDE");
  EXPECT_FALSE(one.version.empty());
  EXPECT_NE(one.library.find("libfabric"), std::string::npos);
  EXPECT_EQ(one.settings.at("WEFT_CMA"), "0");
  EXPECT_FALSE(one.settings.contains("WEFT_PERF_SIDE"));
  EXPECT_TRUE(differences(one, identification_from(nlohmann::json::parse(to_json(one).dump()))).empty());
}

TEST(PerfHosts, AHelloSurvivesAndABadOneIsRefused) {
  Hello hello;
  hello.lanes = 3;
  hello.one_server = true;
  hello.library = "other";
  hello.token = "abc";
  const Hello again = hello_from(nlohmann::json::parse(to_json(hello).dump()));
  EXPECT_EQ(to_json(again), to_json(hello));
  nlohmann::json bad = to_json(hello);
  bad["protocol"] = 1;
  EXPECT_THROW(hello_from(bad), Failure);
  bad = to_json(hello);
  bad["lanes"] = 0;
  EXPECT_THROW(hello_from(bad), Failure);
  bad = to_json(hello);
  bad["library"] = "evil.so";
  EXPECT_THROW(hello_from(bad), Failure);
  EXPECT_THROW(hello_from({{"command", "open"}}), Failure);
}

}  // namespace
}  // namespace weft::tool
