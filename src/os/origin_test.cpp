#include "os/origin.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/event.hpp"
#include "os/poll_set.hpp"
#include "os/watch.hpp"

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
    PollSet set = std::move(*open_poll_set());
    Timer timer = std::move(*Timer::create());
    Event event = std::move(*Event::create());
    Fd other = Fd(::dup(0));
  } shared;
  ASSERT_TRUE(add_to_poll_set(shared.set, shared.timer.fd(), &shared));
  shared.timer.set(1);
  shared.event.notify();
  ::usleep(1000);
  EXPECT_TRUE(in_child(
      [](void* at) {
        auto& inherited = *static_cast<Shared*>(at);
        void* tags[2];
        const bool quiet =
            poll_now(inherited.set, tags) == 0 && !add_to_poll_set(inherited.set, inherited.other, at);
        remove_from_poll_set(inherited.set, inherited.timer.fd());
        inherited.timer.set(0);
        inherited.event.drain();
        PollSet own = std::move(*open_poll_set());
        return quiet && add_to_poll_set(own, inherited.timer.fd(), at) && poll_now(own, tags) == 1;
      },
      &shared));
  void* tags[2];
  EXPECT_EQ(poll_now(shared.set, tags), 1u);
  auto epoll = std::move(*Epoll::create());
  EXPECT_EQ(epoll.add(shared.event.fd()), 0);
  EXPECT_TRUE(epoll.wait(0));
}

}  // namespace
}  // namespace weft::os
