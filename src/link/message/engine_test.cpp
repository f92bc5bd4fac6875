// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The engine over MessageLink: a send completes when it has left, also while its peer gives no credits, and an endpoint that closes knows of it.
#include "link/message/fake_engine.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace weft::link::message {
namespace {

static_assert(proto::HasSendCompletion<FakeLink> && proto::Coalesces<FakeLink>);

constexpr size_t message_bytes = 2000;
constexpr uint64_t tag = 7;

struct End : FakeEnd<FakeLink> {
  using FakeEnd::FakeEnd;
  std::vector<std::byte> bytes = std::vector<std::byte>(message_bytes);
};

struct MessageEngine : testing::Test {
  FakeNet net;
  End a{net, "a"};
  End b{net, "b"};
  fi_addr_t to_b = a.meet(b);

  void SetUp() override {
    for (size_t i = 0; i < messages + 1; ++i)
      ASSERT_EQ(b.rx.receive_tagged(b.bytes.data(), message_bytes, FI_ADDR_UNSPEC, tag, 0, nullptr), 0);
    send(1);
    turn();
    ASSERT_EQ(a.completed(), 1u);
    ASSERT_EQ(b.completed(), 1u);
  }
  void send(size_t count) {
    for (size_t i = 0; i < count; ++i)
      ASSERT_EQ(a.engine.send<true>(a.tx, a.bytes.data(), message_bytes, to_b, tag, nullptr), 0);
  }
  // All that a can do by itself.
  void turn_a() {
    for (int i = 0; i < 50; ++i) a.engine.progress();
  }
  void turn() {
    for (int i = 0; i < 50; ++i) {
      a.engine.progress();
      b.engine.progress();
    }
  }
  static constexpr size_t messages = FakeLink::local_credits + 4;
};

TEST_F(MessageEngine, WhatCompletesArrivesThoughTheSenderGoesAway) {
  for (size_t i = 0; i < messages; ++i) {
    send(1);
    a.engine.progress();
  }
  turn_a();
  const size_t completed = a.completed();
  EXPECT_LT(completed, messages);
  EXPECT_TRUE(a.engine.has_unsent());
  a.engine.push_unsent();  // there is no credit
  EXPECT_TRUE(a.engine.has_unsent());
  for (int i = 0; i < 50; ++i) b.engine.progress();  // a is elsewhere
  const size_t arrived = b.completed();
  EXPECT_GE(arrived, completed);
  turn();
  EXPECT_EQ(arrived + b.completed(), messages);
  EXPECT_EQ(completed + a.completed(), messages);
  EXPECT_FALSE(a.engine.has_unsent());
  EXPECT_EQ(a.failed + b.failed, 0u);
}

TEST_F(MessageEngine, WhatIsLeftWhenThePeerGoesHasFailed) {
  for (size_t i = 0; i < messages; ++i) {
    send(1);
    a.engine.progress();
  }
  turn_a();
  const size_t completed = a.completed();
  EXPECT_LT(completed, messages);
  b.engine.link().endpoints().die();
  turn_a();
  EXPECT_EQ(a.completed(), 0u);
  EXPECT_EQ(a.failed, messages - completed);
  EXPECT_FALSE(a.engine.has_unsent());
}

}  // namespace
}  // namespace weft::link::message
