// The engine over MessageLink: a send completes when it has left, also while its peer gives no credits, and an endpoint that closes knows of it.
#include "proto/engine/engine.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "link/message/fake_endpoints.hpp"

namespace weft::link::message {
namespace {

using Engine = proto::Engine<FakeLink>;
static_assert(proto::HasSendCompletion<FakeLink> && proto::KeepsBack<FakeLink>);

constexpr size_t message_bytes = 2000;
constexpr uint64_t tag = 7;

struct End {
  End(FakeNet& net, const std::string& name) : engine(proto::EngineLimits{}) {
    engine.link().set_context(&net);
    EXPECT_TRUE(engine.link().open(name, engine));
    engine.set_address_vector(&av);
    engine.set_regions(&regions);
    engine.set_receive_context(0, &rx);
    engine.add_queue(&cq);
    rx.cq = tx.cq = &cq;
    rx.settle();
    tx.settle();
  }
  fi_addr_t meet(End& other) {
    const auto address = other.engine.link().address();
    return av.insert(core::Address(address.data(), address.size()));
  }
  // What the queue has: completions, and errors in `failed`.
  size_t completed() {
    size_t count = 0;
    fi_cq_tagged_entry entry;
    core::CompletionError error;
    while (true) {
      const ssize_t got = cq.read<fi_cq_tagged_entry, false>(&entry, 1, nullptr);
      if (got == 1) ++count;
      else if (got == -FI_EAVAIL && cq.read_error(error) == 0) ++failed;
      else return count;
    }
  }

  core::AddressVector av{0};
  core::MemoryRegionTable regions{{false, false, false}, nullptr};
  core::CompletionQueue cq{256};
  proto::TxContext tx;
  proto::RxContext rx{0, 128, 1};
  Engine engine;
  size_t failed = 0;
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
  static constexpr size_t messages = FakeLink::credits_of_ours + 4;
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
