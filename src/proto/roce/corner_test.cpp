// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Queue pairs where several things come together: full links, late packets, states that change among traffic.
#include <gtest/gtest.h>

#include <cstring>

#include "proto/roce/sim_pair.hpp"

namespace weft::proto::roce::sim {
namespace {

using wire::roce::Operation;
using wire::roce::Packet;
using wire::roce::Transport;

SendRequest to_peer(SendOpcode opcode, const Element& element, const Block& theirs, uint64_t id = 1,
                    uint8_t flags = signaled) {
  SendRequest q = request(opcode, element, id, flags);
  q.remote_address = theirs.address();
  q.remote_key = theirs.region->key;
  return q;
}

// A packet for `port`'s queue pair.
Packet packet_for(const Port& port, Operation op, uint32_t psn) {
  Packet p;
  p.bth.opcode = wire::roce::opcode(Transport::ReliableConnection, op);
  p.bth.destination = port.qp->number;
  p.bth.psn = psn;
  p.bth.ack_request = true;
  return p;
}

// --- whose turn it is ---

TEST(RoceTurn, ReadsOfThePeerDoNotHoldUpOwnRequests) {
  Pair p;
  p.common.max_reads = p.common.max_dest_reads = 4;
  p.connect();
  Block ours(p.a, 60'000), theirs(p.b, 60'000);
  const auto read = [&] {
    ASSERT_EQ(p.send(p.b, to_peer(SendOpcode::Read, theirs.element(0, 60'000), ours)), 0);
  };
  for (int i = 0; i < 4; ++i) read();
  for (const PacketBytes& one : p.b.out) p.give(p.a, one);
  p.b.out.clear();
  ASSERT_EQ(p.send(p.a, to_peer(SendOpcode::Write, ours.element(0, 8), theirs, 7)), 0);
  for (int round = 0; round < 50; ++round) {
    for (auto [from, to] : {std::pair{&p.a, &p.b}, std::pair{&p.b, &p.a}}) {
      std::deque<PacketBytes> batch;
      batch.swap(from->out);
      for (const PacketBytes& one : batch) p.give(*to, one);
      to->adapter.flush(p.now);
    }
    for (size_t done = Pair::completions(p.b).size(); done > 0; --done) read();
  }
  expect_one(p.a, 7, CompletionOpcode::Write);
}

TEST(RoceTurn, OneFlushAcknowledgesForManyQueuePairs) {
  Pair p;
  p.connect();
  std::vector<QueuePair*> all;
  for (int i = 0; i < 100; ++i) {
    QueuePairRequest q;
    q.pd = 1;
    q.send_cq = q.receive_cq = p.b.cq;
    p.b.qp = *p.b.adapter.create_qp(q);
    p.raise(p.b, p.a);
    all.push_back(p.b.qp);
  }
  for (QueuePair* qp : all) {
    p.b.qp = qp;
    p.give(p.b, make(packet_for(p.b, Operation::WriteOnly, p.common.rq_psn)));
  }
  p.b.adapter.flush(p.now);
  EXPECT_EQ(p.b.out.size(), 100u);
}

// The order in which a program that polls answers: its own request, and then the acknowledgement of what it has heard.
TEST(RoceTurn, WhatTheProgramAnswersGoesBeforeTheAcknowledgement) {
  Pair p;
  p.connect();
  Block ours(p.a, 64), theirs(p.b, 64);
  PacketBytes held;
  for (Port* port : {&p.a, &p.b})
    ASSERT_EQ(p.receive(*port, 9, {(port == &p.a ? ours : theirs).element(0, 64)}), 0);
  ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, ours.element(0, 8))), 0);
  (void)take(p.a, held);
  p.give(p.b, held);
  EXPECT_TRUE(p.b.out.empty());
  EXPECT_TRUE(p.b.adapter.has_ready());
  ASSERT_EQ(Pair::completions(p.b).size(), 1u);
  ASSERT_EQ(p.send(p.b, request(SendOpcode::Send, theirs.element(0, 8))), 0);
  ASSERT_EQ(p.b.out.size(), 2u);
  for (const Operation wanted : {Operation::SendOnly, Operation::Acknowledge}) {
    EXPECT_EQ(take(p.b, held).operation(), wanted);
    p.give(p.a, held);
  }
  p.exchange();
  EXPECT_EQ(Pair::completions(p.a).size(), 2u);
  EXPECT_EQ(Pair::completions(p.b).size(), 1u);
}

// A refusal goes first: the peer has to go back.
TEST(RoceTurn, ARefusalGoesBeforeRequests) {
  Pair p;
  p.connect();
  Block ours(p.a, 64), theirs(p.b, 64);
  PacketBytes held;
  p.give(p.b, make(packet_for(p.b, Operation::WriteOnly, p.common.rq_psn + 1)));
  ASSERT_EQ(p.send(p.b, request(SendOpcode::Send, theirs.element(0, 8))), 0);
  ASSERT_EQ(p.b.out.size(), 2u);
  EXPECT_EQ(take(p.b, held).operation(), Operation::Acknowledge);
  EXPECT_EQ(take(p.b, held).operation(), Operation::SendOnly);
}

// --- a requester that waits for acknowledgements that it did not ask for; without a timeout it would wait for ever ---

TEST(RoceTurn, ARequestThatFailsBehindOthersAsksForThem) {
  for (const uint32_t good : {0u, 300u, 2000u}) {
    Pair p;
    p.common.timeout = 0;
    p.connect();
    Block from(p.a, 4096), to(p.b, 4096);
    p.a.refuses = true;
    ASSERT_EQ(p.send(p.a, to_peer(SendOpcode::Write, from.element(0, 8), to, 1, 0)), 0);
    const std::array<Element, 2> elements{from.element(0, good), Element{from.address(), 1000, 1}};
    SendRequest bad = to_peer(SendOpcode::Write, from.element(0, 8), to, 2, 0);
    bad.elements = elements;
    ASSERT_EQ(p.send(p.a, bad), 0);
    p.a.refuses = false;
    p.exchange();
    expect_one(p.a, 2, CompletionOpcode::Write, Status::LocalProtection);
  }
}

TEST(RoceTurn, ARefusedReadBehindOthersAsksForThem) {
  Pair p;
  p.common.timeout = 0;
  p.common.max_reads = 0;
  p.connect();
  Block from(p.a, 64), to(p.b, 64);
  p.a.refuses = true;
  ASSERT_EQ(p.send(p.a, to_peer(SendOpcode::Write, from.element(0, 8), to, 1, 0)), 0);
  ASSERT_EQ(p.send(p.a, to_peer(SendOpcode::Read, from.element(0, 8), to, 2, 0)), 0);
  p.a.refuses = false;
  p.exchange();
  expect_one(p.a, 2, CompletionOpcode::Read, Status::LocalOperation);
}

TEST(RoceTurn, DrainingAsksForWhatIsUnderWay) {
  Pair p;
  p.common.timeout = 0;
  p.connect();
  Block from(p.a, 64), to(p.b, 64);
  p.a.refuses = true;
  for (uint64_t i = 0; i < 2; ++i)
    ASSERT_EQ(p.send(p.a, to_peer(SendOpcode::Write, from.element(0, 8), to, i, 0)), 0);
  Attributes x;
  x.drain_notify = true;
  p.step(p.a, x, QpState::SendDrained, attr_drain_notify);
  p.a.refuses = false;
  p.exchange();
  EXPECT_EQ(p.a.count_async(AsyncKind::SendQueueDrained), 1u);
}

// --- a responder ---

TEST(RoceTurn, APacketThatComesLateLeavesAGapBehindIt) {
  Pair p;
  p.common.timeout = 0;
  p.connect();
  Block from(p.a, 1024), to(p.b, 1024);
  ASSERT_EQ(p.send(p.a, to_peer(SendOpcode::Write, from.element(0, 512), to)), 0);
  ASSERT_EQ(p.a.out.size(), 2u);
  std::swap(p.a.out[0], p.a.out[1]);
  for (const PacketBytes& one : p.a.out) p.give(p.b, one);
  p.a.out.clear();
  p.b.adapter.flush(p.now);
  PacketBytes held;
  const Packet ack = take(p.b, held);
  EXPECT_EQ(ack.aeth.syndrome, wire::roce::syndrome_ack);
  EXPECT_EQ(ack.bth.psn, p.common.rq_psn);
  const Packet nak = take(p.b, held);
  EXPECT_EQ(nak.aeth.syndrome, 0x60);
  EXPECT_EQ(nak.bth.psn, psn_add(p.common.rq_psn, 1));
  EXPECT_TRUE(p.b.out.empty());
  p.give(p.a, held);
  p.exchange();
  expect_one(p.a, 1, CompletionOpcode::Write);
}

TEST(RoceTurn, ReadsGoOnWhenTheirNumberIsChanged) {
  for (const uint8_t number : {1, 4}) {
    Pair p;
    p.connect();
    Block ours(p.a, 1024), theirs(p.b, 1024);
    fill(theirs, 9);
    p.b.refuses = true;
    ASSERT_EQ(p.send(p.a, to_peer(SendOpcode::Read, ours.element(0, 1000), theirs)), 0);
    p.exchange_refused();
    p.step(p.b, {}, QpState::SendDrained, 0);
    Attributes x;
    x.max_dest_reads = number;
    p.step(p.b, x, QpState::SendDrained, attr_max_dest_reads);
    p.b.refuses = false;
    p.exchange();
    expect_one(p.a, 1, CompletionOpcode::Read);
    EXPECT_EQ(std::memcmp(ours.at, theirs.at, 1000), 0);
  }
}

TEST(RoceTurn, FewerReadsThanAreBeingAnsweredAreRefused) {
  Pair p;
  p.connect();
  Block ours(p.a, 1024), theirs(p.b, 1024);
  p.b.refuses = true;
  for (uint64_t i = 0; i < 2; ++i)
    ASSERT_EQ(p.send(p.a, to_peer(SendOpcode::Read, ours.element(0, 8), theirs, i)), 0);
  p.exchange_refused();
  p.step(p.b, {}, QpState::SendDrained, 0);
  Attributes x;
  x.state = QpState::SendDrained;
  x.max_dest_reads = 1;
  EXPECT_FALSE(p.b.adapter.modify(*p.b.qp, x, attr_state | attr_max_dest_reads, p.now));
  EXPECT_EQ(p.b.qp->attributes.max_dest_reads, 2);
  p.b.refuses = false;
  p.exchange();
  EXPECT_EQ(Pair::completions(p.a).size(), 2u);
}

TEST(RoceTurn, TheLastNakLeavesAlsoFromAQueuePairThatIsMovedToError) {
  Pair p;
  p.connect();
  Block ours(p.a, 64), theirs(p.b, 64);
  SendRequest w = to_peer(SendOpcode::Write, ours.element(0, 8), theirs);
  w.remote_key ^= 1;
  p.b.refuses = true;
  ASSERT_EQ(p.send(p.a, w), 0);
  p.exchange_refused();
  p.step(p.b, {}, QpState::Error, 0);
  p.b.refuses = false;
  p.exchange();
  expect_one(p.a, 1, CompletionOpcode::Write, Status::RemoteAccess);
}

TEST(RoceTurn, TheNakNamesTheReadThatFailedFirst) {
  Pair p;
  p.connect();
  Block ours(p.a, 1024), theirs(p.b, 1024), other(p.b, 64);
  p.b.refuses = true;
  ASSERT_EQ(p.send(p.a, to_peer(SendOpcode::Read, ours.element(0, 1000), theirs, 1)), 0);
  ASSERT_EQ(p.send(p.a, to_peer(SendOpcode::Write, ours.element(0, 65), other, 2)), 0);
  p.exchange_refused();
  EXPECT_EQ(p.b.qp->state, QpState::Error);
  ASSERT_EQ(p.b.adapter.memory().remove(*theirs.region), 0);
  p.b.refuses = false;
  p.exchange();
  const auto got = Pair::completions(p.a);
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].status, Status::RemoteAccess);
  EXPECT_EQ(got[1].status, Status::Flushed);
}

// PSNs come again after 2^24 packets; what a duplicate atomic asks for is the newest one of that PSN.
TEST(RoceTurn, ADuplicateAtomicIsAnsweredFromTheNewest) {
  Pair p;
  p.connect();
  Block theirs(p.b, 64);
  const auto add = [&](uint32_t psn) {
    Packet q = packet_for(p.b, Operation::FetchAdd, psn);
    q.atomic = {theirs.address(), theirs.region->key, 1, 0};
    p.give(p.b, make(q));
    p.b.adapter.flush(p.now);
    PacketBytes held;
    return take(p.b, held).atomic_ack;
  };
  for (uint64_t i = 0; i < 4; ++i) {
    p.b.qp->responder.expected = 100;
    EXPECT_EQ(add(100), i);
    EXPECT_EQ(add(100), i);
  }
}

TEST(RoceTurn, ALateDuplicateReadOfMemoryThatIsGoneFailsNothing) {
  Pair p;
  p.connect();
  Block ours(p.a, 64);
  auto theirs = std::make_unique<Block>(p.b, 64);
  ASSERT_EQ(p.send(p.a, to_peer(SendOpcode::Read, ours.element(0, 8), *theirs)), 0);
  const PacketBytes read = p.a.out.front();
  p.exchange();
  expect_one(p.a, 1, CompletionOpcode::Read);
  ASSERT_EQ(p.b.adapter.memory().remove(*theirs->region), 0);
  theirs.reset();
  p.give(p.b, read);
  p.exchange();
  EXPECT_EQ(p.b.qp->state, QpState::ReadyToSend);
  EXPECT_EQ(p.b.qp->responder.pending, 0u);
}

TEST(RoceTurn, ASendHasAtMostTheBytesOfAMessage) {
  Pair p;
  p.connect();
  Block to(p.b, 1024);
  ASSERT_EQ(p.receive(p.b, 1, {to.element(0, UINT32_MAX), to.element(0, UINT32_MAX)}), 0);
  const std::vector<std::byte> full(256);
  Packet first = packet_for(p.b, Operation::SendFirst, p.common.rq_psn);
  first.payload = full;
  p.give(p.b, make(first));
  p.b.adapter.flush(p.now);
  p.b.out.clear();
  p.b.qp->responder.received = message_bytes_max - 255;
  Packet next = packet_for(p.b, Operation::SendMiddle, psn_add(p.common.rq_psn, 1));
  next.payload = full;
  p.give(p.b, make(next));
  p.b.adapter.flush(p.now);
  PacketBytes held;
  EXPECT_EQ(take(p.b, held).aeth.syndrome, 0x61);
  expect_one(p.b, 1, CompletionOpcode::Receive, Status::LocalLength);
}

TEST(RoceTurn, ReceivesWithoutElements) {
  Pair p(QpType::Rc, [](QueuePairRequest& q) { q.capacities.receive_elements = 0; });
  p.connect();
  Block from(p.a, 64), to(p.b, 64);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(p.receive(p.b, i, {}), 0);
  EXPECT_EQ(p.receive(p.b, 3, {to.element(0, 8)}), -EINVAL);
  ASSERT_EQ(p.send(p.a, to_peer(SendOpcode::WriteImmediate, from.element(0, 8), to)), 0);
  p.exchange();
  expect_one(p.b, 0, CompletionOpcode::ReceiveWriteImmediate);
}

// --- events ---

TEST(RoceEvent, DrainedIsToldOnlyToWhoAsksForItThisTime) {
  Pair p;
  p.connect();
  Attributes x;
  x.drain_notify = true;
  p.step(p.a, x, QpState::SendDrained, attr_drain_notify);
  EXPECT_EQ(p.a.count_async(AsyncKind::SendQueueDrained), 1u);
  p.step(p.a, {}, QpState::ReadyToSend, 0);
  p.step(p.a, {}, QpState::SendDrained, 0);
  EXPECT_EQ(p.a.count_async(AsyncKind::SendQueueDrained), 1u);
}

// What a completion says is no asynchronous event as well (IBTA 11.6.3: for errors that have no work request).
TEST(RoceEvent, AFailedReceiveIsNoEvent) {
  for (const bool is_long : {true, false}) {
    Pair p;
    p.connect();
    Block from(p.a, 64), to(p.b, 64);
    Element element = to.element(0, is_long ? 4 : 8);
    if (!is_long) element.key ^= 1;
    ASSERT_EQ(p.receive(p.b, 1, {element}), 0);
    ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8))), 0);
    p.exchange();
    expect_one(p.b, 1, CompletionOpcode::Receive, is_long ? Status::LocalLength : Status::LocalProtection);
    expect_one(p.a, 1, CompletionOpcode::Send,
               is_long ? Status::RemoteInvalidRequest : Status::RemoteOperation);
    EXPECT_EQ(p.b.async.size(), 0u);
  }
}

// Class C of table 63 (IBTA 9.9.3.1.3): the receive request that the message uses is completed with the error. Without one
// there is an event.
TEST(RoceEvent, AFaultOfAMessageWithAReceiveCompletesIt) {
  struct Case {
    SendOpcode opcode;
    uint32_t bytes;
    Status completion;  // of the receive; Success: it is flushed, and there is an event
  };
  for (const Case& one : {Case{SendOpcode::SendInvalidate, 8, Status::RemoteAccess},
                          Case{SendOpcode::SendInvalidate, 600, Status::RemoteAccess},
                          Case{SendOpcode::WriteImmediate, 8, Status::RemoteAccess},
                          Case{SendOpcode::WriteImmediate, 600, Status::Success},
                          Case{SendOpcode::Write, 8, Status::Success}}) {
    Pair p;
    p.connect();
    Block from(p.a, 1024), to(p.b, 1024);
    ASSERT_EQ(p.receive(p.b, 7, {to.element(0, 1024)}), 0);
    SendRequest q = to_peer(one.opcode, from.element(0, one.bytes), to);
    q.remote_key ^= 1;
    q.invalidate = to.region->key;  // of a region
    ASSERT_EQ(p.send(p.a, q), 0);
    p.exchange();
    expect_one(p.a, 1, CompletionOpcode::Send, Status::RemoteAccess);
    const bool completes = one.completion != Status::Success;
    expect_one(p.b, 7, CompletionOpcode::Receive, completes ? one.completion : Status::Flushed);
    EXPECT_EQ(p.b.count_async(AsyncKind::QpAccessError), completes ? 0u : 1u);
    EXPECT_EQ(p.b.qp->state, QpState::Error);
  }
}

// A message that breaks the order of opcodes, in the middle of a SEND.
TEST(RoceEvent, AnInvalidRequestWithinASendCompletesItsReceive) {
  Pair p;
  p.connect();
  Block to(p.b, 1024);
  ASSERT_EQ(p.receive(p.b, 7, {to.element(0, 1024)}), 0);
  const std::vector<std::byte> full(256);
  Packet first = packet_for(p.b, Operation::SendFirst, p.common.rq_psn);
  first.payload = full;
  p.give(p.b, make(first));
  p.give(p.b, make(packet_for(p.b, Operation::SendOnly, psn_add(p.common.rq_psn, 1))));
  expect_one(p.b, 7, CompletionOpcode::Receive, Status::RemoteInvalidRequest);
  EXPECT_TRUE(p.b.async.empty());
}

// Without a receive request it is not ready, whatever the key.
TEST(RoceEvent, AWriteWithImmediateAndABadKeyWaitsForAReceive) {
  Pair p;
  p.common.rnr_retry = 7;
  p.connect();
  Block from(p.a, 64), to(p.b, 64);
  SendRequest q = to_peer(SendOpcode::WriteImmediate, from.element(0, 8), to);
  q.remote_key ^= 1;
  ASSERT_EQ(p.send(p.a, q), 0);
  p.exchange();
  EXPECT_EQ(p.b.qp->state, QpState::ReadyToSend);
  ASSERT_EQ(p.receive(p.b, 7, {to.element(0, 64)}), 0);
  p.pass(1'000'000);
  expect_one(p.b, 7, CompletionOpcode::Receive, Status::RemoteAccess);
}

TEST(RoceEvent, AnOverrunOfAnXrcQueueFailsTheQueuePair) {
  Pair p;
  p.a.adapter.destroy_qp(*p.a.qp);
  p.b.adapter.destroy_qp(*p.b.qp);
  QueuePairRequest q;
  q.type = QpType::XrcSend;
  q.pd = 1;
  q.send_cq = p.a.cq;
  q.capacities = {8, 0, 2, 0, 0};
  p.a.qp = *p.a.adapter.create_qp(q);
  QueuePairRequest t;
  t.type = QpType::XrcReceive;
  t.xrcd = 5;
  p.b.qp = *p.b.adapter.create_qp(t);
  CompletionQueue* small = *p.b.adapter.create_cq(2);
  SharedReceiveQueue* srq = *p.b.adapter.create_srq(1, 8, 2, 5, small);
  p.connect();
  Block from(p.a, 64), to(p.b, 64);
  const Element element = to.element(0, 64);
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_EQ(p.b.adapter.post_receive(*srq, {i, {&element, 1}}), 0);
    SendRequest s = request(SendOpcode::Send, from.element(0, 8), i);
    s.remote_srqn = srq->number;
    ASSERT_EQ(p.send(p.a, s), 0);
    p.exchange();
  }
  EXPECT_EQ(p.b.count_async(AsyncKind::CompletionQueueError), 1u);
  EXPECT_EQ(p.b.count_async(AsyncKind::QpFatal), 1u);
  EXPECT_EQ(p.b.qp->state, QpState::Error);
  // Two were received; the sender must not believe that there were more.
  EXPECT_EQ(Pair::completions(p.a).size(), 2u);
}

// --- windows ---

// Several binds are posted before the first is done: each names the window by a key that it has had.
TEST(RoceWindow, BindsArePostedInARow) {
  for (const QpType type : {QpType::Rc, QpType::Uc}) {
    Pair p(type);
    p.connect();
    Block ours(p.a, 64);
    Region* window = *p.a.adapter.memory().add_window(1, WindowType::Two);
    const uint32_t first = window->key;
    p.a.refuses = true;
    for (uint32_t i = 1; i <= 3; ++i) {
      SendRequest bind;
      bind.id = 2 * i;
      bind.opcode = SendOpcode::BindWindow;
      bind.remote_key = (first & ~0xffu) | ((first + i) & 0xff);
      bind.bind = {first, ours.region->key, ours.address(), 64, remote_read};
      ASSERT_EQ(p.send(p.a, bind), 0);
      if (i == 3) break;
      SendRequest invalidate;
      invalidate.id = 2 * i + 1;
      invalidate.opcode = SendOpcode::LocalInvalidate;
      invalidate.invalidate = bind.remote_key;
      ASSERT_EQ(p.send(p.a, invalidate), 0);
    }
    p.a.refuses = false;
    p.exchange();
    EXPECT_TRUE(Pair::completions(p.a).empty());
    EXPECT_TRUE(window->valid);
    EXPECT_EQ(window->key, (first & ~0xffu) | ((first + 3) & 0xff));
  }
}

}  // namespace
}  // namespace weft::proto::roce::sim
