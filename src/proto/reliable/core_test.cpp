// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the simulator's random worlds do not pin down: the wire byte by byte, speed under loss, the time until a dead peer is known, and that hostile
// packets change nothing.
#include "proto/reliable/core.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "proto/reliable/sim_world.hpp"

namespace weft::proto::reliable {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(ReliablePacket, CheckIsCastagnolis) {
  EXPECT_EQ(crc32c(0, bytes_of("123456789").data(), 9), 0xe3069283u);  // the value that its catalogues give
  const auto text = bytes_of("frames over an ordered stream of bytes");
  EXPECT_EQ(crc32c(crc32c(0, text.data(), 11), text.data() + 11, text.size() - 11),
            crc32c(0, text.data(), text.size()));
}

TEST(ReliablePacket, BytesAreAsDocumented) {
  Packet packet;
  packet.flags = has_ack | has_handshake | has_check | wants_ack;
  packet.to = 0x01020304;
  packet.from = 0x05060708;
  packet.stamp = 0x090a0b0c;
  packet.offset = 0x1122334455667788;
  packet.ack = 1000;
  packet.window = 77;
  packet.echo = 5;
  packet.hold = 6;
  packet.range_count = 1;
  packet.ranges[0] = {1500, 1600};
  packet.incarnation = 9;
  packet.peer_incarnation = 8;
  packet.address = bytes_of("here");
  std::array<std::byte, head_bytes_max + 3> bytes{};
  const size_t head = encode(packet, bytes.data());
  EXPECT_EQ(head, head_bytes(packet.flags, 1, 4));
  EXPECT_EQ(head, 24u + 4 + 20 + 8 + 17 + 4);
  std::memcpy(bytes.data() + head, "abc", 3);
  const Piece payload{bytes.data() + head, 3};
  seal(bytes.data(), head, {&payload, 1});
  const auto at = [&](size_t i) { return std::to_integer<unsigned>(bytes[i]); };
  EXPECT_EQ(at(0), 0x57u);
  EXPECT_EQ(at(1), 0x11u);
  EXPECT_EQ(at(2), unsigned{has_ack | has_handshake | has_check | wants_ack});
  EXPECT_EQ(at(3), 1u);
  EXPECT_EQ(at(4), 4u);
  EXPECT_EQ(at(8), 8u);
  EXPECT_EQ(at(12), 0x0cu);
  EXPECT_EQ(at(16), 0x88u);
  EXPECT_EQ(at(23), 0x11u);
  EXPECT_EQ(at(28), 1000u % 256);
  EXPECT_EQ(at(48), 500u % 256);

  Packet read;
  ASSERT_TRUE(decode(std::span(bytes.data(), head + 3), has_check, read));
  EXPECT_EQ(read.offset, packet.offset);
  EXPECT_EQ(read.ranges[0].end, 1600u);
  EXPECT_EQ(read.incarnation, 9u);
  EXPECT_EQ(read.payload.size(), 3u);
  // No prefix of it is a packet, and no altered byte goes unseen.
  for (size_t length = 0; length < head; ++length)
    EXPECT_FALSE(decode(std::span(bytes.data(), length), has_check, read)) << length;
  for (size_t i = 0; i < head + 3; ++i) {
    bytes[i] ^= std::byte{0x40};
    EXPECT_FALSE(decode(std::span(bytes.data(), head + 3), has_check, read)) << i;
    bytes[i] ^= std::byte{0x40};
  }
}

TEST(ReliablePacket, LengthIsInPlaceOfTheCheck) {
  Packet packet;
  packet.flags = has_length;
  packet.from = 1;
  std::array<std::byte, head_bytes_max + 8> bytes{};
  const size_t head = encode(packet, bytes.data());
  EXPECT_EQ(head, 28u);
  EXPECT_EQ(head, head_bytes(packet.flags, 0, 0));
  const Piece payload{bytes.data() + head, 3};
  seal(bytes.data(), head, {&payload, 1});
  Packet read;
  ASSERT_TRUE(decode(std::span(bytes.data(), head + 3), has_length, read));
  EXPECT_EQ(read.length, head + 3);
  EXPECT_EQ(read.payload.size(), 3u);
  EXPECT_FALSE(decode(std::span(bytes.data(), head + 3), has_check, read));
  for (const size_t other : {head, head + 2, head + 4, head + 8}) {
    read = {};
    EXPECT_FALSE(decode(std::span(bytes.data(), other), has_length, read)) << other;
    EXPECT_EQ(read.length, head + 3);
  }
  bytes[2] |= std::byte{has_check};  // both are none
  EXPECT_FALSE(decode(std::span(bytes.data(), head + 3), 0, read));
}

// How long a stream takes over a path of 100 us there and back, in simulated time: the median of several worlds, for one may be unlucky.
uint64_t time_of(double loss, size_t packet_bytes, uint64_t bytes) {
  std::array<uint64_t, 9> times{};
  for (size_t i = 0; i < times.size(); ++i) {
    sim::World world(i + 1);
    world.rules = sim::Conditions{};
    world.rules.loss = loss;
    world.rules.delay_ns = 50 * us;
    world.rules.packet_bytes = packet_bytes;
    world.rules.poll_ns = 1 * us;
    world.rules.bytes = bytes;
    EXPECT_EQ(world.run(), "");
    times[i] = world.finished_at;
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

TEST(ReliableSim, LossAloneDoesNotCollapseTheWindow) {
  const uint64_t without = time_of(0, 1472, 8'000'000);
  EXPECT_LT(time_of(0.01, 1472, 8'000'000), 2 * without);
  EXPECT_LT(time_of(0.05, 1472, 8'000'000), 6 * without);
  EXPECT_LT(time_of(0.2, 1472, 2'000'000), 150 * ms);  // of single worlds a half is between 55 and 105 ms
}

// Somebody vanishes without a word while bytes are under way: it is known after dead_after, and a timeout more.
TEST(ReliableSim, SilenceIsNoticedInBoundedTime) {
  sim::World world(1);
  world.rules = sim::Conditions{};
  world.rules.delay_ns = 50 * us;
  world.rules.poll_ns = 100 * us;
  world.rules.bytes = 100;
  world.rules.deaths = true;
  ASSERT_EQ(world.run(), "");
  sim::Node& node = *world.nodes[0];
  const int before = node.losses;
  world.rules.loss = 1;
  world.lossless = false;
  node.connect(1, 1000);
  const uint64_t from = world.now;
  while (node.losses == before && world.now < from + 100 * second) {
    world.now += 100 * us;
    node.poll();
  }
  EXPECT_EQ(node.losses, before + 1);
  EXPECT_GE(world.now - from, Config{}.dead_after);
  EXPECT_LE(world.now - from, Config{}.dead_after + 2 * second);
}

TEST(ReliableCore, RefusalsAreBelievedWhenNothingContradicts) {
  sim::World world(1);
  world.rules = sim::Conditions{};
  world.rules.delay_ns = 50 * us;
  world.rules.poll_ns = 100 * us;
  world.rules.bytes = 100;
  world.rules.deaths = true;
  ASSERT_EQ(world.run(), "");
  sim::Node& node = *world.nodes[0];
  const int before = node.losses;
  world.rules.loss = 1;
  world.lossless = false;
  node.connect(1, 1000);
  for (int i = 0; i < 100; ++i) node.poll();  // something is under way
  const std::array<std::byte, 4> there{std::byte{'n'}, std::byte{'o'}, std::byte{'d'}, std::byte{1}};
  for (int i = 0; i < 10; ++i) node.core().on_refused(there, world.now);
  EXPECT_EQ(node.losses, before) << "at once";
  for (int i = 0; i < 5; ++i) node.core().on_refused(there, world.now += 100 * ms);
  EXPECT_EQ(node.losses, before + 1);
}

// A peer that does not poll lets timeouts pass, and has everything several times when it does: nothing of it was lost. A packet that the network
// drops was.
TEST(ReliableCore, WhatCameLateWasNotLost) {
  for (const bool dropped : {false, true}) {
    sim::World world(1);
    world.rules = sim::Conditions{};
    world.rules.delay_ns = 2 * us;
    world.rules.poll_ns = 20 * us;
    world.rules.bytes = 100;
    ASSERT_EQ(world.run(), "");
    world.deliver();
    for (auto& node : world.nodes) node->poll();
    sim::Node& node = *world.nodes[0];
    sim::Peer& peer = *node.peers.at(1);
    const auto poll = [&](bool both) {
      world.now += 20 * us;
      world.deliver();
      node.poll();
      world.deliver();
      if (both) world.nodes[1]->poll();
    };
    const Statistics before = node.core().statistics();
    world.rules.loss = dropped ? 1 : 0;
    world.lossless = !dropped;
    const auto byte = sim::stream_byte(peer.sending, peer.sent++);
    ++peer.goal;
    ASSERT_TRUE(node.core().reserve(peer, 1));
    node.core().append(peer, &byte, 1);
    Core::expect(peer);
    node.core().push(peer, [&] { return world.now; });
    world.deliver();
    world.rules.loss = 0;
    for (int i = 0; i < 1000; ++i) poll(false);
    for (int i = 0; i < 1000; ++i) poll(true);
    const Statistics after = node.core().statistics();
    EXPECT_GT(after.sent_again, before.sent_again);
    EXPECT_GT(after.timeouts, before.timeouts);
    EXPECT_EQ(after.lost - before.lost, dropped ? 1u : 0u);
    EXPECT_EQ(peer.out.acked(), peer.out.end());
  }
}

// One tells a second, which tells a third, which tells the first: that one knows by now that its message has come. Programs rely on it: what
// belongs to a message is given back when everybody has said to have gone on.
TEST(ReliableCore, WhatAMessageBringsAboutIsNotSeenBeforeItsAcknowledgement) {
  sim::World world(1);
  world.rules = sim::Conditions{};
  world.rules.nodes = 3;
  world.rules.delay_ns = 2 * us;
  world.rules.poll_ns = 20 * us;
  world.rules.bytes = 100;
  ASSERT_EQ(world.run(), "");
  world.deliver();
  for (auto& node : world.nodes) node->poll();
  const auto tell = [&](size_t from, int to) {
    sim::Node& node = *world.nodes[from];
    sim::Peer& peer = *node.peers.at(to);
    const auto byte = sim::stream_byte(peer.sending, peer.sent++);
    ++peer.goal;
    ASSERT_TRUE(node.core().reserve(peer, 1));
    node.core().append(peer, &byte, 1);
    Core::expect(peer);
    node.core().push(peer, [&] { return world.now; });
    world.deliver();
    world.now += 5 * us;
    world.nodes[static_cast<size_t>(to)]->poll();
  };
  for (int round = 0; round < 100; ++round) {
    tell(0, 1);
    tell(1, 2);
    tell(2, 0);
    const sim::Peer& peer = *world.nodes[0]->peers.at(1);
    ASSERT_EQ(Core::completed(peer), peer.sent) << round;
  }
  EXPECT_EQ(world.wrong, "");
}

// A packet link that has no room is no reason to wait for ever; but time in which nobody tries is not counted.
struct Full final : PacketOutput, Upper {
  size_t packet_bytes_max(std::span<const std::byte>) noexcept override { return 1000; }
  bool send(std::span<const std::byte>, const iovec*, size_t) noexcept override { return has_room; }
  bool send_segmented(std::span<const std::byte>, const iovec*, size_t, size_t) noexcept override {
    return has_room;
  }
  Connection* accept(std::span<const std::byte>) noexcept override { return nullptr; }
  size_t on_bytes(Connection&, std::span<const std::byte> bytes) noexcept override { return bytes.size(); }
  void lost(Connection& c, core::ProviderError why) noexcept override {
    EXPECT_EQ(why, core::ProviderError::PeerUnreachable);
    death = c.ending.death;
  }
  bool has_room = false;
  Death death = Death::None;
};

TEST(ReliableCore, WhoseLinkNeverHasRoomIsUnreachable) {
  Full full;
  Core core(full, full);
  Config config;
  ASSERT_TRUE(core.open(bytes_of("here"), config));
  Connection there;
  ASSERT_TRUE(core.add(there, bytes_of("there")));
  ASSERT_TRUE(core.reserve(there, 5));
  uint64_t now = second;
  core.append(there, "hello", 5);
  core.push(there, [&] { return now; });
  const auto drive = [&](uint64_t span) {
    for (const uint64_t end = now + span; now < end && full.death == Death::None; now += 100 * ms)
      core.end_poll(now);
  };
  drive(config.dead_after / 2);
  now += 10 * config.dead_after;  // the program does something else
  drive(config.dead_after / 3);
  EXPECT_EQ(full.death, Death::None);
  full.has_room = true;
  drive(100 * ms);
  full.has_room = false;
  const uint64_t from = now;
  ASSERT_TRUE(core.reserve(there, 5));
  core.append(there, "again", 5);
  core.push(there, [&] { return now; });
  drive(2 * config.dead_after);
  EXPECT_NE(full.death, Death::None);
  EXPECT_GE(now - from, config.dead_after - second);
  EXPECT_LE(now - from, config.dead_after + 2 * second);
}

// Packets that left between two errors of the link, without a word, show that the address can be reached.
TEST(ReliableCore, ErrorsFarApartAreNoRow) {
  Full full;
  full.has_room = true;
  Core core(full, full);
  Config config;
  ASSERT_TRUE(core.open(bytes_of("here"), config));
  Connection there;
  ASSERT_TRUE(core.add(there, bytes_of("there")));
  ASSERT_TRUE(core.reserve(there, 5));
  uint64_t now = second;
  core.append(there, "hello", 5);
  core.push(there, [&] { return now; });
  const auto drive = [&](uint64_t span, uint64_t error_every) {
    uint64_t next = error_every != 0 ? now : UINT64_MAX;
    for (const uint64_t end = now + span; now < end && full.death == Death::None; now += 10 * ms) {
      core.end_poll(now);
      if (now < next || full.death != Death::None) continue;
      core.on_send_error(bytes_of("there"), ENETUNREACH, now);
      next += error_every;
    }
  };
  drive(30 * ms, 10 * ms);
  drive(10 * second, 0);
  drive(10 * ms, 10 * ms);
  drive(8 * second, 0);
  ASSERT_EQ(full.death, Death::None);
  EXPECT_EQ(there.life.send_error, 0);
  const uint64_t from = now;
  drive(10 * second, 50 * ms);
  EXPECT_EQ(full.death, Death::Refusals);
  EXPECT_GE(now - from, 2 * second - 100 * ms);
  EXPECT_LE(now - from, 3 * second);
}

TEST(ReliableCore, WhatEndedAPeerIsKnown) {
  Full full;
  Core core(full, full);
  Config config;
  config.dead_after = second;
  ASSERT_TRUE(core.open(bytes_of("here"), config));
  for (const bool has_room : {false, true}) {
    Connection there;
    full.death = Death::None;
    full.has_room = has_room;
    ASSERT_TRUE(core.add(there, bytes_of("there")));
    ASSERT_TRUE(core.reserve(there, 5));
    core.append(there, "hello", 5);
    uint64_t now = second;
    core.push(there, [&] { return now; });
    for (; full.death == Death::None && now < 10 * second; now += 10 * ms) core.end_poll(now);
    EXPECT_EQ(full.death, has_room ? Death::Silence : Death::NoRoom);
    EXPECT_GE(there.ending.dead_ns, second);
    EXPECT_LE(there.ending.dead_ns, 3 * second);
  }
}

}  // namespace
}  // namespace weft::proto::reliable
