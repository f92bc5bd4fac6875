// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Somebody who does not see the packets of two endpoints, but knows their addresses and can send from any address: he must not end a connection,
// put bytes into it, keep others from connecting, make an endpoint flood a third one, or fill its memory.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cerrno>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/reliable/core.hpp"

namespace weft::proto::reliable {
namespace {

using Bytes = std::vector<std::byte>;

std::span<const std::byte> place(std::string_view name) { return std::as_bytes(std::span(name)); }
std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct Net {
  struct Datagram {
    std::string from, to;
    Bytes bytes;
  };
  std::deque<Datagram> flying;
  uint64_t now = 1'000'000;
};

struct End final : PacketOutput, Upper {
  End(Net& of, std::string at, uint64_t incarnation, size_t receive_bytes = SIZE_MAX, Config config = {})
      : net(of), name(std::move(at)) {
    config.receive_bytes = receive_bytes;
    config.incarnation = incarnation;
    config.seed = incarnation * 77 + 5;
    config.check = false;
    config.segments_max = 16;
    (void)core->open(place(name), config);
  }
  size_t packet_bytes_max(std::span<const std::byte>) noexcept override { return 1400; }
  bool send(std::span<const std::byte> to, const iovec* parts, size_t count) noexcept override {
    Bytes all;
    for (size_t i = 0; i < count; ++i) {
      const auto* at = static_cast<const std::byte*>(parts[i].iov_base);
      all.insert(all.end(), at, at + parts[i].iov_len);
    }
    sent[text(to)] += all.size();
    net.flying.push_back({name, text(to), std::move(all)});
    return true;
  }
  bool send_segmented(std::span<const std::byte> to, const iovec* parts, size_t count,
                      size_t packet_bytes) noexcept override {
    Bytes all;
    for (size_t i = 0; i < count; ++i) {
      const auto* at = static_cast<const std::byte*>(parts[i].iov_base);
      all.insert(all.end(), at, at + parts[i].iov_len);
    }
    for (size_t at = 0; at < all.size(); at += packet_bytes) {
      const iovec part{all.data() + at, std::min(packet_bytes, all.size() - at)};
      (void)send(to, &part, 1);
    }
    return true;
  }
  Connection* accept(std::span<const std::byte> address) noexcept override {
    auto& made = peers[text(address)];
    EXPECT_EQ(made, nullptr);
    made = std::make_unique<Connection>();
    return core->add(*made, address) ? made.get() : nullptr;
  }
  size_t on_bytes(Connection& c, std::span<const std::byte> bytes) noexcept override {
    heard[text(c.who.address.span())] += text(bytes);
    return bytes.size();
  }
  // Addresses with an 'l' have a scope, the last letter, that each machine has another for.
  PacketAddress known_as(std::span<const std::byte> address,
                         const PacketAddress& source) const noexcept override {
    PacketAddress place(address);
    if (place.bytes[0] == std::byte{'l'}) place.bytes[place.length - 1] = source.bytes[source.length - 1];
    return place;
  }
  void lost(Connection& c, core::ProviderError) noexcept override {
    ++losses;
    peers.erase(text(c.who.address.span()));
  }
  Connection& to(const std::string& other) {
    auto& made = peers[other];
    if (made == nullptr) {
      made = std::make_unique<Connection>();
      EXPECT_TRUE(core->add(*made, place(other)));
    }
    return *made;
  }
  void say(const std::string& other, const std::string& what) {
    Connection& c = to(other);
    ASSERT_TRUE(core->reserve(c, what.size()));
    core->append(c, what.data(), what.size());
    core->push(c, [this] { return net.now; });
  }
  void take(const std::string& from, const Packet& packet, std::string_view payload = {}) {
    Bytes bytes(head_bytes_max);
    bytes.resize(encode(packet, bytes.data()));
    const auto more = std::as_bytes(std::span(payload));
    bytes.insert(bytes.end(), more.begin(), more.end());
    core->on_packet(place(from), bytes, net.now);
  }

  Net& net;
  std::string name;
  std::map<std::string, std::unique_ptr<Connection>> peers;
  std::unique_ptr<Core> core = std::make_unique<Core>(*this, *this);
  std::map<std::string, std::string> heard;
  std::map<std::string, size_t> sent;
  int losses = 0;
};

// Delivers and polls for a while; what goes elsewhere is lost.
void run(Net& net, const std::vector<End*>& ends, uint64_t for_ns = 5 * ms) {
  for (const uint64_t until = net.now + for_ns; net.now < until; net.now += 50 * us) {
    while (!net.flying.empty()) {
      const Net::Datagram datagram = std::move(net.flying.front());
      net.flying.pop_front();
      for (End* end : ends)
        if (end->name == datagram.to) end->core->on_packet(place(datagram.from), datagram.bytes, net.now);
    }
    for (End* end : ends) end->core->end_poll(net.now);
  }
}

Packet first_packet(uint64_t incarnation, uint32_t from, std::string_view address) {
  Packet packet;
  packet.flags = has_handshake;
  packet.from = from;
  packet.incarnation = incarnation;
  packet.address = place(address);
  return packet;
}

struct Hostile : testing::Test {
  Net net;
  End a{net, "aaaa", 1000}, b{net, "bbbb", 1000};
  void talk() {
    a.say("bbbb", "one");
    run(net, {&a, &b});
    b.say("aaaa", "two");
    run(net, {&a, &b});
    ASSERT_EQ(b.heard["aaaa"], "one");
    ASSERT_EQ(a.heard["bbbb"], "two");
  }
};

// Only 16 bits of our number are random: without the other side's number nothing is believed.
TEST_F(Hostile, NobodyAnswersForAPeerThatHasNotAnswered) {
  a.say("bbbb", "one");  // on its way
  Packet packet;
  packet.to = a.to("bbbb").who.id;
  packet.from = 0;
  a.take("evil", packet, "forged");
  EXPECT_EQ(a.heard["bbbb"], "");
  packet.type = PacketType::Close;
  a.take("evil", packet);
  packet.type = PacketType::Reset;
  a.take("evil", packet);
  packet.type = PacketType::Data;
  packet.flags = has_handshake;  // without a number of its own
  packet.incarnation = 5;
  packet.peer_incarnation = a.to("bbbb").who.incarnation;
  packet.address = place("bbbb");
  a.take("evil", packet);
  EXPECT_EQ(a.losses, 0);
  run(net, {&a, &b});
  EXPECT_EQ(b.heard["aaaa"], "one");
  EXPECT_EQ(text(a.to("bbbb").who.path.span()), "bbbb");
}

// A larger incarnation says that the endpoint restarted: whoever says so has to get our answer at its address.
TEST_F(Hostile, AForgedNewIncarnationEndsNothing) {
  talk();
  for (const char* from : {"evil", "aaaa"}) {
    for (uint64_t i = 1; i < 100; ++i)
      b.take(from, first_packet((uint64_t{i} << 50) + i, 77 + uint32_t(i), "aaaa"), "forged");
  }
  EXPECT_EQ(b.losses, 0);
  EXPECT_EQ(b.heard["aaaa"], "one");
  EXPECT_EQ(b.sent["evil"], 0u) << "what proves an address goes to that address";
  run(net, {&a, &b});
  a.say("bbbb", "more");
  b.say("aaaa", "more");
  run(net, {&a, &b});
  EXPECT_EQ(b.heard["aaaa"], "onemore");
  EXPECT_EQ(a.heard["bbbb"], "twomore");
  EXPECT_EQ(a.losses + b.losses, 0);
}

// And one that did restart is taken in, whatever its clock says.
TEST_F(Hostile, ATrueNewIncarnationIsTakenIn) {
  talk();
  for (const uint64_t incarnation : {uint64_t{5'000'000}, uint64_t{500}, uint64_t{600}}) {
    End again(net, "aaaa", incarnation);
    b.heard.clear();
    const int before = b.losses;
    again.say("bbbb", "anew");
    run(net, {&again, &b});
    EXPECT_EQ(b.heard["aaaa"], "anew") << incarnation;
    EXPECT_EQ(b.losses, before + 1);
    EXPECT_EQ(again.losses, 0);
    b.say("aaaa", "welcome");
    run(net, {&again, &b});
    EXPECT_EQ(again.heard["bbbb"], "welcome");
  }
}

// Incarnations only grow, so whoever guesses the 16 random bits of a number must not use them up.
TEST_F(Hostile, IncarnationsAreNotUsedUp) {
  a.say("bbbb", "one");
  Packet packet;
  packet.type = PacketType::Reset;
  packet.to = a.to("bbbb").who.id;
  for (const uint64_t word : {UINT64_MAX / 4 - 3, UINT64_MAX / 4 - 2, UINT64_MAX / 5}) {
    packet.offset = word;
    a.take("evil", packet);
  }
  for (int i = 0; i < 1000; ++i) {
    packet.offset = a.to("bbbb").who.incarnation + (uint64_t{1} << 53);
    a.take("evil", packet);
  }
  EXPECT_LT(a.to("bbbb").who.incarnation, uint64_t{1} << 61);
  a.say("cccc", "two");
  EXPECT_LT(a.to("cccc").who.incarnation, uint64_t{1} << 61);
  net.flying.clear();
  run(net, {&a, &b}, 200 * ms);
  EXPECT_EQ(b.heard["aaaa"], "one");
}

TEST_F(Hostile, ResetAndCloseComeFromWhereThePeerIs) {
  talk();
  Packet packet;
  packet.to = b.to("aaaa").who.id;
  packet.from = b.to("aaaa").who.peer_id;
  for (const PacketType type : {PacketType::Reset, PacketType::Close}) {
    packet.type = type;
    b.take("evil", packet);
    EXPECT_EQ(b.losses, 0);
  }
  packet.type = PacketType::Reset;
  b.take("aaaa", packet);
  EXPECT_EQ(b.losses, 1);
}

// First packets from addresses that do not answer: others get in all the same, at once.
TEST_F(Hostile, AFloodOfFirstPacketsKeepsNobodyOut) {
  for (uint32_t i = 0; i < 20'000; ++i) {
    const std::string from = {'x', char('0' + i % 64), char('0' + i / 64 % 64), char('0' + i / 4096)};
    b.take(from, first_packet(1000, 77, from), "junk");
  }
  EXPECT_LE(b.peers.size(), Core::unvalidated_max);
  net.flying.clear();
  a.say("bbbb", "one");
  run(net, {&a, &b});
  EXPECT_EQ(b.heard["aaaa"], "one");
  End c{net, "cccc", 1000};
  b.say("cccc", "two");
  run(net, {&b, &c});
  EXPECT_EQ(c.heard["bbbb"], "two");
  EXPECT_EQ(b.losses, 0);
}

// Who has not shown that our packets reach it gets a few times what it sent, and no more, however much there is to say.
TEST_F(Hostile, AForgedSenderIsNotFlooded) {
  const std::string victim = "vvvv";
  b.take(victim, first_packet(1000, 77, victim), "please send me all you have");
  const size_t asked = fixed_head_bytes + handshake_head_bytes + 4 + 27;
  b.say(victim, std::string(100'000, 'z'));
  run(net, {&b}, 2 * second);
  EXPECT_LE(b.sent[victim], 3 * asked + 8 * head_bytes_max);
  // With the first sign of life all of it goes.
  End there{net, victim, 1000};
  Packet packet;
  packet.to = b.to(victim).who.id;
  packet.from = 77;
  b.take(victim, packet);
  run(net, {&b}, 200 * ms);
  EXPECT_GT(b.sent[victim], 10'000u);
}

// Bytes that come early take memory in chunks of 64 KiB: not for somebody who may not exist.
TEST_F(Hostile, EarlyBytesOfForgedSendersAreNotBuffered) {
  const std::string from = "vvvv";
  for (uint64_t i = 0; i < 60; ++i) {
    Packet packet = first_packet(1000, 77, from);
    packet.offset = i * chunk_bytes + 1;
    b.take(from, packet, "x");
  }
  ASSERT_EQ(b.peers.count(from), 1u);
  EXPECT_FALSE(b.to(from).in.has_gaps());
}

// "Port unreachable" is about something that we sent, so it says nothing of a peer whom we wait for nothing from.
TEST_F(Hostile, RefusalsOfAnIdlePeerAreNotBelieved) {
  talk();
  run(net, {&a, &b}, 50 * ms);
  for (int i = 0; i < 10; ++i) b.core->on_refused(place("aaaa"), net.now += 100 * ms);
  EXPECT_EQ(b.losses, 0);
}

// Stamps have 32 bits of 64 ns: after a silence of more than half of their 275 s a new one looks older than the last.
TEST_F(Hostile, StampsWrapInALongSilence) {
  talk();
  run(net, {&a, &b}, 50 * ms);
  for (const uint64_t silence : {150, 200, 250, 300}) {
    net.now += silence * second;
    const uint64_t at = net.now;
    a.say("bbbb", "after");
    run(net, {&a, &b});
    EXPECT_GE(b.to("aaaa").owed.newest_at(), at) << silence;
  }
}

// Two that compute for minutes without a call hear nothing of each other: time in which we did not look is no silence of the other side.
TEST_F(Hostile, OwnAbsenceIsNotSilence) {
  talk();
  a.say("bbbb", "three");  // is lost
  net.flying.clear();
  net.now += 10 * ms;
  a.core->end_poll(net.now);
  net.flying.clear();
  net.now += 120 * second;
  a.core->end_poll(net.now);
  EXPECT_EQ(a.losses, 0);
  run(net, {&a}, 5 * second);  // the other one still computes
  EXPECT_EQ(a.losses, 0);
  run(net, {&a, &b}, 2 * second);
  EXPECT_EQ(b.heard["aaaa"], "onethree");
  run(net, {&a, &b}, 50 * ms);

  net.now += 120 * second;
  a.core->probe_if_silent(a.to("bbbb"), 2 * second, net.now);
  run(net, {&a}, 5 * second);
  EXPECT_EQ(a.losses, 0);
  run(net, {&a}, Config{}.dead_after);
  EXPECT_EQ(a.losses, 1);
}

// A peer that computes: its socket keeps packets as long as they fit, and it calls nothing.
struct Asleep : testing::Test {
  static constexpr size_t window = 212'992;
  Net net;
  End a{net, "aaaa", 1000, window}, b{net, "bbbb", 1000, window};
  std::deque<Net::Datagram> socket;
  void begin() {
    for (int i = 0; i < 3; ++i) {
      a.say("bbbb", "hello");
      run(net, {&a, &b}, 50 * ms);
      b.say("aaaa", "hello");
      run(net, {&a, &b}, 50 * ms);
    }
  }
  void pass(uint64_t for_ns) {
    for (const uint64_t until = net.now + for_ns; net.now < until; net.now += 50 * us) {
      a.core->end_poll(net.now);
      for (; !net.flying.empty(); net.flying.pop_front()) {
        size_t taken = 0;
        for (const auto& datagram : socket) taken += std::bit_ceil(datagram.bytes.size() + 378) + 256;
        if (taken < 2 * window) socket.push_back(net.flying.front());
      }
    }
  }
  // Each by itself, as a program does that polls after each.
  std::string say_each(int count, size_t bytes) {
    std::string all;
    for (int i = 0; i < count; ++i) {
      const std::string one(bytes, static_cast<char>('a' + i % 26));
      a.say("bbbb", one);
      pass(50 * us);
      all += one;
    }
    return all;
  }
  void wake() {
    net.flying = std::move(socket);
    run(net, {&a, &b}, 3 * second);
  }
  uint64_t completed() { return Core::completed(a.to("bbbb")); }
};

TEST_F(Asleep, ManySmallPacketsAreTakenForArrived) {
  for (const auto& [count, bytes] : {std::pair(70, 8), std::pair(300, 40), std::pair(70, 1000)}) {
    begin();
    const size_t heard = b.heard["aaaa"].size();
    const std::string all = say_each(count, static_cast<size_t>(bytes));
    pass(10 * second);  // what it answers when it wakes looks like a long round trip
    EXPECT_EQ(completed(), a.to("bbbb").out.end()) << count << " of " << bytes;
    wake();
    EXPECT_EQ(b.heard["aaaa"].substr(heard), all);
    EXPECT_EQ(a.to("bbbb").out.acked(), a.to("bbbb").out.end());
  }
  EXPECT_EQ(a.losses + b.losses, 0);
}

// A policy that assumes nothing waits for the acknowledgement, and the default says how much it assumed.
TEST_F(Asleep, WithoutAssumptionsOnlyAcknowledgedBytesAreSettled) {
  begin();
  EXPECT_EQ(a.core->statistics().assumed, 0u);
  const uint64_t before = a.to("bbbb").out.end();
  (void)say_each(3, 100);
  pass(10 * second);
  EXPECT_EQ(completed(), before + 300);
  EXPECT_EQ(a.core->statistics().assumed, 300u);
  wake();
  EXPECT_EQ(a.core->statistics().assumed, 300u);

  Config config;
  config.completion = CompletionPolicy::acknowledged();
  End strict(net, "cccc", 1000, window, config);
  strict.say("bbbb", "hello");
  run(net, {&strict, &b}, 50 * ms);
  ASSERT_EQ(Core::completed(strict.to("bbbb")), 5u);
  strict.say("bbbb", "more");
  for (const uint64_t until = net.now + 10 * second; net.now < until; net.now += 50 * us) {
    strict.core->end_poll(net.now);
    for (; !net.flying.empty(); net.flying.pop_front()) socket.push_back(net.flying.front());
  }
  EXPECT_EQ(Core::completed(strict.to("bbbb")), 5u);
  EXPECT_EQ(strict.core->statistics().assumed, 0u);
  net.flying = std::move(socket);
  run(net, {&strict, &b}, 3 * second);
  EXPECT_EQ(Core::completed(strict.to("bbbb")), 9u);
  EXPECT_EQ(b.heard["cccc"], "hellomore");
}

TEST(ReliableCompletionPolicy, AssumesAfterTheTimeoutsItWasGiven) {
  EXPECT_FALSE(CompletionPolicy::acknowledged().assumes(1000));
  EXPECT_FALSE(CompletionPolicy::from(0).assumes(1000));
  EXPECT_FALSE(CompletionPolicy::from(4).assumes(3));
  EXPECT_TRUE(CompletionPolicy::from(4).assumes(4));
  EXPECT_EQ(CompletionPolicy::from(4).repetitions(), 4u);
}

// What does not fit into its socket is not there, however often it is sent.
TEST_F(Asleep, OnlyWhatFitsIsTakenForArrived) {
  begin();
  const uint64_t before = a.to("bbbb").out.end();
  const size_t heard = b.heard["aaaa"].size();
  const std::string all = say_each(150, 1200);
  pass(10 * second);
  EXPECT_GT(completed(), before + 10 * 1200);
  std::map<uint64_t, uint64_t> kept;  // from, to
  for (const auto& datagram : socket) {
    Packet packet;
    ASSERT_TRUE(decode(datagram.bytes, 0, packet));
    kept[packet.offset] = std::max(kept[packet.offset], packet.offset + packet.payload.size());
  }
  uint64_t end = before;
  for (const auto& [from, to] : kept)
    if (from <= end) end = std::max(end, to);
  EXPECT_LE(completed(), end);
  EXPECT_LT(completed(), before + all.size());
  wake();
  EXPECT_EQ(b.heard["aaaa"].substr(heard), all);
  EXPECT_EQ(a.losses + b.losses, 0);
}

// Endpoints that close in a row, with no time left for peers that are silent.
struct Closing : Hostile {
  // Closes `a` in a hurry; the other one answers meanwhile, or not. Every n-th packet is lost. Returns how long it took.
  uint64_t close_a(bool answers, size_t lost_every) {
    const uint64_t began = net.now;
    a.core->begin_close(net.now);
    while (!a.core->closed(net.now, true)) {
      carry(answers, lost_every);
      a.core->end_poll(net.now);
      net.now += 50 * us;
    }
    const uint64_t took = net.now - began;
    for (int i = 0; i < 100; ++i, net.now += 50 * us) carry(true, lost_every);
    return took;
  }
  void carry(bool answers, size_t lost_every) {
    for (; !net.flying.empty(); net.flying.pop_front()) {
      const Net::Datagram& datagram = net.flying.front();
      if (lost_every != 0 && ++packets_ % lost_every == 0) continue;
      if (datagram.to == "aaaa") a.core->on_packet(place("bbbb"), datagram.bytes, net.now);
      else if (answers) b.core->on_packet(place("aaaa"), datagram.bytes, net.now);
    }
    if (answers) b.core->end_poll(net.now);
  }
  std::string say_much() {
    std::string all;
    for (int i = 0; i < 100; ++i) {
      all += std::string(1000, static_cast<char>('a' + i % 26));
      a.say("bbbb", all.substr(all.size() - 1000));
    }
    return all;
  }

 private:
  size_t packets_ = 0;
};

struct ClosingUnderLoss : Closing, testing::WithParamInterface<size_t> {};

TEST_P(ClosingUnderLoss, AHurryLosesNothingOfAPeerThatAnswers) {
  talk();
  const std::string all = say_much();
  EXPECT_LT(close_a(true, GetParam()), second);
  EXPECT_EQ(b.heard["aaaa"], "one" + all);
}
INSTANTIATE_TEST_SUITE_P(Loss, ClosingUnderLoss, testing::Values(0, 10, 7, 4));

TEST_F(Closing, AHurryDoesNotWaitForASilentPeer) {
  talk();
  say_much();
  EXPECT_LE(close_a(false, 0), 11 * ms);
}

TEST_F(Closing, AHurryDoesNotWaitWhenEverythingHasArrived) {
  talk();
  run(net, {&a, &b}, 50 * ms);
  EXPECT_EQ(close_a(false, 0), 0u);
}

// A packet link tells of refusals when it is asked, several at one instant, and a timeout may be far away.
TEST_F(Hostile, ADeadPeerIsAskedSoonAfterARefusal) {
  talk();
  a.say("bbbb", "more");
  net.flying.clear();
  for (const uint64_t until = net.now + 4 * second; net.now < until; net.now += 50 * us) {
    a.core->end_poll(net.now);
    net.flying.clear();
  }
  const uint64_t died = net.now;
  for (int i = 0; i < 5; ++i) a.core->on_refused(place("bbbb"), net.now);
  EXPECT_EQ(a.losses, 0);
  const uint64_t timeouts = a.core->counters().timeouts;
  uint64_t asked_at = 0;
  while (a.losses == 0 && net.now < died + 2 * second) {
    net.now += 50 * us;
    a.core->end_poll(net.now);
    if (!net.flying.empty()) a.core->on_refused(place("bbbb"), net.now);
    net.flying.clear();
    if (a.core->counters().timeouts != timeouts && asked_at == 0) asked_at = net.now;
  }
  EXPECT_NE(asked_at, 0u) << "whoever carries refusals looks for them when this has changed";
  EXPECT_EQ(a.losses, 1);
  EXPECT_LT(net.now - died, 300 * ms);
}

// A peer that was never met ends after 2 s in which no packet could be sent to it. One that was met is waited for, since the route may come back; what could
// not be sent is not taken for delivered.
TEST_F(Hostile, SendErrorsEndAPeerThatWasNeverMet) {
  for (const bool met : {true, false}) {
    const std::string there = met ? "bbbb" : "cccc";
    if (met) talk();
    a.say(there, "more");
    const uint64_t from = net.now;
    const uint64_t end = a.to(there).out.end();
    uint64_t timeouts = UINT64_MAX;
    int errors = 0;
    while (a.losses == 0 && net.now < from + 10 * second) {
      net.now += 50 * us;
      a.core->end_poll(net.now);
      net.flying.clear();
      if (std::exchange(timeouts, a.core->counters().timeouts) == timeouts) continue;
      a.core->on_send_error(place(there), ENETUNREACH, net.now);
      ++errors;
    }
    EXPECT_GE(errors, 3);
    EXPECT_EQ(a.losses, met ? 0 : 1);
    if (met) {
      EXPECT_LT(Core::completed(a.to(there)), end);
      EXPECT_EQ(a.to(there).life.send_error, ENETUNREACH);
      a.core->remove(a.to(there), net.now);
      a.peers.erase(there);
    } else {
      EXPECT_GE(net.now - from, 2 * second);
      EXPECT_LE(net.now - from, 2 * second + 200 * ms);
    }
  }
}

// What was received early has gone up, so nothing of it is kept.
TEST_F(Hostile, NoChunkStaysBehindAGap) {
  talk();
  Connection& c = b.to("aaaa");
  const uint64_t ready = c.in.ready();
  const std::string many(chunk_bytes - 100, 'm');
  Packet packet;
  packet.to = c.who.id;
  packet.from = c.who.peer_id;
  packet.offset = ready + 1000;
  b.take("aaaa", packet, "early");
  packet.offset = ready;
  b.take("aaaa", packet, std::string(1500, 'm'));
  EXPECT_FALSE(c.in.has_gaps());
  EXPECT_EQ(c.in.buffered_chunks(), 0u);
}

// The scope of a link-local address is the sender's own: here it is known by ours.
TEST_F(Hostile, AScopeIsOfItsOwnMachine) {
  b.say("lin2", "one");
  b.take("lin2", first_packet(1000, 77, "lin7"), "two");
  EXPECT_EQ(b.peers.size(), 1u);
  EXPECT_EQ(b.heard["lin2"], "two");
}

// A good-bye of somebody unknown makes nobody known.
TEST_F(Hostile, ACloseOfAnUnknownPeer) {
  Packet packet = first_packet(1000, 77, "vvvv");
  packet.type = PacketType::Close;
  b.take("vvvv", packet);
  EXPECT_EQ(b.peers.size(), 0u);
  EXPECT_EQ(b.losses, 0);
  EXPECT_EQ(b.sent["vvvv"], fixed_head_bytes);
}

}  // namespace
}  // namespace weft::proto::reliable
