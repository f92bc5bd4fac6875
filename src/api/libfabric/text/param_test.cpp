// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_provider(3): fi_param_define, fi_param_get; fi_getparams of fabric.h.
#include "api/libfabric/text/param.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "api/libfabric/text/log.hpp"

namespace weft::fi {
namespace {

// Sets a variable for the length of a test.
struct Env {
  Env(const char* variable, const char* value) : name(variable) { setenv(variable, value, 1); }
  ~Env() { unsetenv(name); }
  const char* name;
};

TEST(Param, ReadsEachType) {
  ASSERT_EQ(param_define("cloth", "text", FI_PARAM_STRING, "A text"), 0);
  ASSERT_EQ(param_define("cloth", "int", FI_PARAM_INT, "An int"), 0);
  ASSERT_EQ(param_define("cloth", "flag", FI_PARAM_BOOL, "A flag"), 0);
  ASSERT_EQ(param_define("cloth", "size", FI_PARAM_SIZE_T, "A size"), 0);
  const Env text("FI_CLOTH_TEXT", "words");
  const Env number("FI_CLOTH_INT", "-0x10");
  const Env flag("FI_CLOTH_FLAG", "Yes");
  const Env size("FI_CLOTH_SIZE", "18446744073709551615");
  char* text_value = nullptr;
  int int_value = 0;
  int flag_value = 0;
  size_t size_value = 0;
  EXPECT_EQ(param_get("cloth", "text", &text_value), 0);
  EXPECT_STREQ(text_value, "words");
  EXPECT_EQ(param_get("cloth", "int", &int_value), 0);
  EXPECT_EQ(int_value, -16);
  EXPECT_EQ(param_get("cloth", "flag", &flag_value), 0);
  EXPECT_EQ(flag_value, 1);
  EXPECT_EQ(param_get("cloth", "size", &size_value), 0);
  EXPECT_EQ(size_value, SIZE_MAX);
}

TEST(Param, MalformedValuesAreRefusedAndLeaveTheValue) {
  ASSERT_EQ(param_define("cloth", "int", FI_PARAM_INT, "An int"), 0);
  ASSERT_EQ(param_define("cloth", "flag", FI_PARAM_BOOL, "A flag"), 0);
  ASSERT_EQ(param_define("cloth", "size", FI_PARAM_SIZE_T, "A size"), 0);
  setenv("FI_LOG_LEVEL", "none", 1);
  log_reset();
  for (const char* text : {"", "seven", "7 ", "99999999999", "0x"}) {
    const Env env("FI_CLOTH_INT", text);
    int value = 42;
    EXPECT_EQ(param_get("cloth", "int", &value), -FI_EINVAL) << text;
    EXPECT_EQ(value, 42);
  }
  for (const char* text : {"", "-1", "+1", " 1", "1k", "18446744073709551616"}) {
    const Env env("FI_CLOTH_SIZE", text);
    size_t value = 42;
    EXPECT_EQ(param_get("cloth", "size", &value), -FI_EINVAL) << text;
    EXPECT_EQ(value, 42u);
    EXPECT_EQ(param_size("cloth", "size", 5, "A size"), 5u);
  }
  const Env env("FI_CLOTH_FLAG", "2");
  int value = 42;
  EXPECT_EQ(param_get("cloth", "flag", &value), -FI_EINVAL);
  EXPECT_EQ(value, 42);
  unsetenv("FI_LOG_LEVEL");
  log_reset();
}

TEST(Param, UnsetAndUndefinedDiffer) {
  ASSERT_EQ(param_define("cloth", "unset", FI_PARAM_INT, "Never set"), 0);
  int value = 42;
  EXPECT_EQ(param_get("cloth", "unset", &value), -FI_ENODATA);
  EXPECT_EQ(param_get("cloth", "undefined", &value), -FI_ENOENT);
  EXPECT_EQ(value, 42);
}

TEST(Param, DefinitionNeedsNameHelpAndKnownType) {
  EXPECT_EQ(param_define("cloth", nullptr, FI_PARAM_INT, "Help"), -FI_EINVAL);
  EXPECT_EQ(param_define("cloth", "", FI_PARAM_INT, "Help"), -FI_EINVAL);
  EXPECT_EQ(param_define("cloth", "a", FI_PARAM_INT, nullptr), -FI_EINVAL);
  EXPECT_EQ(param_define("cloth", "a", FI_PARAM_INT, ""), -FI_EINVAL);
  EXPECT_EQ(param_define("cloth", "a b", FI_PARAM_INT, "Help"), -FI_EINVAL);
  EXPECT_EQ(param_define("cloth", "a", static_cast<fi_param_type>(9), "Help"), -FI_EINVAL);
  EXPECT_EQ(param_define("cloth", "typed", FI_PARAM_INT, "Help"), 0);
  EXPECT_EQ(param_define("cloth", "typed", FI_PARAM_INT, "Again"), 0);
  EXPECT_EQ(param_define("cloth", "typed", FI_PARAM_BOOL, "Otherwise"), -FI_EINVAL);
}

TEST(Param, CoreVariablesHaveNoProviderInTheirName) {
  const Env env("FI_PLAIN", "3");
  EXPECT_EQ(param_size(nullptr, "plain", 1, "Help"), 3u);
  EXPECT_EQ(param_size("core", "plain", 1, "Help"), 3u);
}

TEST(Param, StringsStayWhenTheEnvironmentChanges) {
  ASSERT_EQ(param_define("cloth", "text", FI_PARAM_STRING, "A text"), 0);
  char* first = nullptr;
  {
    const Env env("FI_CLOTH_TEXT", "first");
    ASSERT_EQ(param_get("cloth", "text", &first), 0);
  }
  const Env env("FI_CLOTH_TEXT", "second");
  char* second = nullptr;
  ASSERT_EQ(param_get("cloth", "text", &second), 0);
  EXPECT_STREQ(first, "first");
  EXPECT_STREQ(second, "second");
}

TEST(Param, ListHasValuesAndAnEnd) {
  param_define_core();
  param_define_core();
  ASSERT_EQ(param_define("cloth", "listed", FI_PARAM_INT, "In the list"), 0);
  const Env env("FI_CLOTH_LISTED", "7");
  const Env malformed("FI_LOG_INTERVAL", "7x");
  fi_param* params = nullptr;
  int count = 0;
  ASSERT_EQ(param_list(&params, &count), 0);
  ASSERT_GE(count, 6);
  EXPECT_EQ(params[count].name, nullptr);
  int found = 0;
  for (int i = 0; i < count; ++i) {
    if (strcmp(params[i].name, "FI_CLOTH_LISTED") == 0) {
      ++found;
      EXPECT_STREQ(params[i].value, "7");
      EXPECT_STREQ(params[i].help_string, "In the list");
      EXPECT_EQ(params[i].type, FI_PARAM_INT);
    }
    if (strcmp(params[i].name, "FI_LOG_LEVEL") == 0) ++found;
    if (strcmp(params[i].name, "FI_LOG_INTERVAL") == 0) {
      ++found;
      EXPECT_THAT(params[i].help_string,
                  ::testing::EndsWith("; 7x is not a number from 0 to 2147483647, so the default is used"));
    }
  }
  EXPECT_EQ(found, 3);
  param_list_free(params);
  param_list_free(nullptr);
  EXPECT_EQ(param_list(nullptr, &count), -FI_EINVAL);
}

TEST(Param, TheHelpSaysWhyATextIsNotUsed) {
  param_define_core();
  const Env level("FI_LOG_LEVEL", "loud");
  const Env faults("WEFT_PACKET_FAULTS", "loss=1,lat=2");
  const Env card("WEFT_NIC", "0000:00:04.0=nowhere");
  fi_param* params = nullptr;
  int count = 0;
  ASSERT_EQ(param_list(&params, &count), 0);
  std::map<std::string, std::string> help;
  for (int i = 0; i < count; ++i) help[params[i].name] = params[i].help_string;
  param_list_free(params);
  EXPECT_THAT(help["FI_LOG_LEVEL"],
              ::testing::EndsWith("; loud is not one of warn, trace, info, debug, none, so "
                                  "the default is used"));
  EXPECT_THAT(
      help["WEFT_PACKET_FAULTS"],
      ::testing::EndsWith("; loss=1,lat=2 is not a plan of faults, so endpoints over packets are refused"));
  EXPECT_THAT(help["WEFT_NIC"],
              ::testing::HasSubstr("; 0000:00:04.0=nowhere is not a list of cards: \"0000:00:"));
}

TEST(Param, ManyThreadsDefineAndRead) {
  const Env env("FI_CLOTH_SHARED", "5");
  std::vector<std::thread> threads;
  threads.reserve(4);
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&wrong, t] {
      for (int i = 0; i < 200; ++i) {
        const std::string own = "own_" + std::to_string(t) + "_" + std::to_string(i);
        if (param_size("cloth", own.c_str(), 1, "Help") != 1) ++wrong;
        if (param_size("cloth", "shared", 1, "Help") != 5) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace weft::fi
