// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "link/tcp/acceptor.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "os/socket_address.hpp"

namespace weft::link::tcp {
namespace {

constexpr uint64_t ms = 1'000'000;

struct Acceptors : testing::Test {
  Acceptors() {
    auto made = os::PollSet::create();
    EXPECT_TRUE(made);
    set = std::move(*made);
    auto socket = Acceptor::bind(os::SocketAddress::loopback(AF_INET), 0);
    EXPECT_TRUE(socket);
    place = os::local_address(socket->get());
    acceptor.open(std::move(*socket), set);
    EXPECT_TRUE(acceptor.listen(64));
  }
  void call() {
    callers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(callers.back().get(), place.get(), place.size()), 0);
  }
  bool has_event() {
    std::array<void*, 8> ready{};
    return set.ready(ready) != 0;
  }

  os::PollSet set;
  os::SocketAddress place;
  Acceptor acceptor{{1024, 3, 20 * ms, 100 * ms}};
  std::vector<os::Fd> callers;
};

TEST_F(Acceptors, WhoConnectsIsWatched) {
  EXPECT_EQ(acceptor.accept(ms), nullptr);
  EXPECT_FALSE(has_event());
  call();
  EXPECT_TRUE(has_event());
  PendingConnection* pending = acceptor.accept(ms);
  ASSERT_NE(pending, nullptr);
  EXPECT_EQ(pending->channel.state(), Channel::State::Handshaking);
  EXPECT_EQ(acceptor.accept(ms), nullptr);
  EXPECT_FALSE(has_event());
  ASSERT_EQ(::write(callers[0].get(), "x", 1), 1);
  std::array<void*, 8> ready{};
  ASSERT_EQ(set.ready(ready), 1u);
  EXPECT_EQ(ready[0], static_cast<Source*>(pending));
  acceptor.dismiss(*pending);
  acceptor.dismiss(*pending);
  EXPECT_TRUE(pending->gone);
  EXPECT_EQ(acceptor.pending_count(), 0u);
  acceptor.reap();
  EXPECT_FALSE(has_event());
}

TEST_F(Acceptors, TheOldestGoesWhenItHasHadItsTime) {
  for (int i = 0; i < 5; ++i) call();
  for (uint64_t i = 0; i < 3; ++i) ASSERT_NE(acceptor.accept((1 + i) * ms), nullptr);
  EXPECT_EQ(acceptor.accept(10 * ms), nullptr) << "nobody has had its time";
  EXPECT_FALSE(acceptor.is_short_of_descriptors());
  EXPECT_FALSE(has_event()) << "deaf";
  EXPECT_EQ(acceptor.accept(30 * ms), nullptr) << "still";
  EXPECT_EQ(acceptor.run_housekeeping(90 * ms), 11 * ms);
  EXPECT_EQ(acceptor.pending_count(), 3u);
  (void)acceptor.run_housekeeping(102 * ms);
  EXPECT_EQ(acceptor.pending_count(), 1u);
  EXPECT_FALSE(has_event());
  (void)acceptor.run_housekeeping(110 * ms);
  EXPECT_TRUE(has_event()) << "it listens again";
  EXPECT_NE(acceptor.accept(110 * ms), nullptr);
  EXPECT_NE(acceptor.accept(110 * ms), nullptr);
  EXPECT_EQ(acceptor.accept(110 * ms), nullptr);
}

TEST_F(Acceptors, TheOldestIsReplaced) {
  for (int i = 0; i < 4; ++i) call();
  PendingConnection* first = acceptor.accept(ms);
  ASSERT_NE(first, nullptr);
  for (int i = 0; i < 3; ++i) ASSERT_NE(acceptor.accept(50 * ms), nullptr);
  EXPECT_EQ(acceptor.accept(99 * ms), nullptr) << "nobody asks, nobody goes";
  EXPECT_TRUE(first->gone);
  EXPECT_EQ(acceptor.pending_count(), 3u);
}

TEST_F(Acceptors, WithoutDescriptorsCallersWait) {
  call();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::dup(0);
  ASSERT_GE(next, 0);
  ::close(next);
  const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  PendingConnection* pending = acceptor.accept(ms);
  const bool is_short = acceptor.is_short_of_descriptors();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(pending, nullptr);
  EXPECT_TRUE(is_short);
  EXPECT_FALSE(has_event()) << "nobody is woken for it";
  EXPECT_EQ(acceptor.run_housekeeping(2 * ms), 99 * ms);
  EXPECT_EQ(acceptor.run_housekeeping(101 * ms), 0u);
  EXPECT_NE(acceptor.accept(101 * ms), nullptr);
  EXPECT_FALSE(acceptor.is_short_of_descriptors());
}

TEST_F(Acceptors, AnAddressThatIsTakenIsToldOf) {
  const auto taken = Acceptor::bind(place, 0);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, EADDRINUSE);
  EXPECT_TRUE(acceptor.listen(8)) << "again, with another backlog";
}

TEST_F(Acceptors, SilenceEnds) {
  call();
  ASSERT_NE(acceptor.accept(ms), nullptr);
  EXPECT_EQ(acceptor.run_housekeeping(51 * ms), 50 * ms);
  EXPECT_EQ(acceptor.run_housekeeping(101 * ms), 0u);
  EXPECT_EQ(acceptor.pending_count(), 0u);
  std::array<char, 8> bytes{};
  EXPECT_EQ(::read(callers[0].get(), bytes.data(), bytes.size()), 0) << "it hears of it";
}

}  // namespace
}  // namespace weft::link::tcp
