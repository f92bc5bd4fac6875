// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two threads, and two processes, on one CPU find each other on the page.
#include "os/poller_board.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <thread>

#include "os/clock.hpp"

namespace weft::os {
namespace {

constexpr uint64_t ms = 1'000'000;

bool stay_on_one_cpu() {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

// In a child, so that the other tests are not pinned and start without a page. The status: the number of the first check that failed.
template <class F>
void in_child(F&& body) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(stay_on_one_cpu() ? body() : 77);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no CPU can be chosen here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Programs of this user that poll on this CPU while the test runs may write into the page: what is expected to be seen is asked for repeatedly.
template <class F>
bool in_time(F&& seen) {
  for (const uint64_t end = monotonic_ns() + 10'000 * ms; monotonic_ns() < end; ::usleep(100))
    if (seen()) return true;
  return false;
}

TEST(PollerBoard, WhoHasNotJoinedSeesNobody) {
  in_child([] {
    PollerWatch a;
    PollerWatch b;
    if (a.others_poll_here(monotonic_ns())) return 1;
    std::thread([&] { b.others_poll_here(monotonic_ns()); }).join();
    return a.others_poll_here(monotonic_ns()) || a.another_polled() ? 2 : 0;
  });
}

TEST(PollerBoard, AnotherThreadOnTheCpuIsSeenAndForgotten) {
  in_child([] {
    PollerWatch::join();
    PollerWatch a;
    PollerWatch b;
    (void)a.others_poll_here(monotonic_ns());
    std::thread([&] { (void)b.others_poll_here(monotonic_ns()); }).join();
    if (!a.another_polled()) return 1;
    const uint64_t now = monotonic_ns();
    if (!a.others_poll_here(now)) return 2;
    if (!a.others_poll_here(now + 40 * ms)) return 3;
    // Its own word since: a thread that computes has run.
    if (!in_time([&] {
          (void)a.others_poll_here(monotonic_ns());
          return !a.another_polled() && !a.others_poll_here(monotonic_ns());
        }))
      return 4;
    return 0;
  });
}

TEST(PollerBoard, QueuesThatOneThreadReadsDoNotSeeEachOther) {
  in_child([] {
    PollerWatch::join();
    PollerWatch a;
    PollerWatch b;
    return in_time([&] {
      (void)a.another_polled();
      (void)a.others_poll_here(monotonic_ns());
      (void)b.others_poll_here(monotonic_ns());
      return !a.others_poll_here(monotonic_ns());
    })
               ? 0
               : 1;
  });
}

TEST(PollerBoard, OtherProcessesShareThePage) {
  in_child([] {
    std::array<int, 2> joined{};
    if (::pipe(joined.data()) != 0) return 3;
    const pid_t other = ::fork();  // before either joins: nothing is inherited
    char byte = 0;
    // One after the other: on busy CPUs a join may take longer than another one waits for it.
    if (other == 0 && ::read(joined[0], &byte, 1) != 1) ::_exit(1);
    PollerWatch::join();
    if (other != 0 && ::write(joined[1], &byte, 1) != 1) return 4;
    PollerWatch mine;
    if (other == 0) {
      for (const uint64_t end = monotonic_ns() + 20'000 * ms; monotonic_ns() < end; ::sched_yield())
        (void)mine.others_poll_here(monotonic_ns());
      ::_exit(0);
    }
    const bool seen = in_time([&] {
      (void)mine.others_poll_here(monotonic_ns());
      ::sched_yield();
      return mine.another_polled() && mine.others_poll_here(monotonic_ns());
    });
    ::kill(other, SIGKILL);
    ::waitpid(other, nullptr, 0);
    return seen ? 0 : 2;
  });
}

}  // namespace
}  // namespace weft::os
