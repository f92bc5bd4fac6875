// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "info_settings.hpp"
#include "info_system.hpp"

namespace weft::tool {
namespace {

TEST(InfoSettings, DefaultOfAHelpText) {
  EXPECT_EQ(default_in("Seconds, 1 to 9 (default: 60)"), "60");
  EXPECT_EQ(default_in("Who (default: what the program asks for, and a thread)"),
            "what the program asks for, and a thread");
  EXPECT_EQ(default_in("(default: 1) and more"), "");
  EXPECT_EQ(default_in("says none"), "");
  EXPECT_EQ(default_in(""), "");
}

TEST(InfoSettings, UnitsOfNumbers) {
  for (const auto& [text, number, unit] : {std::array{"60 s", "60", "s"},
                                           {"60", "60", ""},
                                           {"by the interface", "by the interface", ""},
                                           {"1, where it is allowed", "1, where it is allowed", ""},
                                           {"8192 KiB", "8192", "KiB"}}) {
    std::string rest = text;
    EXPECT_EQ(take_unit(rest), unit);
    EXPECT_EQ(rest, number);
  }
}

TEST(InfoSystem, NumbersOfProcFiles) {
  constexpr std::string_view text = "MemTotal:  100 kB\nHugePages_Total:       7\nBroken: x\n";
  EXPECT_EQ(number_after(text, "MemTotal:"), 100);
  EXPECT_EQ(number_after(text, "HugePages_Total:"), 7);
  EXPECT_EQ(number_after(text, "Broken:"), -1);
  EXPECT_EQ(number_after(text, "Absent:"), -1);
}

TEST(InfoSystem, ListsOfProcessors) {
  EXPECT_EQ(count_in_list("0-3,8"), 5U);
  EXPECT_EQ(count_in_list("0"), 1U);
  EXPECT_EQ(count_in_list(""), 0U);
  EXPECT_EQ(count_in_list("3-1,x,5-"), 1U);
}

TEST(InfoSystem, FactsHaveNamesAndValues) {
  for (const SystemFact& fact : system_facts()) {
    EXPECT_FALSE(fact.name.empty());
    EXPECT_FALSE(fact.value.empty()) << fact.name;
  }
}

}  // namespace
}  // namespace weft::tool
