// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tests of one-sided access: the table that peers read, and a close against who is at the region.
#include "link/shm/exposed_regions.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <thread>

#include "os/process.hpp"

namespace weft::link::shm {
namespace {

// A target and an initiator in one process.
class ExposedRegionsTest : public testing::Test {
 protected:
  void SetUp() override { users_ = std::make_unique<std::array<AccessSlot, access_slots>>(); }
  RegionWindow window() {
    auto table = os::map_readable_memory_of(::getpid(), target_.fd(), ::geteuid(), ours_, region_table_bytes);
    EXPECT_TRUE(table);
    AccessSlot* slot = acquire_access_slot(*users_);
    EXPECT_NE(slot, nullptr);
    return {std::move(table), *slot};
  }
  static proto::ExposedRegion region(uint64_t key) { return {key, 1000, 100, 0x7000, true, true}; }
  bool found(RegionWindow& by, uint64_t key, uint64_t address, uint64_t length, bool write = true) {
    return by.find(key, address, length, write, found_);
  }

  ExposedRegions target_{77};
  std::unique_ptr<std::array<AccessSlot, access_slots>> users_;
  os::Fd ours_ = std::move(*os::create_memory("test", 1));
  RegionWindow::Target found_;
};

TEST_F(ExposedRegionsTest, TellsWhereAPartLies) {
  ASSERT_TRUE(target_.expose(region(5)));
  auto by = window();
  ASSERT_TRUE(found(by, 5, 1010, 90));
  EXPECT_EQ(found_.address, 0x700aU);
  EXPECT_TRUE(found(by, 5, 1100, 0));
  for (const auto& [address, length] : std::initializer_list<std::pair<uint64_t, uint64_t>>{
           {999, 1}, {1000, 101}, {1100, 1}, {1010, UINT64_MAX}, {UINT64_MAX, 2}, {0, 1}})
    EXPECT_FALSE(found(by, 5, address, length)) << address << ' ' << length;
  EXPECT_FALSE(found(by, 6, 1000, 1));
}

TEST_F(ExposedRegionsTest, KeepsTheRights) {
  auto read_only = region(1);
  read_only.writable = false;
  ASSERT_TRUE(target_.expose(read_only));
  auto by = window();
  EXPECT_TRUE(found(by, 1, 1000, 1, false));
  EXPECT_FALSE(found(by, 1, 1000, 1, true));
}

TEST_F(ExposedRegionsTest, WhatIsConcealedIsNotFoundNorEntered) {
  ASSERT_TRUE(target_.expose(region(5)));
  auto by = window();
  ASSERT_TRUE(found(by, 5, 1000, 1));
  const auto before = found_;
  EXPECT_EQ(target_.conceal(5, *users_), 0);
  EXPECT_FALSE(found(by, 5, 1000, 1));
  EXPECT_FALSE(by.enter(before));
  ASSERT_TRUE(target_.expose(region(5)));  // in the same entry
  EXPECT_FALSE(by.enter(before));
  ASSERT_TRUE(found(by, 5, 1000, 1));
  EXPECT_TRUE(by.enter(found_));
  by.leave();
  EXPECT_EQ(target_.conceal(77, *users_), 0);
}

TEST_F(ExposedRegionsTest, AFullTableRefuses) {
  size_t taken = 0;
  for (uint64_t key = 0; key < 2 * region_entries; ++key) taken += target_.expose(region(key)) ? 1 : 0;
  EXPECT_LE(taken, region_entries);
  EXPECT_GT(taken, region_entries / 2);
  auto by = window();
  size_t seen = 0;
  for (uint64_t key = 0; key < 2 * region_entries; ++key) seen += found(by, key, 1000, 1) ? 1 : 0;
  EXPECT_EQ(seen, taken);
  EXPECT_EQ(target_.conceal_all(*users_), 0);
  for (uint64_t key = 0; key < 2 * region_entries; ++key) EXPECT_FALSE(found(by, key, 1000, 1));
}

TEST_F(ExposedRegionsTest, TheTableSaysWhose) {
  ASSERT_TRUE(target_.expose(region(5)));
  auto by = window();
  EXPECT_TRUE(by.is_of(77));
  EXPECT_FALSE(by.is_of(78));
}

TEST_F(ExposedRegionsTest, OthersCannotWriteTheTable) {
  ASSERT_TRUE(target_.expose(region(5)));
  EXPECT_FALSE(os::map_memory(os::Fd(::dup(target_.fd())), 0, region_table_bytes));
}

// The owner of the word is alive and does not leave: the close gives up after its timeout.
TEST_F(ExposedRegionsTest, AConcealWaitsBoundedForWhoIsAtIt) {
  ASSERT_TRUE(target_.expose(region(5)));
  auto by = window();
  ASSERT_TRUE(found(by, 5, 1000, 1) && by.enter(found_));
  EXPECT_EQ(target_.conceal(5, *users_), -EBUSY);
  EXPECT_FALSE(found(by, 5, 1000, 1));
  EXPECT_EQ(target_.conceal(5, *users_), -EBUSY);  // and again
  EXPECT_EQ(target_.conceal_all(*users_), -EBUSY);
  // The same key for other memory is another entry.
  ASSERT_TRUE(target_.expose(region(5)));
  EXPECT_TRUE(found(by, 5, 1000, 1));
  EXPECT_EQ(target_.conceal(5, *users_), -EBUSY);
  by.leave();
  EXPECT_EQ(target_.conceal(5, *users_), 0);
}

TEST_F(ExposedRegionsTest, WhoWasKilledHoldsNothing) {
  ASSERT_TRUE(target_.expose(region(5)));
  auto by = window();
  ASSERT_TRUE(found(by, 5, 1000, 1) && by.enter(found_));
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  siginfo_t info;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(dead), &info, WEXITED | WNOWAIT), 0);  // it stays a zombie
  (*users_)[0].owner = static_cast<uint64_t>(dead) << 32 | 1;
  EXPECT_EQ(target_.conceal(5, *users_), 0);
  AccessSlot* again = acquire_access_slot(*users_);
  ASSERT_EQ(again, users_->data());
  EXPECT_EQ(again->region.load(), 0U);
  EXPECT_EQ(::waitpid(dead, nullptr, 0), dead);
}

// Bytes stand for the peer's memory: nobody touches them after conceal() has returned.
TEST_F(ExposedRegionsTest, NobodyIsAtItAfterwards) {
  constexpr int rounds = 500;
  ASSERT_TRUE(target_.expose(region(0)));
  auto by = window();
  std::atomic<uint64_t> memory{0};
  std::atomic<int> round{0};
  std::atomic<uint64_t> writes{0};
  std::thread initiator([&] {
    RegionWindow::Target place;
    for (int seen = 0; (seen = round.load()) < rounds;) {
      if (!by.find(static_cast<uint64_t>(seen), 1000, 1, true, place) || !by.enter(place)) continue;
      memory.store(1, std::memory_order_relaxed);
      by.leave();
      writes.fetch_add(1, std::memory_order_relaxed);
    }
  });
  for (int i = 0; i < rounds; ++i) {
    const uint64_t before = writes.load();
    for (int spin = 0; spin < 1000 && writes.load() == before; ++spin) std::this_thread::yield();
    ASSERT_EQ(target_.conceal(static_cast<uint64_t>(i), *users_), 0);
    memory.store(0, std::memory_order_relaxed);
    for (int spin = 0; spin < 50; ++spin) ASSERT_EQ(memory.load(std::memory_order_relaxed), 0U) << i;
    if (i + 1 < rounds) {
      ASSERT_TRUE(target_.expose(region(static_cast<uint64_t>(i) + 1)));
    }
    round = i + 1;
  }
  initiator.join();
}

TEST_F(ExposedRegionsTest, WordsRunOut) {
  for (size_t i = 0; i < access_slots; ++i) ASSERT_NE(acquire_access_slot(*users_), nullptr);
  EXPECT_EQ(acquire_access_slot(*users_), nullptr);
}

}  // namespace
}  // namespace weft::link::shm
