// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The configuration file's lines, and that the environment wins.
#include "os/setting_file.hpp"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace weft::os {
namespace {

TEST(Settings, LinesWithSpaceCommentsAndNoLastLineEnd) {
  const SettingFile file = parse_settings("# ours\n\n  FI_PROVIDER = shm,tcp \r\nFI_LOG_LEVEL=warn\nFI_X =");
  EXPECT_EQ(file.values.at("FI_PROVIDER"), "shm,tcp");
  EXPECT_EQ(file.values.at("FI_LOG_LEVEL"), "warn");
  EXPECT_EQ(file.values.at("FI_X"), "");
  EXPECT_EQ(file.problem, "");
}

TEST(Settings, TheLaterLineCounts) {
  EXPECT_EQ(parse_settings("FI_A=1\nFI_A=2=3\n").values.at("FI_A"), "2=3");
}

TEST(Settings, ABadLineIsNamedAndTheOthersCount) {
  const SettingFile file = parse_settings("FI_A=1\nfi_b=2\nnothing\n=3\nFI_C=4");
  EXPECT_EQ(file.values.size(), 2u);
  EXPECT_EQ(file.problem, "line 2 is not NAME = value; it is ignored");
}

TEST(Settings, ANulByteIsNoValue) {
  EXPECT_TRUE(parse_settings(std::string_view("FI_A=1\0002", 8)).values.empty());
}

TEST(Settings, TheEnvironmentAnswers) {
  ASSERT_EQ(setenv("FI_WEFT_SETTING_TEST", "here", 1), 0);
  EXPECT_STREQ(setting("FI_WEFT_SETTING_TEST"), "here");
  unsetenv("FI_WEFT_SETTING_TEST");
  EXPECT_EQ(setting("FI_WEFT_SETTING_TEST"), nullptr);
}

TEST(SettingFile, AFormerNameIsReadWhereTheNameIsNotSet) {
  ::setenv("FI_WEFT_NEAR", "former", 1);
  EXPECT_STREQ(setting("FI_WEFT_SHM"), "former");
  ::setenv("FI_WEFT_SHM", "name", 1);
  EXPECT_STREQ(setting("FI_WEFT_SHM"), "name");
  ::unsetenv("FI_WEFT_SHM");
  ::unsetenv("FI_WEFT_NEAR");
  EXPECT_EQ(setting("FI_WEFT_SHM"), nullptr);
}

TEST(Settings, AFileIsRegularAndNotEndless) {
  const std::string folder = testing::TempDir() + "weft-setting-" + std::to_string(getpid());
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  const std::string plain = folder + "/plain", large = folder + "/large", fifo = folder + "/fifo";
  const auto problem_of = [](const std::string& path) { return read_setting_file(path.c_str()).problem; };
  std::ofstream(plain) << "FI_PROVIDER = tcp\n";
  EXPECT_EQ(read_setting_file(plain.c_str()).values.at("FI_PROVIDER"), "tcp");
  std::ofstream(large) << std::string(65536, '\n');
  EXPECT_EQ(problem_of(large), "");
  ASSERT_EQ(truncate(large.c_str(), off_t{10} << 30), 0);
  EXPECT_EQ(problem_of(large), large + ": it is longer than 65536 bytes, and is ignored");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, folder, std::string("/dev/zero")})
    EXPECT_EQ(problem_of(path), path + ": it is no regular file, and is ignored");
  EXPECT_EQ(problem_of("/dev/null"), "");
  EXPECT_EQ(problem_of(folder + "/none"), folder + "/none: No such file or directory");
  EXPECT_TRUE(read_setting_file((folder + "/none").c_str()).missing);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace weft::os
