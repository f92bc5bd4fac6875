// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "os/origin.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/event.hpp"
#include "os/poll_set.hpp"
#include "os/timer.hpp"

namespace weft::os {
namespace {

bool in_child(bool (*body)(void*), void* argument) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body(argument) ? 0 : 1);
  int status = -1;
  ::waitpid(pid, &status, 0);
  return status == 0;
}

TEST(Origin, AChildKnowsWhatItInherited) {
  Origin mine;
  EXPECT_TRUE(mine.is_here());
  EXPECT_TRUE(in_child(
      [](void* inherited) { return !static_cast<Origin*>(inherited)->is_here() && Origin().is_here(); },
      &mine));
  EXPECT_TRUE(mine.is_here());
}

// The kernel keeps one list of what is watched, and one clock, for parent and child.
TEST(Origin, AChildChangesNeitherPollSetNorTimerNorEvent) {
  struct Shared {
    PollSet set = std::move(*PollSet::create());
    Timer timer = std::move(*Timer::create());
    Event event = std::move(*Event::create());
    Fd other = Fd(::dup(0));
  } shared;
  ASSERT_TRUE(shared.set.add(shared.timer.fd().get(), &shared));
  shared.timer.set(1);
  shared.event.notify();
  ::usleep(1000);
  EXPECT_TRUE(in_child(
      [](void* at) {
        auto& inherited = *static_cast<Shared*>(at);
        void* tags[2];
        const bool quiet = inherited.set.ready(tags) == 0 && !inherited.set.add(inherited.other.get(), at);
        inherited.set.remove(inherited.timer.fd().get());
        inherited.timer.set(0);
        inherited.event.drain();
        PollSet own = std::move(*PollSet::create());
        return quiet && own.add(inherited.timer.fd().get(), at) && own.ready(tags) == 1;
      },
      &shared));
  void* tags[2];
  EXPECT_EQ(shared.set.ready(tags), 1u);
  PollSet later = std::move(*PollSet::create());
  EXPECT_TRUE(later.watch(shared.event.fd()) && later.watch(shared.event.fd()));
  EXPECT_FALSE(later.add(shared.event.fd()));
  EXPECT_TRUE(later.wait(0));
}

}  // namespace
}  // namespace weft::os
