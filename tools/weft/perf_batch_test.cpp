// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "perf_batch.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "failure.hpp"

namespace weft::tool {
namespace {

using Words = std::vector<std::string>;

std::vector<BatchLine> read(const std::string& text) {
  std::istringstream in(text);
  return read_batch(in, "plan");
}

TEST(Batch, LinesAreWordsAndTheirNumbers) {
  const auto lines =
      read("# latency\n\n-t tagged-pingpong -s 8\r\n  -p\t'tcp;ofi_rxm'   # the network\n-o \"a b\"'c'#d");
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].number, 3U);
  EXPECT_EQ(lines[0].words, (Words{"-t", "tagged-pingpong", "-s", "8"}));
  EXPECT_EQ(lines[1].number, 4U);
  EXPECT_EQ(lines[1].words, (Words{"-p", "tcp;ofi_rxm"}));
  EXPECT_EQ(lines[2].words, (Words{"-o", "a bc#d"}));
  EXPECT_EQ(read("''").at(0).words, (Words{""}));
}

TEST(Batch, WhatMakesNoSenseIsSaidWithItsPlace) {
  const auto sentence = [](const std::string& text) -> std::string {
    try {
      read(text);
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.status(), exit_usage);
      return failure.what();
    }
    return {};
  };
  EXPECT_EQ(sentence("-s 8\n-p 'shm\n"), "plan:2: a quote is not closed");
  EXPECT_EQ(sentence("# nothing\n\n"), "plan has no line of options");
  EXPECT_EQ(sentence(""), "plan has no line of options");
}

}  // namespace
}  // namespace weft::tool
