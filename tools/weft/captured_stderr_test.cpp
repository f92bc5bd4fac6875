// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Capture of standard error.
#include "captured_stderr.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

namespace weft::tool {
namespace {

TEST(CapturedStderr, TakesEverythingAndGivesTheStreamBack) {
  CapturedStderr outer;
  std::string inner_text;
  {
    CapturedStderr inner;
    std::fprintf(stderr, "by stdio\n");
    ASSERT_EQ(write(STDERR_FILENO, "by write\n", 9), 9);
    inner_text = inner.take();
    std::fprintf(stderr, "afterwards\n");
  }
  EXPECT_EQ(inner_text, "by stdio\nby write\n");
  EXPECT_EQ(outer.take(), "afterwards\n");
}

// More than a pipe would hold: nothing blocks.
TEST(CapturedStderr, HoldsMuch) {
  CapturedStderr captured;
  for (int i = 0; i < 10'000; ++i) std::fprintf(stderr, "a line of some length, number %d\n", i);
  const std::string text = captured.take();
  EXPECT_GT(text.size(), size_t{300'000});
  EXPECT_NE(text.find("number 9999\n"), std::string::npos);
}

}  // namespace
}  // namespace weft::tool
