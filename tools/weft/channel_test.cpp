// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The control channel: messages in order, time limits, and the end of the other side.
#include "channel.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <future>

#include "failure.hpp"

namespace weft::tool {
namespace {

using std::chrono::milliseconds;

TEST(Channel, MessagesComeInOrderAndWhole) {
  auto [a, b] = local_channel();
  const std::string large(100'000, 'x');
  auto sending = std::async(std::launch::async, [&a = a, &large] {
    for (int i = 0; i < 20; ++i) a.send({{"i", i}, {"text", large}});
  });
  for (int i = 0; i < 20; ++i) {
    const nlohmann::json message = b.receive(milliseconds(5000));
    EXPECT_EQ(message.at("i"), i);
    EXPECT_EQ(message.at("text"), large);
  }
  sending.get();
}

TEST(Channel, WaitingCallsIdleAndEndsAtTheLimit) {
  auto [a, b] = local_channel();
  int idle = 0;
  EXPECT_THROW(b.receive(milliseconds(20), [&] { ++idle; }), Failure);
  EXPECT_GT(idle, 0);
}

TEST(Channel, TheEndOfTheOtherSideIsSeen) {
  auto [a, b] = local_channel();
  EXPECT_TRUE(b.peer_is_there());
  a.close();
  EXPECT_FALSE(b.peer_is_there());
  EXPECT_THROW(b.receive(milliseconds(5000)), Failure);
  EXPECT_THROW(b.send({{"x", 1}}), Failure);
}

TEST(Channel, AnErrorOfTheOtherSideIsThrownHere) {
  auto [a, b] = local_channel();
  a.send({{"error", "no memory"}});
  try {
    b.receive(milliseconds(5000));
    FAIL() << "nothing was thrown";
  } catch (const Failure& failure) {
    EXPECT_STREQ(failure.what(), "no memory");
  }
}

TEST(Channel, WhatIsNotOursIsRefused) {
  auto [a, b] = local_channel();
  ASSERT_EQ(::send(a.fd(), "GET /\n", 6, 0), 6);
  EXPECT_THROW(b.receive(milliseconds(5000)), Failure);
}

TEST(Channel, TcpTakesOneConnectionAndKnowsItsAddress) {
  Listener listener(0);
  Channel client = connect_to("127.0.0.1", listener.port(), milliseconds(2000));
  Channel server = listener.accept(milliseconds(2000));
  EXPECT_THROW(listener.accept(milliseconds(1)), Failure);
  EXPECT_EQ(local_address(client), "127.0.0.1");
  EXPECT_EQ(local_address(server), "127.0.0.1");
  client.send({{"hello", true}});
  EXPECT_EQ(server.receive(milliseconds(5000)).at("hello"), true);
}

}  // namespace
}  // namespace weft::tool
