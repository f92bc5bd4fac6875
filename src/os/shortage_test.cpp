// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "os/shortage.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <string>

namespace weft::os {
namespace {

TEST(Shortage, NamesTheLimitThatIsReached) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const std::string text = with_remedy(EMFILE);
  EXPECT_NE(text.find("ulimit -n, now " + std::to_string(limit.rlim_cur)), std::string::npos) << text;
  EXPECT_NE(with_remedy(ENOMEM).find("vm.max_map_count"), std::string::npos);
  EXPECT_NE(with_remedy(EPERM).find("seccomp"), std::string::npos);
  EXPECT_EQ(with_remedy(EINVAL).find('('), std::string::npos);
}

TEST(Shortage, WhatMayBeThereLater) {
  for (const int code : {EMFILE, ENFILE, ENOMEM, ENOSPC}) EXPECT_TRUE(is_shortage(code)) << code;
  for (const int code : {0, EPERM, ECONNREFUSED, EAGAIN}) EXPECT_FALSE(is_shortage(code)) << code;
}

}  // namespace
}  // namespace weft::os
