// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of the transfer of a cache line, and of what its figures are called.
#include "line_transfer.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace weft::tool {
namespace {

TEST(LineTransfer, TimesTwoThreadsAgainAndAgain) {
  LineTransfer line;
  for (int i = 0; i < 5; ++i) {
    std::thread other([&] { line.time(false); });
    const double ns = line.time(true);
    other.join();
    EXPECT_GT(ns, 0);
  }
}

TEST(LineTransfer, NobodyThereIsNoFigure) {
  LineTransfer line;
  EXPECT_EQ(line.time(true), 0);
  EXPECT_EQ(line.time(false), 0);
}

TEST(LineTransfer, PlacementNeedsBothFigures) {
  EXPECT_EQ(placement_of(60, 5000), "busy");
  EXPECT_EQ(placement_of(5000, 250), "busy");
  EXPECT_EQ(placement_of(60, 70), "near");
  EXPECT_EQ(placement_of(300, 350), "far");
  EXPECT_EQ(placement_of(150, 160), "between");
  EXPECT_EQ(placement_of(60, 300), "moved");
  EXPECT_EQ(placement_of(0, 60), "unknown");
  EXPECT_EQ(placement_of(60, 0), "unknown");
}

}  // namespace
}  // namespace weft::tool
