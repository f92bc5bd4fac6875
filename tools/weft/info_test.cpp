// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include "info_settings.hpp"
#include "info_system.hpp"
#include "system_files.hpp"
#include "temporary.hpp"

namespace fs = std::filesystem;

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

// Of version 2 the tightest of the path's groups counts, of version 1 each controller has a folder; "max" and the largest number are no limits.
TEST(SystemFiles, LimitsOfControlGroups) {
  const TemporaryFolder folder("weft-cgroup");
  const fs::path& root = folder.path();
  const auto write = [&](const char* file, const char* text) {
    fs::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text << '\n';
  };
  write("a/cpu.max", "150000 100000");
  write("a/b/cpu.max", "max 100000");
  write("a/b/memory.max", "1048576");
  CgroupLimits limits = cgroup_limits(root, "0::/a/b\n");
  EXPECT_DOUBLE_EQ(limits.processors.value_or(0), 1.5);
  EXPECT_EQ(limits.memory_bytes.value_or(0), 1'048'576U);
  limits = cgroup_limits(root, "0::/elsewhere\n");
  EXPECT_FALSE(limits.processors);
  EXPECT_FALSE(limits.memory_bytes);
  write("cpu/x/cpu.cfs_quota_us", "50000");
  write("cpu/x/cpu.cfs_period_us", "100000");
  write("memory/x/memory.limit_in_bytes", "9223372036854771712");
  limits = cgroup_limits(root, "9:name=systemd:/\n2:cpu:/x\n1:memory:/x");
  EXPECT_DOUBLE_EQ(limits.processors.value_or(0), 0.5);
  EXPECT_FALSE(limits.memory_bytes);
  limits = cgroup_limits(root, "nonsense\n::\n");
  EXPECT_FALSE(limits.processors);
}

TEST(SystemFiles, WhyAFileIsNotRead) {
  EXPECT_NE(unknown("/proc/no-such-file").find("/proc/no-such-file: "), std::string::npos);
  EXPECT_EQ(text_of("/proc/no-such-file"), "");
  EXPECT_TRUE(names_in("/proc/no-such-folder").empty());
}

TEST(InfoSystem, FactsHaveNamesAndValues) {
  for (const SystemFact& fact : system_facts()) {
    EXPECT_FALSE(fact.name.empty());
    EXPECT_FALSE(fact.value.empty()) << fact.name;
  }
}

}  // namespace
}  // namespace weft::tool
