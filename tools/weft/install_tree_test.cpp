// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Search lists of the loader.
#include "install_tree.hpp"

#include <gtest/gtest.h>

namespace weft::tool {
namespace {

TEST(SearchList, OursComesFirstAndOnce) {
  EXPECT_EQ(put_first("", "/w"), "/w");
  EXPECT_EQ(put_first("/a:/b", "/w"), "/w:/a:/b");
  EXPECT_EQ(put_first("/a:/w:/b:/w", "/w"), "/w:/a:/b");
}

TEST(SearchList, IsTakenOutWhereverItStands) {
  EXPECT_EQ(take_out("/w", "/w"), "");
  EXPECT_EQ(take_out("/a:/w:/b", "/w"), "/a:/b");
  EXPECT_EQ(take_out("/ww:/a/w", "/w"), "/ww:/a/w");
}

// An empty item is the current folder to ld.so(8).
TEST(SearchList, EmptyItemsDoNotSurvive) {
  EXPECT_EQ(put_first(":/a::/b:", "/w"), "/w:/a:/b");
  EXPECT_EQ(take_out("::", "/w"), "");
}

}  // namespace
}  // namespace weft::tool
