// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One connection at a time, by hand: what each message does in each state, and what a stranger's messages do not do.
#include "proto/cm/manager.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <deque>
#include <vector>

namespace weft::proto::cm {
namespace {

namespace mad = wire::cm;
using State = Manager::State;

Address host(unsigned number) {
  Address a;
  a.ip[10] = a.ip[11] = std::byte{0xff};
  a.ip[15] = static_cast<std::byte>(number);
  a.port = static_cast<uint16_t>(5000 + number);
  return a;
}

struct Seen {
  EventKind kind;
  Handle connection, listener;
  int status;
  Parameters parameters;
};

// A manager whose messages wait until the test carries them.
struct Side final : Environment {
  explicit Side(unsigned n) : number(n) {}
  void send(const Path& path, const Mad& m) noexcept override {
    sent.push_back(m);
    to.push_back(path.remote);
  }
  void on_event(const Event& e) noexcept override {
    events.push_back({e.kind, e.connection, e.listener, e.status, e.parameters});
  }
  uint32_t random() noexcept override { return seed = seed * 1664525 + 1013904223 + number; }
  Seen event() {
    EXPECT_FALSE(events.empty());
    if (events.empty()) return {};
    const Seen e = events.front();
    events.pop_front();
    return e;
  }
  mad::Kind kind() const { return mad::read_header(sent.back())->kind; }

  unsigned number;
  uint32_t seed = 99;
  std::vector<Mad> sent;
  std::vector<Address> to;
  std::deque<Seen> events;
  Manager manager{*this};
};

class CmManager : public testing::Test {
 protected:
  static constexpr uint64_t service = 0x1061000;
  void carry(Side& from, Side& into, const Mad& m) { into.manager.receive(path(into, from), m, now); }
  // All that waits, until nothing does.
  void settle() {
    while (a_done < a.sent.size() || b_done < b.sent.size()) {
      if (a_done < a.sent.size()) carry(a, b, Mad(a.sent[a_done++]));
      if (b_done < b.sent.size()) carry(b, a, Mad(b.sent[b_done++]));
    }
  }
  static Path path(const Side& at, const Side& peer) { return {1, host(at.number), host(peer.number)}; }
  static std::array<std::byte, 92> data() {
    std::array<std::byte, 92> d{};
    mad::write_ip_header({}, d.data());
    return d;
  }
  Handle connect() {
    Parameters p;
    p.qpn = 17;
    p.psn = 5;
    p.guid = guid_with_port(7);
    return a.manager.connect(path(a, b), service, p, {}, data(), now);
  }
  // Connected: handles of both.
  std::pair<Handle, Handle> connected() {
    b.manager.listen(1, service, 8);
    const Handle active = connect();
    settle();
    const Handle passive = b.event().connection;
    Parameters p;
    p.qpn = 18;
    p.guid = guid_with_port(8);
    EXPECT_EQ(b.manager.accept(passive, p, {}, now), 0);
    settle();
    EXPECT_EQ(a.event().kind, EventKind::Response);
    EXPECT_EQ(a.manager.establish(active, now), 0);
    settle();
    EXPECT_EQ(b.event().kind, EventKind::Established);
    return {active, passive};
  }

  Side a{1}, b{2};
  size_t a_done = 0, b_done = 0;
  uint64_t now = 1'000'000'000;
};

TEST_F(CmManager, RequestReplyAndReadyToUseMakeAConnection) {
  const auto [active, passive] = connected();
  EXPECT_EQ(a.manager.state(active), State::Established);
  EXPECT_EQ(b.manager.state(passive), State::Established);
  EXPECT_EQ(a.sent.size(), 2u);
  EXPECT_EQ(b.sent.size(), 1u);
}

TEST_F(CmManager, NoListenerIsRejectedWithTheServiceIdAfterAMoment) {
  connect();
  const uint64_t begun = now;
  settle();
  while (a.events.empty()) {
    ASSERT_LT(now, begun + 1'000'000'000);
    now = a.manager.next_time();
    a.manager.run(now);
    settle();
  }
  EXPECT_GE(now, begun + Times{}.listener_grace);
  const Seen e = a.event();
  EXPECT_EQ(e.kind, EventKind::Rejected);
  EXPECT_EQ(e.status, 8);
}

TEST_F(CmManager, AListenerThatComesALittleLaterIsFound) {
  connect();
  settle();
  now = a.manager.next_time();
  EXPECT_LE(now, 1'000'000'000 + Times{}.listener_repeat);
  b.manager.listen(1, service, 8);
  a.manager.run(now);
  settle();
  EXPECT_EQ(b.event().kind, EventKind::Request);
}

TEST_F(CmManager, AHostWithoutASocketIsTheSameAsNoListener) {
  const Handle active = connect();
  a.manager.unreachable(1, host(2), now);
  EXPECT_EQ(a.manager.state(active), State::RequestSent);
  now += Times{}.listener_grace;
  a.manager.unreachable(1, host(2), now);
  EXPECT_EQ(a.event().status, 8);
  EXPECT_EQ(a.manager.state(active), State::Ended);
}

TEST_F(CmManager, ARequestWithoutAnAnswerIsRepeatedAndGivenUp) {
  connect();
  const size_t first = a.sent.size();
  uint64_t last = now;
  while (a.events.empty()) {
    ASSERT_NE(a.manager.next_time(), Manager::never);
    now = a.manager.next_time();
    EXPECT_GE(now - last, 250'000'000u);
    last = now;
    a.manager.run(now);
  }
  EXPECT_EQ(a.event().status, -ETIMEDOUT);
  EXPECT_EQ(a.sent.size() - first, 16u);  // 15 times, and the REJ of who gives up
  EXPECT_EQ(a.kind(), mad::Kind::Reject);
}

TEST_F(CmManager, ADuplicateRequestIsOneRequest) {
  b.manager.listen(1, service, 8);
  connect();
  const Mad request = a.sent[0];
  carry(a, b, request);
  carry(a, b, request);
  EXPECT_EQ(b.events.size(), 1u);
  EXPECT_EQ(b.kind(), mad::Kind::MessageReceiptAcknowledgement);
  // It moves the sender's time away.
  const uint64_t before = a.manager.next_time();
  carry(b, a, b.sent.back());
  EXPECT_GT(a.manager.next_time(), before + 60'000'000'000);
}

TEST_F(CmManager, ALostReadyToUseIsSentAgainForTheRepeatedReply) {
  b.manager.listen(1, service, 8);
  const Handle active = connect();
  settle();
  const Handle passive = b.event().connection;
  b.manager.accept(passive, {}, {}, now);
  settle();
  a.event();
  a.manager.establish(active, now);
  a_done = a.sent.size();  // lost
  now = b.manager.next_time();
  b.manager.run(now);
  settle();
  EXPECT_EQ(b.event().kind, EventKind::Established);
}

TEST_F(CmManager, TheQueuePairsWordEstablishesWithoutReadyToUse) {
  b.manager.listen(1, service, 8);
  connect();
  settle();
  const Handle passive = b.event().connection;
  b.manager.accept(passive, {}, {}, now);
  EXPECT_EQ(b.manager.notify_established(passive, now), 0);
  EXPECT_EQ(b.event().kind, EventKind::Established);
  EXPECT_EQ(b.manager.notify_established(passive, now), EISCONN);
}

TEST_F(CmManager, DisconnectIsHeardByBothAndEndsInTimeWait) {
  const auto [active, passive] = connected();
  EXPECT_EQ(a.manager.disconnect(active, now), 0);
  settle();
  EXPECT_EQ(b.event().kind, EventKind::Disconnected);
  EXPECT_EQ(b.manager.disconnect(passive, now), 0);
  settle();
  EXPECT_EQ(a.event().kind, EventKind::Disconnected);
  EXPECT_EQ(a.manager.state(active), State::TimeWait);
  now += 10'000'000'000;
  a.manager.run(now);
  EXPECT_EQ(a.event().kind, EventKind::TimeWaitEnds);
}

TEST_F(CmManager, BothDisconnectAtOnce) {
  const auto [active, passive] = connected();
  a.manager.disconnect(active, now);
  b.manager.disconnect(passive, now);
  settle();
  EXPECT_EQ(a.event().kind, EventKind::Disconnected);
  EXPECT_EQ(b.event().kind, EventKind::Disconnected);
  EXPECT_TRUE(a.events.empty() && b.events.empty());
}

TEST_F(CmManager, APeerWhoseProcessIsGoneIsDisconnected) {
  const auto [active, passive] = connected();
  const size_t before = b.sent.size();
  now += 3'000'000'000;
  b.manager.run(now);
  EXPECT_EQ(b.sent.size(), before + 1);    // it asked
  b.manager.unreachable(2, host(1), now);  // another socket's
  b.manager.unreachable(1, host(1), now);
  EXPECT_EQ(b.manager.state(passive), State::Established);
  EXPECT_EQ(b.sent.size(), before + 2);  // it asks once more
  b.manager.unreachable(1, host(1), now);
  EXPECT_EQ(b.event().kind, EventKind::Disconnected);
  EXPECT_EQ(b.manager.state(passive), State::TimeWait);
}

TEST_F(CmManager, WhatIsDestroyedLeavesNothingBehind) {
  const auto [active, passive] = connected();
  a.manager.destroy(active, now);
  settle();
  EXPECT_EQ(b.event().kind, EventKind::Disconnected);
  b.manager.destroy(passive, now);
  settle();
  now += 10'000'000'000;
  a.manager.run(now);
  b.manager.run(now);
  EXPECT_EQ(a.manager.connections(), 0u);
  EXPECT_EQ(b.manager.connections(), 0u);
  EXPECT_TRUE(a.events.empty());
}

TEST_F(CmManager, AFullBacklogIsSilent) {
  b.manager.listen(1, service, 2);
  for (int i = 0; i < 3; ++i) connect();
  settle();
  EXPECT_EQ(b.events.size(), 2u);
  EXPECT_TRUE(b.sent.empty());
  b.manager.take(b.event().connection);
  now = a.manager.next_time();
  a.manager.run(now);
  settle();
  EXPECT_EQ(b.events.size(), 2u);  // the third has its turn
}

TEST_F(CmManager, ARequestThatIsGivenUpStillCountsUntilTheProgramHasIt) {
  const Handle listener = b.manager.listen(1, service, 2);
  for (uint32_t i = 1; i <= 100; ++i) {
    mad::Request m;
    m.local_id = i;
    m.service = service;
    b.manager.receive(path(b, a), mad::write(i, m, data()), now);
    b.manager.receive(path(b, a), mad::write(i, mad::Reject{i, 0, mad::About::Request, Reason::Timeout}, {}),
                      now);
  }
  EXPECT_EQ(b.manager.connections(), 2u);
  b.manager.destroy(listener, now);
  EXPECT_EQ(b.manager.connections(), 0u);
}

TEST_F(CmManager, ALostRejectIsSentAgain) {
  b.manager.listen(1, service, 8);
  connect();
  settle();
  const Handle passive = b.event().connection;
  EXPECT_EQ(b.manager.reject(passive, Reason::ConsumerDefined, {}, now), 0);
  b_done = b.sent.size();  // lost
  now = a.manager.next_time();
  a.manager.run(now);
  settle();
  EXPECT_EQ(a.event().status, 28);
}

TEST_F(CmManager, AConnectionToAProcessThatBeganAnewEnds) {
  connected();
  Side restarted{2};
  restarted.manager.receive(path(b, a), a.sent.back(), now);  // the RTU that asks
  ASSERT_EQ(restarted.sent.size(), 1u);
  a.manager.receive(path(a, b), restarted.sent.back(), now);
  EXPECT_EQ(a.event().kind, EventKind::Disconnected);
}

TEST_F(CmManager, RequestsThatTheProgramHasSurviveTheListener) {
  const Handle listener = b.manager.listen(1, service, 8);
  connect();
  connect();
  settle();
  const Handle taken = b.event().connection;
  b.manager.take(taken);
  b.manager.destroy(listener, now);
  settle();
  EXPECT_EQ(a.event().kind, EventKind::Rejected);  // the other one
  EXPECT_EQ(b.manager.accept(taken, {}, {}, now), 0);
}

TEST_F(CmManager, TwoListenersDoNotShareAService) {
  EXPECT_NE(b.manager.listen(1, service, 8), 0u);
  EXPECT_EQ(b.manager.listen(1, service, 8), 0u);
  EXPECT_NE(b.manager.listen(2, service, 8), 0u);
}

// --- strangers ---

TEST_F(CmManager, AStrangersRejectDoesNotEndARequest) {
  const Handle active = connect();
  const auto id = mad::read_request(a.sent[0]).local_id;
  const auto transaction = mad::read_header(a.sent[0])->transaction;
  const Mad forged =
      mad::write(transaction + 1, mad::Reject{0, id, mad::About::Request, Reason::ConsumerDefined}, {});
  a.manager.receive(path(a, b), forged, now);
  Path elsewhere = path(a, b);
  elsewhere.remote = host(9);
  a.manager.receive(
      elsewhere,
      mad::write(transaction, mad::Reject{0, id, mad::About::Request, Reason::ConsumerDefined}, {}), now);
  EXPECT_EQ(a.manager.state(active), State::RequestSent);
  // With all of it right it does: the test reaches the code.
  a.manager.receive(
      path(a, b),
      mad::write(transaction, mad::Reject{0, id, mad::About::Request, Reason::ConsumerDefined}, {}), now);
  EXPECT_EQ(a.manager.state(active), State::Ended);
}

TEST_F(CmManager, AStrangersDisconnectDoesNotEndAConnection) {
  const auto [active, passive] = connected();
  const auto ours = mad::read_reply(b.sent[0]).local_id, theirs = mad::read_reply(b.sent[0]).remote_id;
  b.manager.receive(path(b, a), mad::write(1, mad::DisconnectRequest{theirs + 1, ours, 18}, {}), now);
  b.manager.receive(path(b, a), mad::write(1, mad::DisconnectRequest{theirs, ours, 19}, {}), now);
  Path elsewhere = path(b, a);
  elsewhere.remote = host(9);
  b.manager.receive(elsewhere, mad::write(1, mad::DisconnectRequest{theirs, ours, 18}, {}), now);
  EXPECT_EQ(b.manager.state(passive), State::Established);
  b.manager.receive(path(b, a), mad::write(1, mad::DisconnectRequest{theirs, ours, 18}, {}), now);
  EXPECT_EQ(b.manager.state(passive), State::DisconnectReceived);
}

TEST_F(CmManager, AForgedReplyIsNotTaken) {
  const Handle active = connect();
  const auto id = mad::read_request(a.sent[0]).local_id;
  const auto transaction = mad::read_header(a.sent[0])->transaction;
  a.manager.receive(path(a, b), mad::write(transaction ^ 1, mad::Reply{.local_id = 5, .remote_id = id}, {}),
                    now);
  EXPECT_EQ(a.manager.state(active), State::RequestSent);
  a.manager.receive(path(a, b), mad::write(transaction, mad::Reply{.local_id = 5, .remote_id = id}, {}), now);
  EXPECT_EQ(a.manager.state(active), State::ReplyReceived);
}

TEST_F(CmManager, NoMessageIsAnsweredWithMore) {
  b.manager.listen(1, service, 8);
  // Each kind, with unknown IDs: at most one message comes back for one.
  for (uint16_t kind = 0x10; kind <= 0x1a; ++kind) {
    Mad m = mad::write_ready_to_use(kind, {kind, kind}, {});
    wire::store_big(&m[16], kind);
    const size_t before = b.sent.size();
    b.manager.receive(path(b, a), m, now);
    EXPECT_LE(b.sent.size(), before + 1) << kind;
  }
}

TEST_F(CmManager, AFloodOfRequestsIsBoundedByTheBacklog) {
  b.manager.listen(1, service, 16);
  mad::Request m;
  m.service = service;
  for (uint32_t i = 1; i <= 10'000; ++i) {
    m.local_id = i;
    b.manager.receive(path(b, a), mad::write(i, m, data()), now);
  }
  EXPECT_EQ(b.manager.connections(), 16u);
  EXPECT_EQ(b.events.size(), 16u);
}

TEST_F(CmManager, AnAlternatePathIsRefused) {
  const auto [active, passive] = connected();
  Mad lap = mad::write_ready_to_use(
      3, {mad::read_reply(b.sent[0]).remote_id, mad::read_reply(b.sent[0]).local_id}, {});
  wire::store_big(&lap[16], uint16_t{0x19});
  b.manager.receive(path(b, a), lap, now);
  EXPECT_EQ(b.kind(), mad::Kind::AlternatePathResponse);
  EXPECT_EQ(b.manager.state(passive), State::Established);
}

TEST_F(CmManager, ALookupFindsAQueuePair) {
  b.manager.listen(1, service, 8);
  std::array<std::byte, 216> d{};
  mad::write_ip_header({}, d.data());
  a.manager.look_up(path(a, b), service, d, now);
  settle();
  Parameters p;
  p.qpn = 77;
  p.qkey = 78;
  p.guid = guid_with_port(4000);
  EXPECT_EQ(b.manager.accept(b.event().connection, p, {}, now), 0);
  settle();
  const Seen e = a.event();
  EXPECT_EQ(e.kind, EventKind::Established);
  EXPECT_EQ(e.parameters.qpn, 77u);
  EXPECT_EQ(e.parameters.qkey, 78u);
  EXPECT_EQ(port_of_guid(e.parameters.guid), 4000);
}

TEST_F(CmManager, ALookupWithoutAListenerIsUnreachable) {
  std::array<std::byte, 216> d{};
  mad::write_ip_header({}, d.data());
  a.manager.look_up(path(a, b), service, d, now);
  settle();
  while (a.events.empty()) {
    now = a.manager.next_time();
    a.manager.run(now);
    settle();
  }
  const Seen e = a.event();
  EXPECT_EQ(e.kind, EventKind::Unreachable);
  EXPECT_EQ(e.status, 1);
}

TEST(CmGuid, CarriesAPortAndNothingElseIsTakenForOne) {
  EXPECT_EQ(port_of_guid(guid_with_port(0)), 0);
  EXPECT_EQ(port_of_guid(guid_with_port(65535)), 65535);
  EXPECT_FALSE(port_of_guid(0));
  EXPECT_FALSE(port_of_guid(0x0002c90300000001));
  EXPECT_FALSE(port_of_guid(guid_with_port(5) ^ 0x20000));
}

}  // namespace
}  // namespace weft::proto::cm
