// The configuration file's lines, and that the environment wins.
#include "faces/libfabric/setting.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace weft::fi {
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

}  // namespace
}  // namespace weft::fi
