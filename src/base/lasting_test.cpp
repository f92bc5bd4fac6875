// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/lasting.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weft {
namespace {

struct Noted {
  Noted(std::string& where, char what) : log(where), name(what) {}
  Noted(const Noted&) = delete;
  Noted& operator=(const Noted&) = delete;
  ~Noted() { log += name; }
  std::string& log;
  char name;
};

TEST(Lasting, ObjectsAreFreedTogetherTheNewestFirst) {
  std::string log;
  EXPECT_EQ(make_lasting<Noted>(log, 'a').name, 'a');
  make_lasting<Noted>(log, 'b');
  make_lasting<std::vector<int>>(3, 7).push_back(1);
  EXPECT_EQ(log, "");
  free_lasting();
  EXPECT_EQ(log, "ba");
  free_lasting();
  EXPECT_EQ(log, "ba");
}

}  // namespace
}  // namespace weft
