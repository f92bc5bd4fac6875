// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Packets over real sockets: segmented sends, joined packets, plain UDP programs on the other side, path MTU, closed ports.
#include "link/udp/packets.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace weft::link::udp {
namespace {

std::vector<std::byte> loopback_address(int family, uint16_t port = 0) {
  std::vector<std::byte> bytes;
  if (family == AF_INET) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bytes.resize(sizeof address);
    std::memcpy(bytes.data(), &address, sizeof address);
  } else {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    address.sin6_addr = in6addr_loopback;
    bytes.resize(sizeof address);
    std::memcpy(bytes.data(), &address, sizeof address);
  }
  return bytes;
}

struct Taken {
  std::vector<std::string> packets;
  std::vector<std::byte> source;
  std::vector<std::byte> destination;
  void on_packet(const proto::ReceivedPacket& packet) noexcept {
    source.assign(packet.source.begin(), packet.source.end());
    destination.assign(packet.destination.begin(), packet.destination.end());
    packets.emplace_back(reinterpret_cast<const char*>(packet.bytes.data()), packet.bytes.size());
  }
};

// Until `count` packets are there, or nothing has come for a second.
void take(Packets& link, Taken& taken, size_t count) {
  while (taken.packets.size() < count) {
    pollfd waiting{link.wait_fd(), POLLIN, 0};
    if (link.poll(taken) != 0) continue;
    EXPECT_TRUE(link.arm());
    const bool came = ::poll(&waiting, 1, 1000) != 0;
    link.disarm();
    if (!came) return;
  }
}

iovec part_of(const std::string& text) { return {const_cast<char*>(text.data()), text.size()}; }

class OverFamily : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const auto own = loopback_address(GetParam());
    if (auto opened = a.open(own); !opened) GTEST_SKIP() << opened.error().why;
    ASSERT_TRUE(b.open(own));
  }
  Packets a;
  Packets b;
};

TEST_P(OverFamily, APacketArrivesAsItIsWithItsSource) {
  const std::string one = "hello, ";
  const std::string two = "world";
  const iovec parts[] = {part_of(one), part_of(two)};
  ASSERT_TRUE(a.send(b.address(), parts, 2));
  Taken taken;
  take(b, taken, 1);
  ASSERT_EQ(taken.packets.size(), 1u);
  EXPECT_EQ(taken.packets[0], "hello, world");
  EXPECT_TRUE(std::ranges::equal(taken.source, a.address()));
  EXPECT_TRUE(std::ranges::equal(taken.destination, b.address()));
}

TEST_P(OverFamily, ItCanBeSleptOnAgainAfterManyPollsWithoutASleep) {
  pollfd waiting{b.wait_fd(), POLLIN, 0};
  const std::string text = "awake?";
  const iovec part = part_of(text);
  Taken taken;
  for (int i = 0; i < 3000; ++i) EXPECT_EQ(b.poll(taken), 0);
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(b.arm());
    EXPECT_EQ(::poll(&waiting, 1, 0), 0);
    // Polls of another thread take nothing away from who sleeps.
    for (int i = 0; i < 3000; ++i) EXPECT_EQ(b.poll(taken), 0);
    ASSERT_TRUE(a.send(b.address(), &part, 1));
    EXPECT_EQ(::poll(&waiting, 1, 1000), 1);
    b.disarm();
    for (int i = 0; i < 3000; ++i) (void)b.poll(taken);
    EXPECT_EQ(taken.packets.size(), size_t(round) + 1);
    // Nobody sleeps: what comes does not touch the set.
    ASSERT_TRUE(a.send(b.address(), &part, 1));
    EXPECT_EQ(::poll(&waiting, 1, 20), 0);
    // What came meanwhile is seen by who arms.
    ASSERT_TRUE(b.arm());
    EXPECT_EQ(::poll(&waiting, 1, 1000), 1);
    b.disarm();
    take(b, taken, size_t(round) + 2);
    taken.packets.resize(size_t(round) + 1);
  }
}

TEST_P(OverFamily, EmptyPacketsArePackets) {
  ASSERT_TRUE(a.send(b.address(), nullptr, 0));
  Taken taken;
  take(b, taken, 1);
  ASSERT_EQ(taken.packets.size(), 1u);
  EXPECT_EQ(taken.packets[0], "");
}

TEST_P(OverFamily, AGsoBatchArrivesPacketByPacket) {
  for (const size_t packet : {1u, 9u, 1000u, 1400u, 8000u, 30000u}) {
    std::string bytes(packet * 20 + packet / 2, 0);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
    const std::string head = bytes.substr(0, 5);
    const std::string rest = bytes.substr(5);
    const iovec parts[] = {part_of(head), part_of(rest)};
    ASSERT_TRUE(a.send_segmented(b.address(), parts, 2, packet));
    Taken taken;
    const size_t count = (bytes.size() + packet - 1) / packet;
    take(b, taken, count);
    ASSERT_EQ(taken.packets.size(), count) << packet;
    for (size_t i = 0; i < count; ++i)
      EXPECT_EQ(taken.packets[i], bytes.substr(i * packet, packet)) << packet << ' ' << i;
  }
}

TEST_P(OverFamily, TheLargestPacketFitsAndALargerOneDoesNot) {
  const size_t most = a.packet_bytes_max(b.address());
  ASSERT_GT(most, 1000u);
  const std::string bytes(most + 1, 'x');
  const iovec fits{const_cast<char*>(bytes.data()), most};
  EXPECT_EQ(a.try_send(b.address(), &fits, 1), 0);
  const iovec above = part_of(bytes);
  EXPECT_EQ(a.try_send(b.address(), &above, 1), -EMSGSIZE);
  Taken taken;
  take(b, taken, 1);
  ASSERT_EQ(taken.packets.size(), 1u);
  EXPECT_EQ(taken.packets[0].size(), most);
}

TEST_P(OverFamily, AGsoBatchOfTooLargePacketsIsLostAndTheNextOneArrives) {
  const std::string bytes(70'000, 'x');
  const iovec large = part_of(bytes);
  EXPECT_TRUE(a.send_segmented(b.address(), &large, 1, 65'530));
  const iovec small{const_cast<char*>(bytes.data()), 5000};
  EXPECT_TRUE(a.send_segmented(b.address(), &small, 1, 1000));
  Taken taken;
  take(b, taken, 6);
  EXPECT_GE(taken.packets.size(), 5u);
  EXPECT_EQ(taken.packets.back().size(), 1000u);
}

TEST_P(OverFamily, AClosedPortDoesNotDisturbTheSocket) {
  const std::vector<std::byte> gone(b.address().begin(), b.address().end());
  b.close();
  const std::string text = "anybody?";
  const iovec part = part_of(text);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(a.send(gone, &part, 1));
  Taken taken;
  EXPECT_EQ(a.poll(taken), 0);
  ASSERT_TRUE(a.send(a.address(), &part, 1));
  take(a, taken, 1);
  EXPECT_EQ(taken.packets.size(), 1u);
}

// The kernel refuses a broadcast and an interface that does not exist. Each destination is told once, whether packets go one by one or in a batch.
TEST_P(OverFamily, WhatCannotBeSentIsTold) {
  const auto nowhere =
      os::SocketAddress::from_text(GetParam() == AF_INET ? "255.255.255.255:9" : "[fe80::9%2000000000]:9");
  ASSERT_TRUE(nowhere);
  const std::string text(3000, 'x');
  const iovec part = part_of(text);
  for (const bool batch : {false, true}) {
    for (int i = 0; i < 3; ++i)
      EXPECT_TRUE(batch ? a.send_segmented(nowhere->bytes(), &part, 1, 1000)
                        : a.send(nowhere->bytes(), &part, 1));
    int told = 0;
    for (int i = 0; i < 2; ++i)
      a.take_send_errors([&](std::span<const std::byte> place, int error) {
        EXPECT_TRUE(std::ranges::equal(place, nowhere->bytes()));
        EXPECT_NE(error, 0);
        ++told;
      });
    EXPECT_EQ(told, 1) << (batch ? "in a batch" : "one by one");
  }
  ASSERT_TRUE(a.send(a.address(), &part, 1));
  a.take_send_errors([](std::span<const std::byte>, int) { FAIL() << "that one was sent"; });
}

TEST_P(OverFamily, APlainSocketTalksToIt) {
  const int plain = ::socket(GetParam(), SOCK_DGRAM, 0);
  const auto to = a.address();
  ASSERT_EQ(
      ::sendto(plain, "plain", 5, 0, reinterpret_cast<const sockaddr*>(to.data()), socklen_t(to.size())), 5);
  Taken taken;
  take(a, taken, 1);
  ASSERT_EQ(taken.packets.size(), 1u);
  EXPECT_EQ(taken.packets[0], "plain");
  const std::string answer = "answer";
  const iovec part = part_of(answer);
  // The plain socket is bound to the wildcard, and its packets carry the loopback address.
  ASSERT_TRUE(a.send(taken.source, &part, 1));
  char buffer[16] = {};
  EXPECT_EQ(::recv(plain, buffer, sizeof buffer, 0), 6);
  EXPECT_STREQ(buffer, "answer");
  ::close(plain);
}

TEST_P(OverFamily, ManySendersAreTakenInOneGo) {
  const std::string text = "x";
  const iovec part = part_of(text);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE((i % 2 == 0 ? a : b).send(a.address(), &part, 1));
  Taken taken;
  take(a, taken, 100);
  EXPECT_EQ(taken.packets.size(), 100u);
}

INSTANTIATE_TEST_SUITE_P(Ip, OverFamily, testing::Values(AF_INET, AF_INET6),
                         [](const auto& kind) { return kind.param == AF_INET ? "v4" : "v6"; });

TEST(Packets, ASocketOnAllInterfacesHasAnAddressThatWorks) {
  sockaddr_in any{};
  any.sin_family = AF_INET;
  Packets a;
  Packets b;
  ASSERT_TRUE(a.open(std::as_bytes(std::span(&any, 1))));
  ASSERT_TRUE(b.open(std::as_bytes(std::span(&any, 1))));
  const std::string text = "here";
  const iovec part = part_of(text);
  ASSERT_TRUE(a.send(b.address(), &part, 1));
  Taken taken;
  take(b, taken, 1);
  ASSERT_EQ(taken.packets.size(), 1u);
  EXPECT_TRUE(std::ranges::equal(taken.source, a.address()));
}

// As network cards and the kernel's rxe send RoCEv2.
TEST(Packets, OverIpv6AChecksumOfZeroIsTakenOnlyWhenItIsOptional) {
  for (const bool is_optional : {false, true}) {
    Packets link;
    link.set_optional_checksum(is_optional);
    ASSERT_TRUE(link.open(loopback_address(AF_INET6)));
    const int plain = ::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    const int no = 0;
    const auto to = link.address();
    for (const int* unchecked : {&yes, &no}) {
      ASSERT_EQ(::setsockopt(plain, SOL_UDP, UDP_NO_CHECK6_TX, unchecked, sizeof *unchecked), 0);
      const char* text = unchecked == &yes ? "zero" : "sum";
      ASSERT_GT(::sendto(plain, text, std::strlen(text), 0, reinterpret_cast<const sockaddr*>(to.data()),
                         socklen_t(to.size())),
                0);
    }
    Taken taken;
    take(link, taken, is_optional ? 2 : 1);
    EXPECT_EQ(taken.packets,
              is_optional ? std::vector<std::string>({"zero", "sum"}) : std::vector<std::string>({"sum"}));
    ::close(plain);
  }
}

TEST(Packets, OtherAddressesAreRefused) {
  Packets link;
  const std::byte junk[7] = {};
  EXPECT_FALSE(link.open(junk));
}

// The ECN bits go and come, also of joined packets; who did not ask is shown none.
TEST(Packets, CongestionMarksGoAndCome) {
  for (const int family : {AF_INET, AF_INET6}) {
    Packets a, b, plain;
    for (Packets* link : {&a, &b, &plain}) ASSERT_TRUE(link->open(loopback_address(family)));
    struct Marks {
      std::vector<proto::Ecn> all;
      void on_packet(const proto::ReceivedPacket& packet) noexcept { all.push_back(packet.ecn); }
    } marks, none;
    b.set_ecn(proto::Ecn::NotCapable);
    std::vector<std::byte> bytes(3000);
    const iovec part{bytes.data(), bytes.size()};
    const auto expect = [&](const std::vector<proto::Ecn>& wanted) {
      for (int i = 0; i < 2000 && marks.all.size() < wanted.size(); ++i) {
        (void)b.poll(marks);
        pollfd waiting{b.wait_fd(), POLLIN, 0};
        (void)::poll(&waiting, 1, 1);
      }
      EXPECT_EQ(marks.all, wanted);
      marks.all.clear();
    };
    using proto::Ecn;
    for (const Ecn ecn : {Ecn::NotCapable, Ecn::Capable0, Ecn::CongestionExperienced}) {
      if (ecn != Ecn::NotCapable) a.set_ecn(ecn);
      ASSERT_TRUE(a.send(b.address(), &part, 1));
      expect({ecn});
      ASSERT_TRUE(a.send_segmented(b.address(), &part, 1, 1000));
      expect({ecn, ecn, ecn});
    }
    ASSERT_TRUE(a.send(plain.address(), &part, 1));
    for (int i = 0; i < 2000 && none.all.empty(); ++i) (void)plain.poll(none);
    ASSERT_EQ(none.all.size(), 1u);
    EXPECT_EQ(none.all[0], Ecn::NotCapable);
  }
}

}  // namespace
}  // namespace weft::link::udp
