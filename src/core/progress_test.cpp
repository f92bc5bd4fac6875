// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Endpoints that several queues sleep on: arming is counted, and who sleeps on is not forgotten.
#include "core/progress.hpp"

#include <gtest/gtest.h>

namespace weft::core {
namespace {

struct Fake final : Progressor {
  int work = 0;
  bool armed = false;
  void progress() noexcept override {
    if (work > 0) --work;
  }
  int wait_fd() noexcept override { return -1; }
  bool arm() noexcept override { return armed = work == 0; }
  void disarm() noexcept override { armed = false; }
};

TEST(Progressor, TheLastSleeperDisarms) {
  Fake fake;
  ASSERT_TRUE(fake.begin_sleep());
  ASSERT_TRUE(fake.begin_sleep());
  fake.end_sleep();
  EXPECT_TRUE(fake.armed) << "somebody still sleeps";
  fake.end_sleep();
  EXPECT_FALSE(fake.armed);
}

TEST(Progressor, WorkIsTakenForThoseWhoSleepOn) {
  Fake fake;
  ASSERT_TRUE(fake.begin_sleep());
  ASSERT_TRUE(fake.begin_sleep());
  fake.work = 3;
  fake.end_sleep();
  EXPECT_EQ(fake.work, 0);
  EXPECT_TRUE(fake.armed);
  fake.end_sleep();
}

TEST(Progressor, WorkForbidsSleep) {
  Fake fake;
  fake.work = 1;
  EXPECT_FALSE(fake.begin_sleep());
  EXPECT_FALSE(fake.armed);
}

TEST(ProgressorList, CountsBindingsAndDrivesOnce) {
  Fake a;
  Fake b;
  ProgressorList list;
  EXPECT_TRUE(list.empty());
  list.add(a);
  list.add(b);
  list.add(a);
  EXPECT_EQ(list.size(), 2u);
  a.work = b.work = 5;
  list.progress();
  EXPECT_EQ(a.work, 4);
  EXPECT_EQ(b.work, 4);
  EXPECT_FALSE(list.remove(a));
  EXPECT_TRUE(list.remove(a));
  EXPECT_FALSE(list.remove(a));
  list.progress();
  EXPECT_EQ(a.work, 4);
  EXPECT_EQ(b.work, 3);
}

}  // namespace
}  // namespace weft::core
