// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Messages over RC queue pairs: order, credits, who says what first, and peers that lie or go.
#include "link/roce/message_channel.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "os/clock.hpp"

namespace weft::link::roce {
namespace {

using Role = MessageChannel::Role;

struct End {
  MessageChannel channel;
  std::vector<std::string> got;
  size_t takes = SIZE_MAX;  // before it refuses

  void poll() {
    (void)channel.poll([&](std::span<const std::byte> message) {
      if (got.size() == takes) return false;
      got.emplace_back(reinterpret_cast<const char*>(message.data()), message.size());
      return true;
    });
  }
  bool send(const std::string& text) {
    std::byte* const out = channel.reserve();
    if (out == nullptr) return false;
    std::memcpy(out, text.data(), text.size());
    channel.commit(text.size());
    return true;
  }
};

template <class Done>
bool turn(End& a, End& b, Done&& done) {
  for (const uint64_t end = os::monotonic_ns() + 50'000'000'000; os::monotonic_ns() < end;) {
    a.poll();
    b.poll();
    if (done()) return true;
  }
  return false;
}

void connect(End& active, End& passive) {
  const auto host = *os::SocketAddress::from_text("127.0.0.1:0");
  ASSERT_TRUE(active.channel.open(host, host));
  ASSERT_TRUE(passive.channel.open(host, {}));
  ASSERT_TRUE(passive.channel.connect(active.channel.name(), Role::Passive));
  ASSERT_TRUE(active.channel.connect(passive.channel.name(), Role::Active));
}

TEST(RoceMessageChannel, ThePassiveSideWaitsForAWord) {
  End a, b;
  const auto host = *os::SocketAddress::from_text("127.0.0.1:0");
  ASSERT_TRUE(a.channel.open(host, host));
  ASSERT_TRUE(b.channel.open(host, {}));
  ASSERT_TRUE(b.channel.connect(a.channel.name(), Role::Passive));
  b.poll();
  EXPECT_FALSE(b.send("too early"));
  ASSERT_TRUE(a.channel.connect(b.channel.name(), Role::Active));
  EXPECT_TRUE(turn(a, b, [&] { return b.send("now"); }));
  EXPECT_TRUE(turn(a, b, [&] { return !a.got.empty(); }));
  EXPECT_EQ(a.got[0], "now");
}

TEST(RoceMessageChannel, MessagesOfAllSizesInOrder) {
  End a, b;
  connect(a, b);
  constexpr size_t count = 3000;
  size_t sent = 0;
  const auto text = [](size_t i) {
    return std::string(i * 37 % (MessageChannel::message_bytes_max + 1), static_cast<char>('a' + i % 26));
  };
  ASSERT_TRUE(turn(a, b, [&] {
    while (sent < count && a.send(text(sent))) ++sent;
    return b.got.size() == count;
  }));
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(b.got[i], text(i)) << i;
  EXPECT_TRUE(turn(a, b, [&] { return a.channel.acknowledged() == count; }));
}

TEST(RoceMessageChannel, WhatIsNotConsumedStopsTheSender) {
  End a, b;
  connect(a, b);
  b.takes = 0;
  size_t sent = 0;
  const auto sends = [&] { sent += a.send(std::to_string(sent)) ? 1 : 0; };
  EXPECT_TRUE(turn(a, b, [&] {
    sends();
    return sent == MessageChannel::credits;
  }));
  const uint64_t until = os::monotonic_ns() + 50'000'000;
  (void)turn(a, b, [&] {
    sends();
    return os::monotonic_ns() > until;
  });
  EXPECT_EQ(sent, MessageChannel::credits);
  EXPECT_FALSE(b.channel.arm());  // it holds some
  b.takes = SIZE_MAX;
  ASSERT_TRUE(turn(a, b, [&] { return b.got.size() == sent && a.send("more"); }));
  EXPECT_TRUE(turn(a, b, [&] { return b.got.size() == sent + 1; }));
}

TEST(RoceMessageChannel, ASleeperIsWoken) {
  End a, b;
  connect(a, b);
  ASSERT_TRUE(turn(a, b, [&] { return b.send("x"); }));
  ASSERT_TRUE(turn(a, b, [&] { return b.channel.acknowledged() == 1 && a.got.size() == 1; }));
  while (!b.channel.arm()) b.poll();
  EXPECT_TRUE(a.send("wake"));
  pollfd ready{b.channel.wait_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&ready, 1, 10'000), 1);
  b.channel.disarm();
  EXPECT_TRUE(turn(a, b, [&] { return b.got.size() == 1; }));
}

TEST(RoceMessageChannel, WhoIsShownAMessageMayCloseTheChannel) {
  End a, b;
  connect(a, b);
  constexpr size_t count = MessageChannel::credits / 4 + 1;  // so that credits are owed
  size_t sent = 0;
  ASSERT_TRUE(turn(a, a, [&] {
    while (sent < count && a.send("x")) ++sent;
    b.channel.drive();
    return a.channel.acknowledged() == count;
  }));
  size_t shown = 0;
  (void)b.channel.poll([&](std::span<const std::byte>) {
    if (++shown < count) return true;
    b.channel.close();
    return false;
  });
  EXPECT_EQ(shown, count);
  EXPECT_FALSE(b.channel.is_open());
}

TEST(RoceMessageChannel, SharedMemoryCanBeSwitchedOff) {
  const auto shm_sent = [] {
    End a, b;
    connect(a, b);
    size_t sent = 0;
    EXPECT_TRUE(turn(a, b, [&] {
      if (sent < 2000 && a.send("x")) ++sent;
      return b.got.size() == 2000;
    }));
    auto shared = SharedDevice::at(*os::SocketAddress::from_text("127.0.0.1:0"));
    const std::scoped_lock guard((*shared)->device->lock());
    return (*shared)->device->counters().shm.sent;
  };
  EXPECT_GT(shm_sent(), 0U);
  ::setenv("WEFT_VERBS_SHM", "0", 1);
  EXPECT_EQ(shm_sent(), 0U);
  ::unsetenv("WEFT_VERBS_SHM");
}

TEST(RoceMessageChannel, OtherNamesAreRefused) {
  End a;
  const auto host = *os::SocketAddress::from_text("127.0.0.1:0");
  ASSERT_TRUE(a.channel.open(host, host));
  EXPECT_FALSE(MessageChannel::is_name({}));
  EXPECT_FALSE(a.channel.connect({}, Role::Active));
  MessageChannel::Name name{};
  EXPECT_FALSE(a.channel.connect(name, Role::Active));
}

}  // namespace
}  // namespace weft::link::roce
