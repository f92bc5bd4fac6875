// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_strerror(3), fi_errno(3).
#include "api/libfabric/text/strerror.hpp"

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include <climits>
#include <cstring>
#include <set>
#include <string>

#include "api/libfabric/abi/values.hpp"

namespace weft::fi {
namespace {

TEST(Strerror, EveryFabricErrorHasASentenceOfItsOwn) {
  std::set<std::string> texts;
  for (int code = FI_ERRNO_OFFSET; code <= later::efirewalladdr; ++code) {
    const std::string text = error_text(code);
    EXPECT_EQ(text.find("nknown"), std::string::npos) << code;
    EXPECT_TRUE(texts.insert(text).second) << text;
  }
}

TEST(Strerror, SystemErrorsAreTheSystems) {
  for (int code = 1; code < 134; ++code) EXPECT_STREQ(error_text(code), strerror(code));
}

TEST(Strerror, SignDoesNotCount) {
  EXPECT_STREQ(error_text(-FI_ETRUNC), error_text(FI_ETRUNC));
  EXPECT_STREQ(error_text(-FI_EAGAIN), strerror(EAGAIN));
}

TEST(Strerror, NumbersOfNobody) {
  EXPECT_STREQ(error_text(0), "Success");
  EXPECT_STREQ(error_text(4711), "Unknown error 4711");
  EXPECT_STREQ(error_text(later::efirewalladdr + 1), "Unknown error 272");
  EXPECT_STREQ(error_text(INT_MIN), "Unknown error 2147483648");
}

}  // namespace
}  // namespace weft::fi
