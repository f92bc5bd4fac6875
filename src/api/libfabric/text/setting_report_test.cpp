// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Warnings about settings: malformed values, names that do not exist.
#include "api/libfabric/text/setting_report.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "api/libfabric/text/log.hpp"

namespace weft::fi {
namespace {

// What is told while one variable has this value.
std::string told(const char* name, const char* value) {
  setenv(name, value, 1);
  log_reset();
  testing::internal::CaptureStderr();
  report_settings_now();
  std::string text = testing::internal::GetCapturedStderr();
  unsetenv(name);
  log_reset();
  return text;
}

TEST(SettingReport, NothingIsTold) {
  EXPECT_EQ(told("FI_WEFT_SHM", "no"), "");
  EXPECT_EQ(told("WEFT_RELIABLE_TIMEOUT_S", "5"), "");
  EXPECT_EQ(told("FI_LOG_SUBSYS", "core,mr"), "");
  EXPECT_EQ(told("FI_LOG_SUBSYS", "^mr"), "");
}

TEST(SettingReport, MalformedValues) {
  const auto expect = [](const char* name, const char* value, const std::string& words) {
    const std::string text = told(name, value);
    EXPECT_NE(text.find(std::string(":core:core:<warn> ") + name + "=" + value + " " + words + "\n"),
              std::string::npos)
        << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  };
  expect("FI_WEFT_SHM", "maybe", "is not one of 0, 1, on, off, true, false, yes, no; yes is used");
  for (const char* value : {"abc", "-1", "1e99", "5x"})
    expect("WEFT_RELIABLE_TIMEOUT_S", value, "is not a number from 1 to 999999; 60 is used");
  expect("FI_LOG_INTERVAL", "x", "is not a number from 0 to 2147483647; 2000 is used");
  expect("FI_TCP_CONNECT_TIMEOUT", "soon", "is not a number from 1 to 86400000; 10000 is used");
  expect("FI_TCP_CONNECT_TIMEOUT", "0", "is not a number from 1 to 86400000; 10000 is used");
  expect("WEFT_YIELD", "often", "is not one of auto, never, always; the default is used");
  expect("FI_LOG_SUBSYS", "cores",
         "names none of core, fabric, domain, ep_ctrl, ep_data, av, cq, eq, mr, cntr; all are used");
}

TEST(SettingReport, InterfacesThatAreNotThere) {
  EXPECT_EQ(told("FI_TCP_IFACE", ""), "");
  const std::string text = told("FI_TCP_IFACE", "nope0");
  EXPECT_NE(text.find("<warn> FI_TCP_IFACE=nope0: no interface of that name"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

TEST(SettingReport, FormerNames) {
  const std::string text = told("FI_WEFT_NEAR", "1");
  EXPECT_NE(text.find("<warn> FI_WEFT_NEAR in the environment: the setting is called FI_WEFT_SHM now\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

TEST(SettingReport, MisspeltNames) {
  const auto expect = [](const char* name, const char* words) {
    const std::string text = told(name, "1");
    EXPECT_NE(text.find(std::string("<warn> ") + name + " in the environment is no setting" + words),
              std::string::npos)
        << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  };
  expect("FI_WEFT_SMH", ": is FI_WEFT_SHM meant?");
  expect("WEFT_RELIABLE_TIMOUT_S", ": is WEFT_RELIABLE_TIMEOUT_S meant?");
  expect("FI_TCP_IFACES", ": is FI_TCP_IFACE meant?");
  expect("FI_PROVIDERS", ": is FI_PROVIDER meant?");
  expect("FI_WEFT_SPEED", " (");
  for (const char* other : {"WEFT_TEST_SOMETHING", "WEFT_JOBS", "FI_SOCKETS_IFACE", "FI_UNIVERSE_SIZE"})
    EXPECT_EQ(told(other, "1"), "") << other;
}

}  // namespace
}  // namespace weft::fi
