// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What settings accept, and which name is meant.
#include "base/settings.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace weft::settings {
namespace {

TEST(SettingTable, NamesAreFoundAndUnique) {
  for (const Setting& setting : all()) EXPECT_EQ(find(setting.name), &setting);
  EXPECT_EQ(find("FI_WEFT"), nullptr);
  EXPECT_EQ(find("fi_provider"), nullptr);
}

TEST(SettingTable, Flags) {
  const Setting& near = *find("FI_WEFT_SHM");
  for (const char* yes : {"1", "on", "TRUE", "yes", "y"}) EXPECT_EQ(parse(near, yes), 1u) << yes;
  for (const char* no : {"0", "off", "False", "no", "n"}) EXPECT_EQ(parse(near, no), 0u) << no;
  for (const char* neither : {"", "maybe", "2", " 1", "on "})
    EXPECT_EQ(parse(near, neither), std::nullopt) << neither;
}

TEST(SettingTable, Numbers) {
  const Setting& timeout = *find("WEFT_RELIABLE_TIMEOUT_S");
  EXPECT_EQ(parse(timeout, "5"), 5u);
  EXPECT_EQ(parse(timeout, "0x10"), 16u);
  EXPECT_EQ(parse(timeout, "999999"), 999'999u);
  for (const char* none :
       {"", "abc", "-1", "+1", "1e99", "5x", " 5", "0", "1000000", "0x", "99999999999999999999", "1.5"})
    EXPECT_EQ(parse(timeout, none), std::nullopt) << none;
  EXPECT_EQ(accepted(timeout), "a number from 1 to 999999");
}

TEST(SettingTable, WhatAMalformedValueIsReplacedBy) {
  EXPECT_EQ(used_instead(*find("WEFT_RELIABLE_TIMEOUT_S")), "60");
  EXPECT_EQ(used_instead(*find("FI_WEFT_SHM")), "yes");
  EXPECT_EQ(used_instead(*find("WEFT_VERBS_MTU")), "the default");  // by the interface
}

TEST(SettingTable, AMalformedValueIsAnUnsetOne) {
  setenv("WEFT_RELIABLE_TIMEOUT_S", "7", 1);
  EXPECT_EQ(number("WEFT_RELIABLE_TIMEOUT_S"), 7u);
  setenv("WEFT_RELIABLE_TIMEOUT_S", "1e99", 1);
  EXPECT_EQ(number("WEFT_RELIABLE_TIMEOUT_S"), 60u);
  unsetenv("WEFT_RELIABLE_TIMEOUT_S");
  EXPECT_EQ(number("WEFT_RELIABLE_TIMEOUT_S"), 60u);
  EXPECT_TRUE(flag("FI_WEFT_SHM"));
}

TEST(SettingTable, FormerNamesAreReadWhereTheNameIsNotSet) {
  EXPECT_TRUE(flag("WEFT_VERBS_SHM"));
  setenv("WEFT_VERBS_NEAR", "0", 1);
  EXPECT_FALSE(flag("WEFT_VERBS_SHM"));
  EXPECT_STREQ(text("WEFT_VERBS_SHM"), "0");
  setenv("WEFT_VERBS_SHM", "1", 1);
  EXPECT_TRUE(flag("WEFT_VERBS_SHM"));
  unsetenv("WEFT_VERBS_SHM");
  unsetenv("WEFT_VERBS_NEAR");
  for (const FormerName& one : former_names()) {
    EXPECT_EQ(find(one.former), nullptr) << one.former;
    EXPECT_NE(find(one.name), nullptr) << one.name;
    EXPECT_EQ(name_of_former(one.former), one.name);
    EXPECT_EQ(former_name_of(one.name), one.former);
  }
  EXPECT_EQ(former_name_of("WEFT_CMA"), nullptr);
  EXPECT_EQ(name_of_former("WEFT_CMA"), "");
}

TEST(SettingTable, NamesThatAreMeant) {
  EXPECT_EQ(nearest("FI_WEFT_SMH"), "FI_WEFT_SHM");
  EXPECT_EQ(nearest("WEFT_RELIABLE_TIMOUT_S"), "WEFT_RELIABLE_TIMEOUT_S");
  EXPECT_EQ(nearest("FI_PROVIDERS"), "FI_PROVIDER");
  EXPECT_EQ(nearest("FI_LOG_LEVL"), "FI_LOG_LEVEL");
  for (const char* other : {"WEFT_BUILD",
                            "WEFT_STAGE",
                            "WEFT_SOURCE",
                            "WEFT_SEED",
                            "WEFT_SEEDS",
                            "WEFT_JOBS",
                            "WEFT_PRELOAD",
                            "WEFT_SANITIZE",
                            "WEFT_SIM_SEED",
                            "WEFT_TEST_PROVIDER",
                            "WEFT_TEST_BIG",
                            "WEFT_LIBRARY_SETTLED",
                            "WEFT_LOSSY_SECONDS",
                            "FI_UNIVERSE_SIZE",
                            "FI_NET_IFACE",
                            "FI_VERBS_IFACE",
                            "FI_SHM_SAR_THRESHOLD",
                            "FI_OFI_RXM_SAR_LIMIT",
                            "FI_HOOK",
                            ""})
    EXPECT_EQ(nearest(other), "") << other;
  EXPECT_EQ(nearest(std::string(4096, 'F')), "");
}

}  // namespace
}  // namespace weft::settings
