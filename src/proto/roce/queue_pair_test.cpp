// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What queue pairs do, operation by operation.
#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "proto/roce/sim_pair.hpp"

namespace weft::proto::roce::sim {
namespace {

constexpr uint64_t ms = 1'000'000;

TEST(RoceRc, SendsOfAllLengths) {
  for (const uint32_t length : {0u, 1u, 3u, 4u, 255u, 256u, 257u, 512u, 5000u}) {
    Pair p;
    p.connect();
    Block from(p.a, 8192), to(p.b, 8192);
    fill(from, length);
    ASSERT_EQ(p.receive(p.b, 7, {to.element(0, 100), to.element(100, 8000)}), 0);
    ASSERT_EQ(p.send(p.a, request(SendOpcode::SendImmediate, from.element(5, length))), 0);
    p.exchange();
    expect_one(p.a, 1, CompletionOpcode::Send);
    const auto got = Pair::completions(p.b);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].bytes, length);
    EXPECT_EQ(got[0].immediate, 0xdeadbeefu);
    EXPECT_EQ(got[0].flags, with_immediate);
    EXPECT_EQ(got[0].source_qpn, p.a.qp->number);
    EXPECT_EQ(std::memcmp(to.at, from.at + 5, length), 0);
    EXPECT_EQ(to.at[length], std::byte{0});
  }
}

TEST(RoceRc, WritesAndReads) {
  for (const uint32_t length : {0u, 1u, 256u, 257u, 5000u}) {
    Pair p;
    p.connect();
    Block ours(p.a, 8192), theirs(p.b, 8192);
    fill(ours, length);
    SendRequest w = request(SendOpcode::Write, ours.element(0, length), 1);
    w.remote_address = theirs.address() + 9;
    w.remote_key = theirs.region->key;
    ASSERT_EQ(p.send(p.a, w), 0);
    p.exchange();
    EXPECT_EQ(std::memcmp(theirs.at + 9, ours.at, length), 0);
    expect_one(p.a, 1, CompletionOpcode::Write);
    EXPECT_TRUE(Pair::completions(p.b).empty());
    fill(theirs, 77);
    SendRequest r = w;
    r.id = 2;
    r.opcode = SendOpcode::Read;
    ASSERT_EQ(p.send(p.a, r), 0);
    p.exchange();
    EXPECT_EQ(std::memcmp(theirs.at + 9, ours.at, length), 0);
    expect_one(p.a, 2, CompletionOpcode::Read);
  }
}

TEST(RoceRc, WriteWithImmediateTakesAReceive) {
  Pair p;
  p.connect();
  Block ours(p.a, 1024), theirs(p.b, 1024);
  ASSERT_EQ(p.receive(p.b, 5, {}), 0);
  SendRequest w = request(SendOpcode::WriteImmediate, ours.element(0, 1000));
  w.remote_address = theirs.address();
  w.remote_key = theirs.region->key;
  ASSERT_EQ(p.send(p.a, w), 0);
  p.exchange();
  const auto got = Pair::completions(p.b);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].opcode, CompletionOpcode::ReceiveWriteImmediate);
  EXPECT_EQ(got[0].bytes, 1000u);
  expect_one(p.a, 1, CompletionOpcode::Write);
}

TEST(RoceRc, Atomics) {
  Pair p;
  p.connect();
  Block ours(p.a, 64), theirs(p.b, 64);
  const uint64_t before = 40;
  std::memcpy(theirs.at, &before, 8);
  SendRequest q = request(SendOpcode::FetchAdd, ours.element(0, 8));
  q.remote_address = theirs.address();
  q.remote_key = theirs.region->key;
  q.compare_add = 2;
  ASSERT_EQ(p.send(p.a, q), 0);
  SendRequest s = request(SendOpcode::CompareSwap, ours.element(8, 8), 2);
  s.remote_address = q.remote_address;
  s.remote_key = q.remote_key;
  s.compare_add = 42;
  s.swap = 99;
  ASSERT_EQ(p.send(p.a, s), 0);
  p.exchange();
  uint64_t value[2], now;
  std::memcpy(value, ours.at, 16);
  std::memcpy(&now, theirs.at, 8);
  EXPECT_EQ(value[0], 40u);
  EXPECT_EQ(value[1], 42u);
  EXPECT_EQ(now, 99u);
  EXPECT_EQ(Pair::completions(p.a).size(), 2u);
}

TEST(RoceRc, OneAcknowledgementForABatch) {
  Pair p;
  p.connect();
  Block from(p.a, 64), to(p.b, 1024);
  for (uint64_t i = 0; i < 10; ++i) {
    ASSERT_EQ(p.receive(p.b, i, {to.element(0, 64)}), 0);
    ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8), i)), 0);
  }
  ASSERT_EQ(p.a.out.size(), 10u);
  for (const PacketBytes& one : p.a.out) p.give(p.b, one);
  p.a.out.clear();
  p.b.adapter.flush(p.now);
  EXPECT_EQ(p.b.out.size(), 1u);
  p.exchange();
  const auto done = Pair::completions(p.a);
  ASSERT_EQ(done.size(), 10u);
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(done[i].id, i);
}

TEST(RoceRc, UnsignalledOnesCompleteSilentlyAndFreeTheirPlace) {
  Pair p;
  p.connect();
  Block from(p.a, 64), to(p.b, 64);
  for (uint64_t i = 0; i < 500; ++i) {
    SendRequest w = request(SendOpcode::Write, from.element(0, 8), i, i == 499 ? signaled : 0);
    w.remote_address = to.address();
    w.remote_key = to.region->key;
    ASSERT_EQ(p.send(p.a, w), 0);
    if (i % 50 == 49) p.exchange();
  }
  expect_one(p.a, 499, CompletionOpcode::Write);
}

TEST(RoceRc, AFullSendQueueRefuses) {
  Pair p;
  p.connect();
  Block from(p.a, 64);
  p.a.refuses = true;
  int posted = 0;
  while (p.send(p.a, request(SendOpcode::Send, from.element(0, 8))) == 0) ++posted;
  EXPECT_EQ(posted, 64);
  EXPECT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8))), -ENOMEM);
}

TEST(RoceRc, InlineDataIsTheProgramsAtOnce) {
  Pair p;
  p.connect();
  Block to(p.b, 64);
  p.a.refuses = true;
  uint64_t value = 5;
  SendRequest q =
      request(SendOpcode::Send, {reinterpret_cast<uint64_t>(&value), 8, 0}, 1, signaled | inline_data);
  ASSERT_EQ(p.receive(p.b, 1, {to.element(0, 8)}), 0);
  ASSERT_EQ(p.send(p.a, q), 0);
  value = 6;
  p.a.refuses = false;
  p.exchange();
  EXPECT_EQ(to.at[0], std::byte{5});
}

TEST(RoceRc, AFenceWaitsForReads) {
  Pair p;
  p.connect();
  Block ours(p.a, 1024), theirs(p.b, 1024);
  SendRequest r = request(SendOpcode::Read, ours.element(0, 600), 1);
  r.remote_address = theirs.address();
  r.remote_key = theirs.region->key;
  SendRequest w = request(SendOpcode::Write, ours.element(0, 8), 2, signaled | fence);
  w.remote_address = theirs.address();
  w.remote_key = theirs.region->key;
  ASSERT_EQ(p.send(p.a, r), 0);
  ASSERT_EQ(p.send(p.a, w), 0);
  EXPECT_EQ(p.a.out.size(), 1u);
  p.exchange();
  EXPECT_EQ(Pair::completions(p.a).size(), 2u);
}

TEST(RoceRc, NoMoreReadsThanAgreed) {
  Pair p;
  p.connect();
  Block ours(p.a, 1024), theirs(p.b, 1024);
  for (uint64_t i = 0; i < 6; ++i) {
    SendRequest r = request(SendOpcode::Read, ours.element(0, 8), i);
    r.remote_address = theirs.address();
    r.remote_key = theirs.region->key;
    ASSERT_EQ(p.send(p.a, r), 0);
  }
  EXPECT_EQ(p.a.out.size(), 2u);
  p.exchange();
  EXPECT_EQ(Pair::completions(p.a).size(), 6u);
}

// At a time so many responses as the window has packets, and those that the last READ has beyond it.
TEST(RoceRc, ResponsesOfReadsFillAWindow) {
  constexpr uint32_t packets = 48;
  constexpr uint32_t bytes = packets * 256;
  Pair p;
  p.common.max_reads = p.common.max_dest_reads = 16;
  p.connect();
  p.a.qp->attributes.window_packets = 64;
  Block ours(p.a, 8 * bytes);
  Block theirs(p.b, 8 * bytes);
  fill(theirs, 5);
  for (uint32_t i = 0; i < 8; ++i) {
    SendRequest r = request(SendOpcode::Read, ours.element(i * bytes, bytes), i);
    r.remote_address = theirs.address() + i * bytes;
    r.remote_key = theirs.region->key;
    ASSERT_EQ(p.send(p.a, r), 0);
  }
  ASSERT_EQ(p.a.out.size(), 2u);
  const auto to_b = [&] {
    for (const PacketBytes& one : std::exchange(p.a.out, {})) p.give(p.b, one);
    while (p.b.adapter.has_ready()) p.b.adapter.flush(p.now);
  };
  const auto to_a = [&](size_t count) {
    for (; count > 0; --count) {
      p.give(p.a, p.b.out.front());
      p.b.out.pop_front();
    }
    p.a.adapter.flush(p.now);
  };
  to_b();
  ASSERT_EQ(p.b.out.size(), size_t{2} * packets);
  to_a(2 * packets - 64);
  EXPECT_EQ(p.a.out.size(), 0u);
  to_a(1);
  EXPECT_EQ(p.a.out.size(), 1u);  // 63 were awaited
  to_b();
  // One is lost. Those behind it make it ask again: for the rest of the first, and for the others that were under way.
  p.b.out.pop_front();
  to_a(p.b.out.size());
  EXPECT_EQ(p.a.out.size(), 3u);
  p.exchange();
  EXPECT_EQ(Pair::completions(p.a).size(), 8u);
  EXPECT_EQ(std::memcmp(ours.at, theirs.at, size_t{8} * bytes), 0);
  EXPECT_EQ(p.a.qp->requester.responses, 0u);
}

// READs that are longer than the window go in twos, so that a lost request is noticed without a timeout.
TEST(RoceRc, ReadsAreLongerThanTheWindow) {
  constexpr uint32_t bytes = 100 * 256;
  Pair p;
  p.common.max_reads = p.common.max_dest_reads = 16;
  p.connect();
  p.a.qp->attributes.window_packets = 8;
  Block ours(p.a, 4 * bytes);
  Block theirs(p.b, 4 * bytes);
  fill(theirs, 6);
  for (uint32_t i = 0; i < 4; ++i) {
    SendRequest r = request(SendOpcode::Read, ours.element(i * bytes, bytes), i);
    r.remote_address = theirs.address() + i * bytes;
    r.remote_key = theirs.region->key;
    ASSERT_EQ(p.send(p.a, r), 0);
  }
  ASSERT_EQ(p.a.out.size(), 2u);
  p.a.out.pop_front();
  p.exchange();  // no time passes
  EXPECT_EQ(Pair::completions(p.a).size(), 4u);
  EXPECT_EQ(std::memcmp(ours.at, theirs.at, size_t{4} * bytes), 0);
  EXPECT_EQ(p.a.qp->requester.responses, 0u);
}

// Late responses to a READ that is to be asked again, because its time was over, are not counted twice.
TEST(RoceRc, ResponsesAreLate) {
  constexpr uint32_t bytes = 20 * 256;
  Pair p;
  p.connect();
  Block ours(p.a, bytes);
  Block theirs(p.b, bytes);
  fill(theirs, 7);
  SendRequest r = request(SendOpcode::Read, ours.element(0, bytes), 1);
  r.remote_address = theirs.address();
  r.remote_key = theirs.region->key;
  ASSERT_EQ(p.send(p.a, r), 0);
  EXPECT_EQ(p.a.qp->requester.responses, 20u);
  p.give(p.b, p.a.out.front());
  p.a.out.clear();
  while (p.b.adapter.has_ready()) p.b.adapter.flush(p.now);
  ASSERT_EQ(p.b.out.size(), 20u);
  p.a.refuses = true;
  p.now = p.a.qp->requester.deadline;
  p.a.adapter.flush(p.now);
  EXPECT_EQ(p.a.qp->requester.responses, 0u);
  for (int i = 0; i < 7; ++i) {
    p.give(p.a, p.b.out.front());
    p.b.out.pop_front();
  }
  EXPECT_EQ(p.a.qp->requester.responses, 0u);
  p.a.refuses = false;
  p.a.adapter.flush(p.now);
  EXPECT_EQ(p.a.qp->requester.responses, 13u);
  p.exchange();
  expect_one(p.a, 1, CompletionOpcode::Read);
  EXPECT_EQ(std::memcmp(ours.at, theirs.at, bytes), 0);
  EXPECT_EQ(p.a.qp->requester.responses, 0u);
}

TEST(RoceRc, ALostPacketIsAskedForOnce) {
  Pair p;
  p.connect();
  Block from(p.a, 4096), to(p.b, 4096);
  fill(from, 3);
  ASSERT_EQ(p.receive(p.b, 1, {to.element(0, 4096)}), 0);
  ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 2560))), 0);
  p.a.out.erase(p.a.out.begin() + 3);
  for (const PacketBytes& one : p.a.out) p.give(p.b, one);
  p.a.out.clear();
  p.b.adapter.flush(p.now);
  // What came before the gap is acknowledged first.
  ASSERT_EQ(p.b.out.size(), 2u);
  PacketBytes held;
  const auto ack = take(p.b, held);
  EXPECT_EQ(ack.aeth.syndrome, wire::roce::syndrome_ack);
  EXPECT_EQ(ack.bth.psn, psn_add(0xfffffe, 2));
  p.give(p.a, held);
  const auto nak = take(p.b, held);
  EXPECT_EQ(nak.aeth.syndrome, 0x60);
  EXPECT_EQ(nak.bth.psn, psn_add(0xfffffe, 3));
  p.give(p.a, held);
  p.exchange();
  EXPECT_EQ(std::memcmp(from.at, to.at, 2560), 0);
  expect_one(p.a, 1, CompletionOpcode::Send);
}

TEST(RoceRc, ALostReadResponseIsReadAgainFromThere) {
  Pair p;
  p.connect();
  Block ours(p.a, 4096), theirs(p.b, 4096);
  fill(theirs, 4);
  SendRequest r = request(SendOpcode::Read, ours.element(0, 2000));
  r.remote_address = theirs.address();
  r.remote_key = theirs.region->key;
  ASSERT_EQ(p.send(p.a, r), 0);
  for (const PacketBytes& one : p.a.out) p.give(p.b, one);
  p.a.out.clear();
  p.b.adapter.flush(p.now);
  ASSERT_EQ(p.b.out.size(), 8u);
  p.b.out.erase(p.b.out.begin() + 3);
  for (const PacketBytes& one : p.b.out) p.give(p.a, one);
  p.b.out.clear();
  p.a.adapter.flush(p.now);
  PacketBytes held;
  const auto again = take(p.a, held);
  EXPECT_EQ(again.reth.address, theirs.address() + 768);
  EXPECT_EQ(again.reth.length, 2000u - 768);
  p.give(p.b, held);
  p.exchange();
  EXPECT_EQ(std::memcmp(ours.at, theirs.at, 2000), 0);
  expect_one(p.a, 1, CompletionOpcode::Read);
}

TEST(RoceRc, TimeoutsAreCountedAndSevenIsFinite) {
  Pair p;
  p.connect();
  Block from(p.a, 64);
  ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8), 1)), 0);
  ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8), 2, 0)), 0);
  int sent = 0;
  for (int i = 0; i < 20; ++i) {
    sent += static_cast<int>(p.a.out.size());
    p.a.out.clear();
    p.now += 5 * ms;
    p.a.adapter.flush(p.now);
  }
  EXPECT_EQ(sent, 2 + 7);
  const auto got = Pair::completions(p.a);
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].status, Status::RetryExceeded);
  EXPECT_EQ(got[1].status, Status::Flushed);
  EXPECT_EQ(p.a.qp->state, QpState::Error);
  EXPECT_EQ(p.a.adapter.next_due(), UINT64_MAX);
}

// A program that only posts does not read the socket: the acknowledgements may be there.
TEST(RoceRc, PostingDoesNotRunTimers) {
  Pair p;
  p.connect();
  Block from(p.a, 64), to(p.b, 64);
  for (uint64_t i = 0; i < 40; ++i) {
    ASSERT_EQ(p.receive(p.b, i, {to.element(0, 8)}), 0);
    ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8), i)), 0);
    p.now += 5 * ms;
  }
  EXPECT_EQ(p.a.adapter.counters().timeouts, 0u);
  EXPECT_EQ(p.a.out.size(), 40u);
  p.exchange();
  const auto got = Pair::completions(p.a);
  ASSERT_EQ(got.size(), 40u);
  for (const Completion& one : got) EXPECT_EQ(one.status, Status::Success);
}

TEST(RoceRc, WithoutAReceiveTheSenderWaits) {
  Pair p;
  p.connect();
  Block from(p.a, 64), to(p.b, 64);
  ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8))), 0);
  p.exchange();
  EXPECT_EQ(p.a.adapter.next_due(), p.now + 10'000);
  p.pass(1 * ms);
  ASSERT_EQ(p.receive(p.b, 1, {to.element(0, 8)}), 0);
  p.pass(1 * ms);
  expect_one(p.a, 1, CompletionOpcode::Send);
  expect_one(p.b, 1, CompletionOpcode::Receive);
}

TEST(RoceRc, RnrRetriesRunOut) {
  Pair p;
  p.common.rnr_retry = 2;
  p.connect();
  Block from(p.a, 64);
  ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8))), 0);
  p.pass(10 * ms);
  expect_one(p.a, 1, CompletionOpcode::Send, Status::RnrRetryExceeded);
  EXPECT_EQ(p.b.adapter.counters().naks_sent, 3u);
}

TEST(RoceRc, ErrorFlushesInOrder) {
  Pair p;
  p.connect();
  Block from(p.a, 64), to(p.a, 64);
  p.a.refuses = true;
  for (uint64_t i = 0; i < 5; ++i) {
    ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8), i, 0)), 0);
    ASSERT_EQ(p.receive(p.a, 100 + i, {to.element(0, 8)}), 0);
  }
  p.step(p.a, {}, QpState::Error, 0);
  ASSERT_EQ(p.receive(p.a, 105, {to.element(0, 8)}), 0);
  ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8), 5, 0)), 0);
  const auto got = Pair::completions(p.a);
  ASSERT_EQ(got.size(), 12u);
  uint64_t sent = 0, received = 100;
  for (const Completion& c : got) {
    EXPECT_EQ(c.status, Status::Flushed);
    EXPECT_EQ(c.id, c.id < 100 ? sent++ : received++);
  }
}

TEST(RoceRc, ResetForgetsEverything) {
  Pair p;
  p.connect();
  Block from(p.a, 64);
  ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8))), 0);
  p.step(p.a, {}, QpState::Reset, 0);
  EXPECT_TRUE(Pair::completions(p.a).empty());
  EXPECT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8))), -EINVAL);
  EXPECT_EQ(p.a.adapter.next_due(), UINT64_MAX);
  p.step(p.b, {}, QpState::Reset, 0);
  p.a.out.clear();
  p.connect();
  Block to(p.b, 64);
  ASSERT_EQ(p.receive(p.b, 1, {to.element(0, 8)}), 0);
  ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8))), 0);
  p.exchange();
  expect_one(p.a, 1, CompletionOpcode::Send);
}

TEST(RoceRc, DrainingFinishesWhatHasBegun) {
  Pair p;
  p.connect();
  Block from(p.a, 1024), to(p.b, 1024);
  ASSERT_EQ(p.receive(p.b, 1, {to.element(0, 1024)}), 0);
  ASSERT_EQ(p.receive(p.b, 2, {to.element(0, 1024)}), 0);
  ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 1000), 1)), 0);
  Attributes x;
  x.drain_notify = true;
  p.step(p.a, x, QpState::SendDrained, attr_drain_notify);
  ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8), 2)), 0);
  EXPECT_EQ(p.a.count_async(AsyncKind::SendQueueDrained), 0u);
  p.exchange();
  EXPECT_EQ(p.a.count_async(AsyncKind::SendQueueDrained), 1u);
  expect_one(p.a, 1, CompletionOpcode::Send);
  p.step(p.a, {}, QpState::ReadyToSend, 0);
  p.exchange();
  expect_one(p.a, 2, CompletionOpcode::Send);
}

TEST(RoceRc, TheFirstPacketIsAnEventInReadyToReceive) {
  Pair p;
  p.raise(p.a, p.b);
  p.raise(p.b, p.a, QpState::ReadyToReceive);
  Block from(p.a, 64), to(p.b, 64);
  ASSERT_EQ(p.receive(p.b, 1, {to.element(0, 64)}), 0);
  ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8))), 0);
  p.exchange();
  EXPECT_EQ(p.b.count_async(AsyncKind::CommunicationEstablished), 1u);
  expect_one(p.a, 1, CompletionOpcode::Send);
}

TEST(RoceCq, SolicitedEventsOnlyWhenAskedFor) {
  Pair p;
  p.connect();
  Block from(p.a, 64), to(p.b, 64);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(p.receive(p.b, i, {to.element(0, 64)}), 0);
  p.b.cq->arm(true);
  ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8))), 0);
  p.exchange();
  EXPECT_EQ(p.b.completion_events, 0);
  ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8), 2, signaled | solicited)), 0);
  p.exchange();
  EXPECT_EQ(p.b.completion_events, 1);
  std::array<Completion, 4> taken;
  ASSERT_EQ(p.b.cq->poll(taken), 2);
  p.b.cq->arm(false);
  ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8), 3)), 0);
  p.exchange();
  EXPECT_EQ(p.b.completion_events, 2);
}

// A program that takes one completion for each event, and arms before it does, never sleeps over one: what came between
// an event and the arming has its event then.
TEST(RoceCq, OneEventForEachCompletionForWhoTakesThemOneByOne) {
  Pair p;
  p.connect();
  Block from(p.a, 64), to(p.b, 64);
  constexpr uint64_t messages = 4;
  for (uint64_t i = 0; i < messages; ++i) ASSERT_EQ(p.receive(p.b, i, {to.element(0, 64)}), 0);
  p.b.cq->arm(false);
  for (uint64_t i = 0; i < messages; ++i)
    ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8), i)), 0);
  p.exchange();
  std::array<Completion, 1> taken;
  for (int i = 1; i <= static_cast<int>(messages); ++i) {
    ASSERT_EQ(p.b.completion_events, i);
    p.b.cq->arm(false);
    ASSERT_EQ(p.b.cq->poll(taken), 1);
  }
  EXPECT_EQ(p.b.completion_events, static_cast<int>(messages));
}

// Who takes all of them has at most one event too many.
TEST(RoceCq, NoEventForWhatWasTaken) {
  Pair p;
  p.connect();
  Block from(p.a, 64), to(p.b, 64);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(p.receive(p.b, i, {to.element(0, 64)}), 0);
  p.b.cq->arm(false);
  for (uint64_t i = 0; i < 3; ++i)
    ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8), i)), 0);
  p.exchange();
  std::array<Completion, 4> taken;
  ASSERT_EQ(p.b.cq->poll(taken), 3);
  EXPECT_EQ(p.b.completion_events, 1);
  p.b.cq->arm(false);
  EXPECT_EQ(p.b.completion_events, 1);
}

TEST(RoceCq, AnOverrunFailsTheQueueAndItsQueuePairs) {
  Port* port = nullptr;
  Pair p(QpType::Rc, [&](QueuePairRequest& q) {
    if (port == nullptr) return;
    q.send_cq = q.receive_cq = port->cq;
  });
  p.connect();
  Block from(p.a, 64), to(p.b, 64);
  for (uint64_t i = 0; i < 300; ++i) {
    SendRequest w = request(SendOpcode::Write, from.element(0, 8), i);
    w.remote_address = to.address();
    w.remote_key = to.region->key;
    (void)p.send(p.a, w);
    p.exchange();
  }
  EXPECT_EQ(p.a.count_async(AsyncKind::CompletionQueueError), 1u);
  EXPECT_EQ(p.a.count_async(AsyncKind::QpFatal), 1u);
  EXPECT_EQ(p.a.qp->state, QpState::Error);
  std::vector<Completion> all(300);
  EXPECT_EQ(p.a.cq->poll(all), 256);
  EXPECT_EQ(p.a.cq->poll(all), -EIO);
}

TEST(RoceSrq, LimitAndLastRequest) {
  Pair* pair = nullptr;
  SharedReceiveQueue* srq = nullptr;
  (void)pair;
  Pair p;
  srq = *p.b.adapter.create_srq(1, 8, 2);
  QueuePairRequest q;
  q.pd = 1;
  q.send_cq = q.receive_cq = p.b.cq;
  q.srq = srq;
  q.capacities = {8, 0, 1, 0, 0};
  p.b.adapter.destroy_qp(*p.b.qp);
  p.b.qp = *p.b.adapter.create_qp(q);
  p.connect();
  Block from(p.a, 64), to(p.b, 1024);
  for (uint64_t i = 0; i < 4; ++i) {
    const Element element = to.element(0, 64);
    ASSERT_EQ(p.b.adapter.post_receive(*srq, {i, {&element, 1}}), 0);
  }
  EXPECT_EQ(p.receive(p.b, 1, {to.element(0, 8)}), -EINVAL);
  EXPECT_EQ(p.b.adapter.destroy_srq(*srq), -EBUSY);
  srq->limit = 3;
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 8), i)), 0);
    p.exchange();
    EXPECT_EQ(p.b.count_async(AsyncKind::SharedLimitReached), i < 1 ? 0u : 1u);
  }
  EXPECT_EQ(Pair::completions(p.b).size(), 3u);
  p.step(p.b, {}, QpState::Error, 0);
  EXPECT_EQ(p.b.count_async(AsyncKind::LastRequestReached), 1u);
  EXPECT_EQ(srq->queue.size(), 1u);
}

TEST(RoceWindow, BindUseInvalidate) {
  Pair p;
  p.connect();
  Block ours(p.a, 64), theirs(p.b, 1024), plain(p.b, 64);
  Region* window = *p.b.adapter.memory().add_window(1, WindowType::Two);
  const uint32_t key = (window->key & ~0xffu) | ((window->key + 1) & 0xff);
  SendRequest bind;
  bind.id = 9;
  bind.opcode = SendOpcode::BindWindow;
  bind.flags = signaled;
  bind.remote_key = (key & 0xff) | 0x400;  // the window keeps its index
  bind.bind = {window->key, theirs.region->key, theirs.address() + 100, 50, remote_write};
  ASSERT_EQ(p.send(p.b, bind), 0);
  p.exchange();
  expect_one(p.b, 9, CompletionOpcode::BindWindow);
  EXPECT_EQ(p.b.adapter.memory().remove(*theirs.region), -EBUSY);
  SendRequest w = request(SendOpcode::Write, ours.element(0, 50));
  w.remote_address = theirs.address() + 100;
  w.remote_key = key;
  ASSERT_EQ(p.send(p.a, w), 0);
  p.exchange();
  expect_one(p.a, 1, CompletionOpcode::Write);
  // A SEND with invalidate takes it away; then its key is worth nothing.
  ASSERT_EQ(p.receive(p.b, 3, {plain.element(0, 64)}), 0);
  SendRequest s = request(SendOpcode::SendInvalidate, ours.element(0, 4), 2);
  s.invalidate = key;
  ASSERT_EQ(p.send(p.a, s), 0);
  p.exchange();
  const auto got = Pair::completions(p.b);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].flags, with_invalidate);
  EXPECT_EQ(got[0].immediate, key);
  Pair::completions(p.a);
  ASSERT_EQ(p.send(p.a, w), 0);
  p.exchange();
  expect_one(p.a, 1, CompletionOpcode::Write, Status::RemoteAccess);
  EXPECT_EQ(p.b.adapter.memory().remove(*theirs.region), 0);
}

TEST(RoceWindow, LocalInvalidateWaitsForWhatIsBefore) {
  Pair p;
  p.connect();
  Block ours(p.a, 64), theirs(p.b, 64);
  Region* window = *p.a.adapter.memory().add_window(1, WindowType::Two);
  SendRequest bind;
  bind.opcode = SendOpcode::BindWindow;
  bind.remote_key = window->key;
  bind.bind = {window->key, ours.region->key, ours.address(), 64, remote_read};
  ASSERT_EQ(p.send(p.a, bind), 0);
  EXPECT_TRUE(window->valid);
  SendRequest w = request(SendOpcode::Write, ours.element(0, 8), 1, 0);
  w.remote_address = theirs.address();
  w.remote_key = theirs.region->key;
  SendRequest invalidate;
  invalidate.id = 2;
  invalidate.opcode = SendOpcode::LocalInvalidate;
  invalidate.flags = signaled;
  invalidate.invalidate = window->key;
  ASSERT_EQ(p.send(p.a, w), 0);
  ASSERT_EQ(p.send(p.a, invalidate), 0);
  EXPECT_TRUE(window->valid);
  p.exchange();
  EXPECT_FALSE(window->valid);
  expect_one(p.a, 2, CompletionOpcode::LocalInvalidate);
}

TEST(RoceUc, WholeMessagesOrNone) {
  Pair p(QpType::Uc);
  p.connect();
  Block from(p.a, 4096), to(p.b, 4096);
  fill(from, 5);
  ASSERT_EQ(p.receive(p.b, 1, {to.element(0, 4096)}), 0);
  ASSERT_EQ(p.send(p.a, request(SendOpcode::Send, from.element(0, 1000), 1)), 0);
  p.a.out.erase(p.a.out.begin() + 1);
  p.exchange();
  EXPECT_TRUE(Pair::completions(p.b).empty());
  ASSERT_EQ(p.send(p.a, request(SendOpcode::SendImmediate, from.element(100, 700), 2)), 0);
  p.exchange();
  EXPECT_EQ(Pair::completions(p.a).size(), 2u);
  const auto got = Pair::completions(p.b);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].id, 1u);
  EXPECT_EQ(got[0].bytes, 700u);
  EXPECT_EQ(std::memcmp(to.at, from.at + 100, 700), 0);
  SendRequest w = request(SendOpcode::Write, from.element(0, 900), 3);
  w.remote_address = to.address() + 2000;
  w.remote_key = to.region->key;
  ASSERT_EQ(p.send(p.a, w), 0);
  p.exchange();
  EXPECT_EQ(std::memcmp(to.at + 2000, from.at, 900), 0);
  SendRequest r = w;
  r.opcode = SendOpcode::Read;
  EXPECT_EQ(p.send(p.a, r), -EINVAL);
}

TEST(RoceUd, DatagramsWithAddressAndKey) {
  Pair p(QpType::Ud);
  p.connect();
  Block from(p.a, 256), to(p.b, 4096);
  fill(from, 6);
  for (uint64_t i = 0; i < 2; ++i) ASSERT_EQ(p.receive(p.b, i, {to.element(0, 40), to.element(40, 200)}), 0);
  SendRequest q = request(SendOpcode::SendImmediate, from.element(0, 100));
  q.to.destination = p.b.gid;
  q.remote_qpn = p.b.qp->number;
  q.remote_qkey = 0x1234;
  ASSERT_EQ(p.send(p.a, q), 0);
  p.exchange();
  const auto got = Pair::completions(p.b);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].bytes, 140u);
  EXPECT_EQ(got[0].source_qpn, p.a.qp->number);
  EXPECT_EQ(got[0].flags, has_grh | with_immediate);
  EXPECT_EQ(std::memcmp(to.at + 40, from.at, 100), 0);
  q.remote_qkey = 0x1235;
  ASSERT_EQ(p.send(p.a, q), 0);
  p.exchange();
  EXPECT_TRUE(Pair::completions(p.b).empty());
  EXPECT_EQ(p.b.adapter.counters().foreign, 1u);
}

TEST(RoceXrc, RequestsNameTheirQueue) {
  Pair p(QpType::Rc);
  // `a` sends by an XRC initiator, `b` receives by a target; the messages go to a shared queue of the domain.
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
  SharedReceiveQueue* srq = *p.b.adapter.create_srq(1, 8, 2, 5, p.b.cq);
  SharedReceiveQueue* other = *p.b.adapter.create_srq(1, 8, 2, 6, p.b.cq);
  p.connect();
  Block from(p.a, 1024), to(p.b, 1024);
  fill(from, 8);
  const Element element = to.element(0, 1024);
  ASSERT_EQ(p.b.adapter.post_receive(*srq, {4, {&element, 1}}), 0);
  SendRequest s = request(SendOpcode::Send, from.element(0, 700));
  s.remote_srqn = srq->number;
  ASSERT_EQ(p.send(p.a, s), 0);
  p.exchange();
  expect_one(p.a, 1, CompletionOpcode::Send);
  expect_one(p.b, 4, CompletionOpcode::Receive);
  EXPECT_EQ(std::memcmp(from.at, to.at, 700), 0);
  SendRequest r = request(SendOpcode::Read, from.element(0, 600), 2);
  r.remote_srqn = srq->number;
  r.remote_address = to.address();
  r.remote_key = to.region->key;
  ASSERT_EQ(p.send(p.a, r), 0);
  p.exchange();
  expect_one(p.a, 2, CompletionOpcode::Read);
  s.remote_srqn = other->number;  // of another domain
  ASSERT_EQ(p.send(p.a, s), 0);
  p.exchange();
  expect_one(p.a, 1, CompletionOpcode::Send, Status::RemoteInvalidRequest);
}

}  // namespace
}  // namespace weft::proto::roce::sim
