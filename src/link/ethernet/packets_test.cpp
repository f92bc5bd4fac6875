// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A packet link on an Ethernet in memory: neighbours, headers, what is refused.
#include "link/ethernet/packets.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "link/ethernet/test_hub.hpp"
#include "wire/bytes.hpp"
#include "wire/ip.hpp"

namespace weft::link::ethernet {
namespace {

struct TestClock {
  static inline uint64_t time = 1'000'000'000;
  static uint64_t now() noexcept { return time; }
};
using Packets = EthernetPackets<HubPort, TestClock>;
static_assert(proto::PacketLink<Packets> && proto::HasSegmentationOffload<Packets> &&
              proto::HasSendStatus<Packets> && proto::HasOptionalChecksum<Packets> &&
              proto::HasCongestionMarks<Packets> && proto::HasTrafficClass<Packets> &&
              proto::HasMulticast<Packets> && proto::HasChecksum<Packets> && proto::HasIpAddresses<Packets>);

os::SocketAddress at(std::string_view text) { return *os::SocketAddress::from_text(text); }

struct Seen {
  struct One {
    std::string source;
    std::string destination;
    std::string bytes;
    Frame headers;
    uint16_t identification;
    proto::Ecn ecn;
  };
  std::vector<One> packets;
  void on_packet(const proto::ReceivedPacket& packet) noexcept {
    const auto text = [](std::span<const std::byte> address) {
      return os::SocketAddress::from(address.data(), address.size())->text();
    };
    packets.push_back({text(packet.source),
                       text(packet.destination),
                       {reinterpret_cast<const char*>(packet.bytes.data()), packet.bytes.size()},
                       {packet.headers.begin(), packet.headers.end()},
                       packet.ip_identification,
                       packet.ecn});
  }
};

int send(Packets& link, const os::SocketAddress& to, std::string_view text) {
  const iovec part{const_cast<char*>(text.data()), text.size()};
  return link.try_send(to.bytes(), &part, 1);
}

// Two hosts, by IPv4 and by IPv6.
class Ethernet : public testing::TestWithParam<bool> {
 protected:
  bool is_ip6() const { return GetParam(); }
  os::SocketAddress here() const { return at(is_ip6() ? "[fd14::1]:7" : "10.0.0.1:7"); }
  os::SocketAddress there() const { return at(is_ip6() ? "[fd14::2]:9" : "10.0.0.2:9"); }
  os::SocketAddress nobody() const { return at(is_ip6() ? "[fd14::3]:9" : "10.0.0.3:9"); }
  size_t ip_at() const { return wire::Ethernet::bytes; }
  size_t udp_at() const { return ip_at() + (is_ip6() ? wire::Ip6::bytes : wire::Ip4::bytes); }

  void SetUp() override {
    TestClock::time += 1'000'000'000'000;
    one.frames().attach(hub, 1);
    two.frames().attach(hub, 2);
  }
  void open() {
    ASSERT_TRUE(one.open(here().bytes()));
    ASSERT_TRUE(two.open(there().bytes()));
    turn();
    hub.seen.clear();
  }
  // Everything that is under way arrives.
  void turn() {
    for (int i = 0; i < 4; ++i) {
      one.poll(at_one);
      two.poll(at_two);
    }
  }
  void wait(uint64_t milliseconds) {
    for (uint64_t i = 0; i < milliseconds; i += 10) {
      TestClock::time += 10'000'000;
      turn();
    }
  }
  // What `one` sends to `two` when their MACs are known.
  Frame a_frame(std::string_view text = "hello") {
    EXPECT_EQ(send(one, there(), "first"), 0);
    turn();
    hub.seen.clear();
    EXPECT_EQ(send(one, there(), text), 0);
    Frame frame = hub.seen.at(0);
    turn();
    at_two.packets.clear();
    return frame;
  }
  // Whether `two` shows it.
  bool arrives(const Frame& frame) {
    at_two.packets.clear();
    two.frames().arrived.push_back(frame);
    two.poll(at_two);
    return !at_two.packets.empty();
  }
  // The UDP checksum made right again, and that of IPv4.
  void repair(Frame& frame) const {
    if (!is_ip6()) {
      wire::store_big(&frame[ip_at() + 10], uint16_t{0});
      wire::store_big(&frame[ip_at() + 10], wire::internet_checksum({&frame[ip_at()], wire::Ip4::bytes}));
    }
    wire::store_big(&frame[udp_at() + 6], uint16_t{0});
    wire::InternetSum sum =
        wire::udp_sum(wire::Bytes(frame).subspan(ip_at(), udp_at() - ip_at() + wire::Udp::bytes));
    sum.add(wire::Bytes(frame).subspan(udp_at() + wire::Udp::bytes));
    wire::store_big(&frame[udp_at() + 6], sum.checksum());
  }

  Hub hub;
  Packets one;
  Packets two;
  Seen at_one;
  Seen at_two;
};
INSTANTIATE_TEST_SUITE_P(Versions, Ethernet, testing::Bool(),
                         [](const auto& test) { return test.param ? "ip6" : "ip4"; });

TEST_P(Ethernet, FindsItsNeighbourAndSendsWhatWaited) {
  open();
  EXPECT_EQ(send(one, there(), "a"), 0);
  EXPECT_EQ(send(one, there(), "b"), 0);
  EXPECT_EQ(hub.seen.size(), 1u);  // the question
  turn();
  ASSERT_EQ(at_two.packets.size(), 2u);
  EXPECT_EQ(at_two.packets[0].bytes, "a");
  EXPECT_EQ(at_two.packets[1].bytes, "b");
  EXPECT_EQ(at_two.packets[0].source, here().text());
  EXPECT_EQ(at_two.packets[0].destination, there().text());
  // Who was asked knows who asked.
  hub.seen.clear();
  EXPECT_EQ(send(two, here(), "c"), 0);
  EXPECT_EQ(hub.seen.size(), 1u);
  turn();
  ASSERT_EQ(at_one.packets.size(), 1u);
}

TEST_P(Ethernet, ShowsHeadersAsTheyWereOnTheWire) {
  open();
  const Frame frame = a_frame();
  ASSERT_TRUE(arrives(frame));
  const Frame headers(frame.begin() + static_cast<std::ptrdiff_t>(ip_at()),
                      frame.begin() + static_cast<std::ptrdiff_t>(udp_at() + wire::Udp::bytes));
  EXPECT_EQ(at_two.packets[0].headers, headers);
  wire::Datagram datagram;
  ASSERT_TRUE(wire::Datagram::read(wire::Bytes(frame).subspan(ip_at()), datagram));
  EXPECT_NE(datagram.udp.checksum, 0);
}

TEST_P(Ethernet, ShowsEcnAndIdentification) {
  open();
  one.set_traffic_class(46);
  one.set_ecn(proto::Ecn::Capable0);
  Frame frame = a_frame();
  wire::Datagram datagram;
  ASSERT_TRUE(wire::Datagram::read(wire::Bytes(frame).subspan(ip_at()), datagram));
  EXPECT_EQ(is_ip6() ? datagram.ip6.traffic_class : datagram.ip4.traffic_class, 46 << 2 | 2);
  if (!is_ip6()) {
    frame[ip_at() + 1] |= std::byte{3};
    wire::store_big(&frame[ip_at() + 4], uint16_t{0x1234});
    repair(frame);
  }
  ASSERT_TRUE(arrives(frame));
  EXPECT_EQ(at_two.packets[0].ecn, is_ip6() ? proto::Ecn::Capable0 : proto::Ecn::CongestionExperienced);
  EXPECT_EQ(at_two.packets[0].identification, is_ip6() ? 0 : 0x1234);
}

TEST_P(Ethernet, SegmentsCountInTheIdentification) {
  open();
  EXPECT_EQ(send(one, there(), "first"), 0);
  turn();
  at_two.packets.clear();
  std::string text = "aaabbbcc";
  const iovec parts[] = {{text.data(), 2}, {text.data() + 2, 5}, {text.data() + 7, 0}, {text.data() + 7, 1}};
  EXPECT_TRUE(one.send_segmented(there().bytes(), parts, 4, 3));
  turn();
  ASSERT_EQ(at_two.packets.size(), 3u);
  EXPECT_EQ(at_two.packets[0].bytes, "aaa");
  EXPECT_EQ(at_two.packets[1].bytes, "bbb");
  EXPECT_EQ(at_two.packets[2].bytes, "cc");
  for (uint16_t i = 0; i < 3; ++i) EXPECT_EQ(at_two.packets[i].identification, is_ip6() ? 0 : i);
}

// A device that is full in the middle: how many packets are lost is told.
template <class Port>
void expect_lost_segments() {
  Hub hub;
  EthernetPackets<Port, TestClock> one;
  Packets two;
  one.frames().attach(hub, 1);
  two.frames().attach(hub, 2);
  ASSERT_TRUE(one.open(at("10.0.0.1:7").bytes()) && two.open(at("10.0.0.2:9").bytes()));
  Seen at_one, at_two;
  std::string text = "aaabbbccc";
  const iovec part{text.data(), text.size()};
  const auto turn = [&] {
    for (int i = 0; i < 4; ++i) one.poll(at_one), two.poll(at_two);
  };
  const os::SocketAddress there = at("10.0.0.2:9");
  EXPECT_TRUE(one.send_segmented(there.bytes(), &part, 1, 3));  // waits for the neighbour's MAC
  EXPECT_EQ(one.lost_segments(), 0u);
  turn();
  EXPECT_EQ(at_two.packets.size(), 3u);
  for (size_t room = 0; room <= 3; ++room) {
    at_two.packets.clear();
    one.frames().room = room;
    EXPECT_EQ(one.send_segmented(there.bytes(), &part, 1, 3), room != 0) << room;
    EXPECT_EQ(one.lost_segments(), room == 0 ? 0 : 3 - room);
    one.frames().room = SIZE_MAX;
    turn();
    EXPECT_EQ(at_two.packets.size(), room);
  }
  one.frames().room = 2;
  EXPECT_TRUE(one.send_segmented(there.bytes(), &part, 1, 3));
  one.frames().room = SIZE_MAX;
  EXPECT_TRUE(one.send(there.bytes(), &part, 1));
  EXPECT_EQ(one.lost_segments(), 0u);
}

TEST(EthernetRoom, WhatASegmentedSendHasLostIsCounted) { expect_lost_segments<HubPort>(); }
TEST(EthernetRoom, WhatATrainHasLostIsCounted) { expect_lost_segments<TrainPort>(); }

// What a group's sender hears of itself is what has left, so that it does not hear twice what is sent again.
template <class Port>
void expect_own_segments() {
  Hub hub;
  EthernetPackets<Port, TestClock> one;
  one.frames().attach(hub, 1);
  ASSERT_TRUE(one.open(at("10.0.0.1:99").bytes()));
  const os::SocketAddress group = at("239.1.2.3:99");
  ASSERT_EQ(one.join(group.bytes(), true), 0);
  std::string text = "aaabbbccc";
  const iovec part{text.data(), text.size()};
  one.frames().room = 1;
  EXPECT_TRUE(one.send_segmented(group.bytes(), &part, 1, 3));
  EXPECT_EQ(one.lost_segments(), 2u);
  one.frames().room = SIZE_MAX;
  Seen seen;
  one.poll(seen);
  ASSERT_EQ(seen.packets.size(), 1u);
  EXPECT_EQ(seen.packets[0].bytes, "aaa");
}

TEST(EthernetRoom, ASenderToAGroupHearsWhatHasLeft) { expect_own_segments<HubPort>(); }
TEST(EthernetRoom, ASenderToAGroupHearsWhatHasLeftOfATrain) { expect_own_segments<TrainPort>(); }

TEST_P(Ethernet, WhatWaitsIsBoundedAndLostWhenNobodyAnswers) {
  open();
  for (size_t i = 0; i < 3 * Stack::buffered_per_host_max; ++i) EXPECT_EQ(send(one, nobody(), "x"), 0);
  EXPECT_EQ(one.counters().unreachable, 2 * Stack::buffered_per_host_max);
  wait(3'000);
  EXPECT_EQ(one.counters().unreachable, 3 * Stack::buffered_per_host_max);
  EXPECT_EQ(send(one, nobody(), "x"), -EHOSTUNREACH);
  // All places are free again.
  EXPECT_EQ(send(one, there(), "y"), 0);
  turn();
  EXPECT_EQ(at_two.packets.size(), 1u);
}

TEST_P(Ethernet, AFirstBurstWaitsUpToItsBytesAndLeavesInOrder) {
  open();
  constexpr size_t bytes = 1400;
  const size_t most = Stack::buffered_bytes_per_host_max / (udp_at() + wire::Udp::bytes + bytes);
  ASSERT_GT(most, 100u);
  const auto text = [&](size_t n) { return std::to_string(n) + std::string(bytes - 3, '.'); };
  for (size_t i = 100; i < 100 + most + 5; ++i) EXPECT_EQ(send(one, there(), text(i)), 0);
  EXPECT_EQ(one.counters().unreachable, 5u);
  // What waits for one leaves room for others.
  EXPECT_EQ(send(one, nobody(), text(100)), 0);
  EXPECT_EQ(one.counters().unreachable, 5u);
  turn();
  ASSERT_EQ(at_two.packets.size(), most);
  for (size_t i = 0; i < most; ++i) ASSERT_EQ(at_two.packets[i].bytes, text(100 + i));
  wait(3'000);
  EXPECT_EQ(one.counters().unreachable, 6u);
  // Nothing is counted any more: as many wait again.
  EXPECT_EQ(send(one, there(), "known"), 0);
  for (size_t i = 0; i < Stack::buffered_max; ++i) EXPECT_EQ(send(one, here(), "me"), 0);
  EXPECT_EQ(send(one, here(), "me"), -EAGAIN);
}

TEST_P(Ethernet, ALostQuestionIsAskedAgain) {
  open();
  int frames = 0;
  hub.pass = [&](Frame&) { return ++frames > 2; };
  EXPECT_EQ(send(one, there(), "x"), 0);
  wait(400);
  EXPECT_EQ(at_two.packets.size(), 1u);
}

TEST_P(Ethernet, QuestionsAndPacketsWaitForAFullDevice) {
  open();
  one.frames().is_full = true;
  EXPECT_EQ(send(one, there(), "x"), 0);
  turn();
  EXPECT_TRUE(hub.seen.empty());
  one.frames().is_full = false;
  turn();
  ASSERT_EQ(at_two.packets.size(), 1u);
  one.frames().is_full = true;
  EXPECT_EQ(send(one, there(), "y"), -EAGAIN);
}

TEST_P(Ethernet, ANeighbourWithANewCardIsFound) {
  open();
  EXPECT_EQ(send(one, there(), "x"), 0);
  turn();
  two.close();
  two.frames().attach(hub, 3);
  ASSERT_TRUE(two.open(there().bytes()));  // announces itself
  turn();
  at_two.packets.clear();
  hub.seen.clear();
  EXPECT_EQ(send(one, there(), "y"), 0);
  EXPECT_EQ(hub.seen.at(0).at(5), std::byte{3});
  turn();
  ASSERT_EQ(at_two.packets.size(), 1u);
}

TEST_P(Ethernet, ANeighbourThatLeftIsNoticed) {
  open();
  (void)a_frame();
  two.close();
  for (int i = 0; i < 4000 && send(one, there(), "x") == 0; ++i) wait(10);
  EXPECT_EQ(send(one, there(), "x"), -EHOSTUNREACH);
}

TEST_P(Ethernet, OtherSubnetsAreBehindTheGateway) {
  Network network;
  network.prefix_bits = is_ip6() ? 64 : 24;
  network.gateway = there();
  one.set_network(network);
  open();
  EXPECT_EQ(send(one, at(is_ip6() ? "[fd15::9]:9" : "10.0.1.9:9"), "far"), 0);
  turn();
  EXPECT_EQ(hub.seen.back().at(5), std::byte{2});  // to the gateway's MAC
  wire::Datagram datagram;
  ASSERT_TRUE(wire::Datagram::read(wire::Bytes(hub.seen.back()).subspan(ip_at()), datagram));
  EXPECT_EQ(datagram.payload.size(), 3u);
  EXPECT_TRUE(at_two.packets.empty());  // it is for somebody else
  EXPECT_EQ(two.counters().foreign, 1u);
}

TEST_P(Ethernet, WithoutAGatewayOtherSubnetsAreOutOfReach) {
  Network network;
  network.prefix_bits = is_ip6() ? 64 : 24;
  one.set_network(network);
  open();
  EXPECT_EQ(send(one, at(is_ip6() ? "[fd15::9]:9" : "10.0.1.9:9"), "far"), -ENETUNREACH);
}

TEST_P(Ethernet, AGatewayInAnotherSubnetIsRefused) {
  Network network;
  network.prefix_bits = is_ip6() ? 64 : 24;
  network.gateway = at(is_ip6() ? "[fd15::9]:0" : "10.0.1.9:0");
  one.set_network(network);
  EXPECT_FALSE(one.open(here().bytes()));
}

TEST_P(Ethernet, TaggedFramesStayAmongThemselves) {
  Network network;
  network.vlan = 12;
  one.set_network(network);
  open();
  EXPECT_EQ(send(one, there(), "x"), 0);
  turn();
  EXPECT_TRUE(at_two.packets.empty());
  EXPECT_EQ(wire::load_big<uint16_t>(&hub.seen.at(0)[12]), wire::Ethernet::type_vlan);
  two.close();
  two.set_network(network);
  ASSERT_TRUE(two.open(there().bytes()));
  wait(300);
  EXPECT_EQ(send(one, there(), "y"), 0);
  turn();
  EXPECT_FALSE(at_two.packets.empty());
}

TEST_P(Ethernet, APriorityTagIsNoVlan) {
  open();
  Frame frame = a_frame();
  const Frame tag = {std::byte{0x81}, std::byte{0x00}, std::byte{0xe0}, std::byte{0x00}};
  frame.insert(frame.begin() + 12, tag.begin(), tag.end());
  EXPECT_TRUE(arrives(frame));
  frame[15] = std::byte{5};
  EXPECT_FALSE(arrives(frame));
}

TEST_P(Ethernet, PacketsToTheOwnAddressComeBack) {
  open();
  EXPECT_EQ(send(one, here(), "me"), 0);
  EXPECT_TRUE(hub.seen.empty());
  turn();
  ASSERT_EQ(at_one.packets.size(), 1u);
  EXPECT_EQ(at_one.packets[0].source, here().text());
  int taken = 0;
  while (send(one, here(), "me") == 0) ++taken;
  EXPECT_EQ(taken, static_cast<int>(Stack::buffered_max));
  turn();
  EXPECT_EQ(send(one, here(), "me"), 0);
}

TEST_P(Ethernet, MulticastReachesMembers) {
  open();
  const os::SocketAddress group = at(is_ip6() ? "[ff05::4:5]:99" : "239.1.2.3:99");
  EXPECT_EQ(one.join(here().bytes(), true), -EINVAL);
  EXPECT_EQ(send(one, group, "x"), 0);
  turn();
  EXPECT_TRUE(at_two.packets.empty());
  EXPECT_EQ(two.join(group.bytes(), true), 0);
  EXPECT_EQ(one.join(group.bytes(), true), 0);
  EXPECT_EQ(send(one, group, "y"), 0);
  turn();
  ASSERT_EQ(at_two.packets.size(), 1u);
  EXPECT_EQ(at_two.packets[0].destination, group.text());
  ASSERT_EQ(at_one.packets.size(), 1u);
  EXPECT_EQ(two.frames().groups.size(), is_ip6() ? 2u : 1u);
  two.leave(group.bytes());
  EXPECT_EQ(two.frames().groups.size(), is_ip6() ? 1u : 0u);
  EXPECT_EQ(send(one, group, "z"), 0);
  turn();
  EXPECT_EQ(at_two.packets.size(), 1u);
}

TEST_P(Ethernet, FragmentsAreRefused) {
  open();
  Frame frame = a_frame();
  if (is_ip6()) {
    frame[ip_at() + 6] = std::byte{44};  // a fragment header
    EXPECT_FALSE(arrives(frame));
    return;
  }
  frame[ip_at() + 6] = std::byte{0x20};  // more fragments
  repair(frame);
  EXPECT_FALSE(arrives(frame));
  EXPECT_EQ(two.counters().fragments, 1u);
}

TEST_P(Ethernet, AWrongChecksumIsDropped) {
  open();
  Frame frame = a_frame();
  ASSERT_TRUE(arrives(frame));
  frame.back() ^= std::byte{1};
  EXPECT_FALSE(arrives(frame));
  EXPECT_EQ(two.counters().wrong_checksum, 1u);
  two.frames().trusts_checksums = true;
  EXPECT_TRUE(arrives(frame));
}

TEST_P(Ethernet, WithoutAChecksumOnlyWhereItMayBe) {
  open();
  Frame frame = a_frame();
  wire::store_big(&frame[udp_at() + 6], uint16_t{0});
  EXPECT_EQ(arrives(frame), !is_ip6());
  two.close();
  two.set_optional_checksum(true);
  ASSERT_TRUE(two.open(there().bytes()));
  EXPECT_TRUE(arrives(frame));
}

TEST_P(Ethernet, OptionalChecksumsAreNotSent) {
  one.set_optional_checksum(true);
  two.set_optional_checksum(true);
  open();
  const Frame frame = a_frame();
  EXPECT_EQ(wire::load_big<uint16_t>(&frame[udp_at() + 6]), 0);
  EXPECT_TRUE(arrives(frame));
}

TEST_P(Ethernet, EveryTruncationAndEveryByteIsSurvived) {
  open();
  const Frame frame = a_frame();
  for (size_t length = 0; length < frame.size(); ++length)
    EXPECT_FALSE(arrives(Frame(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(length))))
        << length;
  // What Ethernet padded is not shown.
  Frame padded = frame;
  padded.resize(frame.size() + 20);
  ASSERT_TRUE(arrives(padded));
  EXPECT_EQ(at_two.packets[0].bytes, "hello");
  for (size_t i = 0; i < frame.size(); ++i)
    for (unsigned bit = 0; bit < 8; ++bit) {
      Frame wrong = frame;
      wrong[i] ^= std::byte{1} << bit;
      (void)arrives(wrong);
    }
}

TEST_P(Ethernet, ImpossibleSourcesAreDropped) {
  open();
  const Frame frame = a_frame();
  const size_t source = ip_at() + (is_ip6() ? 8 : 12);
  const size_t bytes = is_ip6() ? 16 : 4;
  for (const std::string_view text :
       is_ip6()
           ? std::vector<std::string_view>{"[::]:0", "[ff02::1]:0", "[fd14::2]:0"}
           : std::vector<std::string_view>{"0.0.0.0:0", "224.0.0.1:0", "255.255.255.255:0", "10.0.0.2:0"}) {
    Frame wrong = frame;
    const Host host = host_of(at(text));
    std::copy(host.end() - static_cast<std::ptrdiff_t>(bytes), host.end(),
              wrong.begin() + static_cast<std::ptrdiff_t>(source));
    repair(wrong);
    EXPECT_FALSE(arrives(wrong)) << text;
  }
}

TEST_P(Ethernet, PacketsForOthersAreNotShown) {
  open();
  Frame frame = a_frame();
  Frame port = frame;
  port[udp_at() + 3] ^= std::byte{1};
  repair(port);
  EXPECT_FALSE(arrives(port));
  Frame mac = frame;
  mac[5] = std::byte{77};
  EXPECT_FALSE(arrives(mac));
  Frame broadcast = frame;
  std::fill_n(broadcast.begin(), 6, std::byte{0xff});
  EXPECT_EQ(arrives(broadcast), !is_ip6());  // IPv4 has broadcasts, and some send what is for one host so
}

TEST_P(Ethernet, SomebodyElseWithTheOwnAddressIsCounted) {
  open();
  Packets other;
  other.frames().attach(hub, 9);
  ASSERT_TRUE(other.open(here().bytes()));
  turn();
  EXPECT_EQ(one.counters().conflicts, 1u);
}

TEST_P(Ethernet, AFloodOfQuestionsIsAnsweredAsFarAsThereIsRoom) {
  open();
  EXPECT_EQ(send(two, nobody(), "x"), 0);
  hub.seen.clear();
  EXPECT_EQ(send(one, there(), "x"), 0);
  const Frame question = hub.seen.at(0);
  for (int i = 0; i < 100; ++i) two.frames().arrived.push_back(question);
  two.poll(at_two);
  EXPECT_GT(two.counters().control_lost, 0u);
  turn();
  EXPECT_FALSE(at_two.packets.empty());
}

TEST_P(Ethernet, RefusesWhatCannotBeSent) {
  open();
  const std::string big(one.packet_bytes_max(there().bytes()) + 1, 'x');
  EXPECT_EQ(send(one, there(), big), -EMSGSIZE);
  EXPECT_EQ(one.packet_bytes_max(there().bytes()), 1500u - (is_ip6() ? 48 : 28));
  EXPECT_EQ(send(one, at(is_ip6() ? "10.0.0.2:9" : "[fd14::2]:9"), "x"), -EINVAL);
  os::SocketAddress no_port = there();
  no_port.set_port(0);
  EXPECT_EQ(send(one, no_port, "x"), -EINVAL);
  EXPECT_EQ(send(one, at(is_ip6() ? "[::]:9" : "255.255.255.255:9"), "x"), -EACCES);
  Packets third;
  third.frames().attach(hub, 3);
  EXPECT_FALSE(third.open(os::SocketAddress::any(is_ip6() ? AF_INET6 : AF_INET).bytes()));
}

TEST_P(Ethernet, DrawsAPort) {
  one.frames().attach(hub, 1);
  os::SocketAddress address = here();
  address.set_port(0);
  ASSERT_TRUE(one.open(address.bytes()));
  EXPECT_GE(os::SocketAddress::from(one.address().data(), one.address().size())->port(), 49152);
}

TEST_P(Ethernet, TheLargestPacketArrives) {
  open();
  const std::string big(one.packet_bytes_max(there().bytes()), 'x');
  EXPECT_EQ(send(one, there(), big), 0);
  turn();
  ASSERT_EQ(at_two.packets.size(), 1u);
  EXPECT_EQ(at_two.packets[0].bytes, big);
}

}  // namespace
}  // namespace weft::link::ethernet
