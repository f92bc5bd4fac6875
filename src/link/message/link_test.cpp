// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// MessageLink over endpoints in memory: who connects to whom, what crosses, who is gone, and that receivers are never overrun.
#include "link/message/link.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "link/message/fake_endpoints.hpp"

namespace weft::link::message {
namespace {

using core::ProviderError;
using testing::ElementsAre;
using testing::HasSubstr;

template <class... Nodes>
void poll_all(int rounds, Nodes&... nodes) {
  for (int i = 0; i < rounds; ++i) (nodes.poll(), ...);
}

TEST(MessageLink, FramesOfOneSideAndAnswers) {
  FakeNet net;
  FakeNode a(net, "a"), b(net, "b");
  auto* to_b = a.connect(b);
  ASSERT_NE(to_b, nullptr);
  EXPECT_EQ(a.connect(b), to_b) << "one peer for an address";
  EXPECT_FALSE(a.send(*to_b, "too early"));
  poll_all(3, a, b);
  ASSERT_TRUE(a.send(*to_b, "one", 1));
  ASSERT_TRUE(a.send(*to_b, std::string(FakeLink::frame_bytes_max, 'x'), 2));
  poll_all(1, b);
  EXPECT_THAT(b.frames[a.address], ElementsAre("one", std::string(FakeLink::frame_bytes_max, 'x')));
  EXPECT_THAT(b.tags, ElementsAre(1, 2));
  ASSERT_EQ(b.peers.size(), 1u);
  EXPECT_EQ(b.last_address, a.address);
  ASSERT_TRUE(b.send(*b.peers[0], "answer"));
  poll_all(1, a);
  EXPECT_THAT(a.frames[b.address], ElementsAre("answer"));
}

// What follows others before the next poll is kept for a message of its own, and said to be.
TEST(MessageLink, SmallFramesShareAMessage) {
  FakeNet net;
  FakeNode a(net, "a"), b(net, "b");
  auto* to_b = a.connect(b);
  poll_all(3, a, b);
  std::vector<std::string> sent;
  for (int i = 0; i < 40; ++i) {
    sent.push_back(std::to_string(i));
    ASSERT_TRUE(a.send(*to_b, sent.back()));
    EXPECT_EQ(a.link.has_deferred_sends(), i >= 3) << "lone frames go at once";
  }
  EXPECT_TRUE(a.link.has_deferred_sends());
  poll_all(1, b);
  EXPECT_LT(b.frames[a.address].size(), 10u);
  a.link.push(*to_b);
  EXPECT_FALSE(a.link.has_deferred_sends());
  poll_all(1, b);
  EXPECT_EQ(b.frames[a.address], sent);
  sent.emplace_back("one more");
  ASSERT_TRUE(a.send(*to_b, sent.back()));
  sent.emplace_back(FakeLink::frame_bytes_max, 'x');
  ASSERT_TRUE(a.send(*to_b, sent.back())) << "a large one takes with it what waits before it";
  poll_all(1, a, b);
  EXPECT_EQ(b.frames[a.address], sent);
}

// What waits for a credit is still ours.
TEST(MessageLink, FramesSettleWhenTheyHaveLeft) {
  FakeNet net;
  FakeNode a(net, "a"), b(net, "b");
  auto* to_b = a.connect(b);
  poll_all(3, a, b);
  b.refusing = true;
  uint64_t sent = 0;
  while (a.send(*to_b, std::string(2000, 'x'))) {
    ++sent;
    a.poll();
  }
  EXPECT_EQ(a.link.sent_sequence(*to_b), sent);
  EXPECT_EQ(a.link.completed_sequence(*to_b), FakeLink::local_credits) << "each went alone";
  EXPECT_GT(sent, FakeLink::local_credits);
  EXPECT_TRUE(a.link.has_uncredited());
  b.refusing = false;
  poll_all(2, b, a);
  EXPECT_EQ(a.link.completed_sequence(*to_b), sent);
  EXPECT_FALSE(a.link.has_uncredited());
}

// Endpoints that never come to an end do not keep everything back.
TEST(MessageLink, FramesSettleWhileOthersFollow) {
  FakeNet net;
  FakeNode a(net, "a"), b(net, "b");
  auto* to_b = a.connect(b);
  poll_all(3, a, b);
  for (uint64_t i = 0; i < 100; ++i) {
    a.link.endpoints().hold_behind(1 + i);  // one for the Hello
    ASSERT_TRUE(a.send(*to_b, "one"));
    EXPECT_LE(a.link.completed_sequence(*to_b), i);
    EXPECT_GE(a.link.completed_sequence(*to_b) + 2, i);
    poll_all(1, a, b);
  }
  a.link.endpoints().hold_behind(UINT64_MAX);
  EXPECT_EQ(a.link.completed_sequence(*to_b), 100u);
}

// Both connect before either has heard of the other; then they are polled in any order.
TEST(MessageLink, ConnectsThatCrossSettleOnOneConnection) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    FakeNet net;
    FakeNode a(net, "a"), b(net, "b");
    std::vector<std::string> sent;
    size_t sent_a = 0, sent_b = 0;
    FakeLink::Peer *to_a = nullptr, *to_b = nullptr;
    const auto step = [&](FakeNode& node, FakeNode& other, FakeLink::Peer*& to, size_t& count) {
      if (to == nullptr && random() % 3 == 0) to = node.connect(other);
      if (to != nullptr && count < 40 && node.send(*to, std::to_string(count))) ++count;
      if (random() % 2 == 0) node.poll();
    };
    for (int i = 0; i < 200; ++i) {
      if (random() % 2 == 0) step(a, b, to_b, sent_a);
      else step(b, a, to_a, sent_b);
    }
    poll_all(5, a, b);
    for (size_t i = sent_a; i < 40; ++i)
      ASSERT_TRUE(a.send(*a.connect(b), std::to_string(i))) << i, poll_all(1, a, b);
    for (size_t i = sent_b; i < 40; ++i)
      ASSERT_TRUE(b.send(*b.connect(a), std::to_string(i))) << i, poll_all(1, a, b);
    poll_all(5, a, b);
    std::vector<std::string> expected;
    expected.reserve(40);
    for (int i = 0; i < 40; ++i) expected.push_back(std::to_string(i));
    ASSERT_EQ(a.frames[b.address], expected);
    ASSERT_EQ(b.frames[a.address], expected);
    ASSERT_TRUE(a.losses.empty() && b.losses.empty());
    ASSERT_EQ(a.peers.size(), 1u);
    ASSERT_EQ(b.peers.size(), 1u);
    ASSERT_EQ(a.link.endpoints().connections(), 1u);
    ASSERT_EQ(b.link.endpoints().connections(), 1u);
    ASSERT_TRUE(a.warnings.empty() && b.warnings.empty());
  }
}

TEST(MessageLink, AnEndpointThatClosesSaysSo) {
  FakeNet net;
  FakeNode a(net, "a");
  auto b = std::make_unique<FakeNode>(net, "b");
  auto* to_b = a.connect(*b);
  poll_all(3, a, *b);
  ASSERT_TRUE(b->send(*b->peers[0], "last words"));
  b.reset();
  poll_all(1, a);
  EXPECT_THAT(a.losses, ElementsAre(ProviderError::PeerClosed));
  std::string name = "b";
  name.resize(FakeEndpoints::address_length);
  EXPECT_THAT(a.frames[name], ElementsAre("last words"));
  EXPECT_TRUE(a.peers.empty());
  (void)to_b;
}

TEST(MessageLink, AProcessThatDiesDoesNot) {
  FakeNet net;
  FakeNode a(net, "a"), b(net, "b");
  a.connect(b);
  poll_all(3, a, b);
  b.link.endpoints().die();
  poll_all(1, a);
  EXPECT_THAT(a.losses, ElementsAre(ProviderError::PeerDied));
}

// Nobody asked what had completed while the peer was there, as for injected messages, and the connection that has ended completes nothing.
TEST(MessageLink, WhatThePeersMachineHasIsProven) {
  for (const bool delivered : {true, false}) {
    FakeNet net;
    FakeNode a(net, "a"), b(net, "b");
    auto* to_b = a.connect(b);
    poll_all(3, a, b);
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(a.send(*to_b, "injected"));
    poll_all(3, a, b);
    ASSERT_EQ(b.frames[a.address].size(), 10u);
    a.link.endpoints().set_delivered(delivered);
    b.link.endpoints().die();
    poll_all(1, a);
    EXPECT_THAT(a.proven, ElementsAre(delivered ? 10u : 0u));
  }
}

// Frames that the endpoints never got are not proven by what they delivered.
TEST(MessageLink, WhatWaitsForACreditIsNotProven) {
  FakeNet net;
  FakeNode a(net, "a"), b(net, "b");
  auto* to_b = a.connect(b);
  poll_all(3, a, b);
  b.refusing = true;
  const std::string large(FakeLink::collected_frame_bytes_max, 'x');
  uint64_t sent = 0;
  while (a.send(*to_b, large)) {
    ++sent;
    poll_all(1, a);
  }
  const uint64_t committed = to_b->committed;
  ASSERT_LT(committed, sent);
  b.link.endpoints().die();
  poll_all(1, a);
  EXPECT_THAT(a.proven, ElementsAre(committed));
}

TEST(MessageLink, NobodyThere) {
  FakeNet net;
  FakeNode a(net, "a");
  std::string address = "nobody";
  address.resize(FakeEndpoints::address_length);
  int error = 0;
  ASSERT_NE(a.link.connect(std::as_bytes(std::span(address)), error), nullptr);
  poll_all(1, a);
  EXPECT_THAT(a.losses, ElementsAre(ProviderError::PeerUnreachable));
  EXPECT_EQ(a.link.endpoints().connections(), 0u);
}

// The old process is gone without a word, a new one has its address.
TEST(MessageLink, ANewEndpointAtAnOldAddress) {
  FakeNet net;
  FakeNode a(net, "a");
  auto b = std::make_unique<FakeNode>(net, "b");
  a.connect(*b);
  poll_all(3, a, *b);
  net.hide_losses = true;
  b->link.endpoints().die();
  b = std::make_unique<FakeNode>(net, "b");
  net.hide_losses = false;
  auto* to_a = b->connect(a);
  poll_all(4, a, *b);
  EXPECT_THAT(a.losses, ElementsAre(ProviderError::PeerReplaced));
  ASSERT_TRUE(b->send(*to_a, "new"));
  poll_all(1, a);
  EXPECT_THAT(a.frames[b->address], ElementsAre("new"));
  EXPECT_EQ(a.peers.size(), 1u);
}

// The connection breaks and only one side has noticed when it connects again.
TEST(MessageLink, TheSameEndpointConnectsAgain) {
  FakeNet net;
  FakeNode a(net, "a"), b(net, "b");
  auto* to_a = b.connect(a);
  poll_all(3, a, b);
  b.link.forget(*to_a);
  b.peers.clear();
  to_a = b.connect(a);
  poll_all(6, b, a);
  ASSERT_TRUE(b.send(*to_a, "again"));
  poll_all(2, a, b);
  EXPECT_THAT(a.frames[b.address], ElementsAre("again"));
  EXPECT_THAT(a.losses, ElementsAre(ProviderError::PeerClosed));
}

TEST(MessageLink, ToOneself) {
  FakeNet net;
  FakeNode a(net, "a");
  auto* self = a.connect(a);
  poll_all(4, a);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(a.send(*self, std::to_string(i)));
    poll_all(1, a);
  }
  EXPECT_EQ(a.frames[a.address].size(), 100u);
  EXPECT_EQ(a.peers.size(), 1u);
  a.link.forget(*self);
  poll_all(1, a);
  EXPECT_EQ(a.link.endpoints().connections(), 0u);
}

// A receiver that takes nothing for a while: its buffers are never overrun (FakeEndpoints looks), and nothing is lost.
TEST(MessageLink, ASlowReceiver) {
  FakeNet net;
  FakeNode a(net, "a"), b(net, "b");
  auto* to_b = a.connect(b);
  poll_all(3, a, b);
  std::mt19937 random(1);
  uint64_t sent = 0;
  for (int i = 0; i < 20'000; ++i) {
    b.refusing = (i / 500) % 2 == 1;
    a.link.endpoints().set_refuses(random() % 50 == 0);
    if (a.send(*to_b, std::string(random() % 300, 'x'), sent)) ++sent;
    if (random() % 4 == 0) a.poll();
    if (random() % 8 == 0) b.poll();
  }
  a.link.endpoints().set_refuses(false);
  b.refusing = false;
  poll_all(5, a, b);
  ASSERT_EQ(b.tags.size(), sent);
  for (uint64_t i = 0; i < sent; ++i) ASSERT_EQ(b.tags[i], i);
  EXPECT_GT(sent, 5'000u);
}

// --- those that do not keep to the rules ---

struct Hostile : testing::Test {
  FakeNet net;
  FakeNode a{net, "a"};
  FakeEndpoints enemy;
  FakeEndpoints::Connection* raw = nullptr;

  void SetUp() override {
    enemy.set_context(&net);
    ASSERT_TRUE(enemy.open("enemy"));
    raw = &enemy.raw_connection_to(a.link.endpoints());
  }
  void TearDown() override { a.link.close(); }
  void say(const std::vector<uint8_t>& bytes) {
    if (!raw->lost) FakeEndpoints::say(*raw, std::as_bytes(std::span(bytes)));
    a.poll();
  }
  void send_hello(const Handshake& handshake) {
    std::array<std::byte, handshake_bytes_min + address_bytes_max> out{};
    FakeEndpoints::say(*raw, std::span(out).first(write_handshake(Kind::Hello, handshake, out.data())));
    a.poll();
  }
  Handshake proper() const {
    Handshake handshake;
    handshake.receive_count = 16;
    handshake.incarnation = 7;
    handshake.address = std::string("enemy").append(FakeEndpoints::address_length - 5, '\0');
    return handshake;
  }
  bool cut_off() const { return raw->lost; }
};

TEST_F(Hostile, NoMessage) {
  say({});
  EXPECT_TRUE(cut_off());
  EXPECT_THAT(a.warnings.at(0), HasSubstr("none of ours"));
}
TEST_F(Hostile, UnknownKind) {
  say({9, 0, 0, 0});
  EXPECT_TRUE(cut_off());
}
TEST_F(Hostile, FramesWithoutAHandshake) {
  say({1, 0, 0, 0, 1, 0, 0, 0});
  EXPECT_TRUE(cut_off());
}
TEST_F(Hostile, AGreetingThatIsTooShort) {
  say({2, 0, 0, 0, 'w', 'e', 'f', 't'});
  EXPECT_TRUE(cut_off());
}
TEST_F(Hostile, AnotherVersion) {
  Handshake handshake = proper();
  handshake.version = 2;
  send_hello(handshake);
  EXPECT_TRUE(cut_off());
  EXPECT_THAT(a.warnings.at(0), HasSubstr("another version"));
}
TEST_F(Hostile, NoBuffers) {
  Handshake handshake = proper();
  handshake.receive_count = 1;
  send_hello(handshake);
  EXPECT_TRUE(cut_off());
}
TEST_F(Hostile, AnAddressOfAnotherFormat) {
  Handshake handshake = proper();
  handshake.address = "x";
  send_hello(handshake);
  EXPECT_TRUE(cut_off());
}
TEST_F(Hostile, CreditsThatNobodyOwes) {
  send_hello(proper());
  ASSERT_EQ(a.peers.size(), 1u);
  say({5, 0, 1, 0});
  EXPECT_TRUE(cut_off());
  EXPECT_THAT(a.losses, ElementsAre(ProviderError::PeerMisbehaved));
}
TEST_F(Hostile, AFrameLongerThanItsMessage) {
  send_hello(proper());
  say({1, 0, 0, 0, 1, 0, 200, 0, 1, 2, 3});
  EXPECT_TRUE(cut_off());
}
TEST_F(Hostile, TwoGreetings) {
  send_hello(proper());
  send_hello(proper());
  EXPECT_TRUE(cut_off());
}
TEST_F(Hostile, AnAnswerThatNobodyAskedFor) {
  std::array<std::byte, handshake_bytes_min + address_bytes_max> out{};
  FakeEndpoints::say(*raw, std::span(out).first(write_handshake(Kind::Welcome, proper(), out.data())));
  a.poll();
  EXPECT_TRUE(cut_off());
}
TEST_F(Hostile, ManyThatSayNothing) {
  for (size_t i = 0; i < FakeLink::silent_max + 100; ++i) (void)enemy.raw_connection_to(a.link.endpoints());
  a.poll();
  a.poll();
  EXPECT_EQ(a.link.endpoints().connections(), FakeLink::silent_max);
  // They keep nobody out.
  FakeNode c(net, "c");
  FakeLink::Peer* peer = c.connect(a);
  for (int i = 0; i < 10; ++i) {
    c.poll();
    a.poll();
  }
  ASSERT_EQ(c.peers.size(), 1u);
  EXPECT_TRUE(c.send(*peer, "hi"));
  a.poll();
  EXPECT_EQ(a.frames[c.address], std::vector<std::string>{"hi"});
}

}  // namespace
}  // namespace weft::link::message
