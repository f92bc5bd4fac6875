// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "link/tcp/session_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace weft::link::tcp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

struct Some : Session {
  int number = 0;
};

struct Time {
  static inline uint64_t ns = 0;
  static uint64_t now() { return ns; }
};

struct SessionTables : testing::Test {
  SessionTables() {
    for (int i = 0; i < 8; ++i) sessions[static_cast<size_t>(i)].number = i;
    table.reserve(sessions.size());
  }
  std::vector<int> hot() {
    std::vector<int> out;
    table.read_hot([&](Some& session) {
      out.push_back(session.number);
      return 0;
    });
    return out;
  }
  std::array<Some, 8> sessions;
  SessionTable<Some, Time> table;
};

TEST_F(SessionTables, TheColdestIsReplaced) {
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(table.promote(sessions[i]), nullptr);
  EXPECT_EQ(table.promote(sessions[4]), nullptr);
  EXPECT_FALSE(sessions[4].hot) << "all are busy";
  sessions[1].silent = 3;
  sessions[2].silent = 9;
  EXPECT_EQ(table.promote(sessions[4]), &sessions[2]);
  EXPECT_TRUE(sessions[4].hot);
  EXPECT_FALSE(sessions[2].hot);
  EXPECT_THAT(hot(), UnorderedElementsAre(0, 1, 3, 4));
  EXPECT_EQ(table.promote(sessions[0]), nullptr) << "hot already";
  EXPECT_EQ(table.hot_count(), 4u);
}

TEST_F(SessionTables, SilentOnesGo) {
  for (size_t i = 0; i < 3; ++i) (void)table.promote(sessions[i]);
  sessions[0].silent = sessions[2].silent = SessionTable<Some, Time>::silent_polls_max;
  std::vector<int> demoted;
  table.demote_silent([&](Some& session) { demoted.push_back(session.number); });
  EXPECT_THAT(demoted, UnorderedElementsAre(0, 2));
  EXPECT_THAT(hot(), ElementsAre(1));
}

TEST_F(SessionTables, SessionsMayGoWhileTheyAreVisited) {
  for (size_t i = 0; i < 4; ++i) (void)table.promote(sessions[i]);
  std::vector<int> read;
  (void)table.read_hot([&](Some& session) {
    read.push_back(session.number);
    for (auto& other : sessions) table.remove(other);
    return 1;
  });
  EXPECT_THAT(read, ElementsAre(3));
  for (size_t i = 0; i < 3; ++i) {
    table.note_dirty(sessions[i]);
    table.set_stalled(sessions[i], true);
  }
  std::vector<int> flushed;
  table.flush_dirty([](Some&) { return true; },
                    [&](Some& session) {
                      flushed.push_back(session.number);
                      for (auto& other : sessions) table.remove(other);
                    });
  EXPECT_THAT(flushed, ElementsAre(2));
  EXPECT_THAT(table.dirty(), IsEmpty());
  EXPECT_FALSE(table.has_stalled());
}

TEST_F(SessionTables, DirtyOnesStayUntilNothingIsLeft) {
  for (size_t i = 0; i < 4; ++i) table.note_dirty(sessions[i]);
  table.flush_dirty([](Some& session) { return session.number % 2 == 0; }, [](Some&) {});
  EXPECT_THAT(table.dirty(), UnorderedElementsAre(&sessions[1], &sessions[3]));
  EXPECT_TRUE(sessions[1].dirty);
  EXPECT_FALSE(sessions[2].dirty);
}

TEST_F(SessionTables, StalledOnesAreShownAgain) {
  table.set_stalled(sessions[1], true);
  table.set_stalled(sessions[1], true);
  table.set_stalled(sessions[5], true);
  EXPECT_EQ(table.read_stalled([&](Some& session) {
    table.set_stalled(session, false);
    return 1;
  }),
            2);
  EXPECT_FALSE(table.has_stalled());
}

TEST_F(SessionTables, WhoPollsSeldomLooksEachTime) {
  table.promote(sessions[0]);
  for (int i = 0; i < 10; ++i) table.checked(false);
  for (const int taken : {0, 1}) {
    EXPECT_FALSE(table.is_check_due(taken));
    Time::ns += table.check_interval_ns;
    EXPECT_TRUE(table.is_check_due(taken));
    table.checked(false);
  }
}

TEST_F(SessionTables, LooksBecomeRareWhereNothingIsFound) {
  EXPECT_TRUE(table.is_check_due(0)) << "nothing is hot";
  (void)table.promote(sessions[0]);
  const auto polls_until_check = [&](int taken) {
    int polls = 1;
    while (!table.is_check_due(taken)) ++polls;
    return polls;
  };
  table.checked(true);
  EXPECT_EQ(polls_until_check(0), 4);
  table.checked(false);
  EXPECT_EQ(polls_until_check(0), 8);
  for (int i = 0; i < 10; ++i) table.checked(false);
  EXPECT_EQ(polls_until_check(0), 64);
  table.checked(true);
  EXPECT_EQ(polls_until_check(1), 64);
  table.checked(false);
  table.check_soon();
  EXPECT_EQ(polls_until_check(0), 1);
}

}  // namespace
}  // namespace weft::link::tcp
