// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// ICRC: known values, each covered bit, the identification that sockets do not show.
#include "wire/roce/icrc.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "wire/bytes.hpp"
#include "wire/roce/packet.hpp"

namespace weft::wire::roce {
namespace {

struct Sample {
  std::vector<std::byte> packet;  // from the IP header on, with ICRC
  size_t headers = 0;

  Bytes ip() const { return Bytes(packet).first(headers); }
  Bytes datagram() const { return Bytes(packet).subspan(headers); }
  bool is_right() const { return icrc_is_right(ip(), datagram()); }
};

Sample sample(bool ip6, size_t payload, uint16_t identification) {
  Sample s;
  const size_t ip = ip6 ? Ip6::bytes : Ip4::bytes;
  s.headers = ip + Udp::bytes;
  const size_t udp = Udp::bytes + bth_bytes + payload + icrc_bytes;
  s.packet.resize(ip + udp);
  std::mt19937 random(static_cast<uint32_t>(payload));
  for (std::byte& b : s.packet) b = static_cast<std::byte>(random());
  if (ip6) {
    Ip6 head;
    head.traffic_class = 3;
    head.flow_label = 0x12345;
    head.payload_bytes = static_cast<uint16_t>(udp);
    head.source[15] = std::byte{1};
    head.destination[15] = std::byte{2};
    head.write(s.packet.data());
  } else {
    Ip4 head;
    head.total_bytes = static_cast<uint16_t>(ip + udp);
    head.identification = identification;
    head.source = {std::byte{10}, {}, {}, std::byte{1}};
    head.destination = {std::byte{10}, {}, {}, std::byte{2}};
    head.write(s.packet.data());
  }
  Udp{0xc001, 4791, static_cast<uint16_t>(udp), 0}.write(s.packet.data() + ip);
  Bth bth;
  bth.opcode = 0x04;
  bth.write(s.packet.data() + s.headers);
  const Bytes all(s.packet);
  const uint32_t crc = icrc(s.ip(), all.subspan(s.headers, bth_bytes + payload));
  store_big(s.packet.data() + s.packet.size() - icrc_bytes, swap_bytes(crc));
  return s;
}

TEST(RoceIcrc, CrcOfTheCheckString) {
  EXPECT_EQ(crc32(0, "123456789", 9), 0xcbf43926u);
  EXPECT_EQ(crc32(crc32(0, "1234", 4), "56789", 5), 0xcbf43926u);
}

TEST(RoceIcrc, EachCoveredBitCounts) {
  for (const bool ip6 : {false, true}) {
    Sample s = sample(ip6, 20, 0x1234);
    ASSERT_TRUE(s.is_right());
    std::vector<bool> covered(s.packet.size(), true);
    if (ip6) {
      covered[1] = covered[2] = covered[3] = covered[7] = false;
    } else {
      covered[1] = covered[8] = covered[10] = covered[11] = false;
    }
    covered[s.headers - 2] = covered[s.headers - 1] = false;  // UDP checksum
    covered[s.headers + 4] = false;                           // BTH, reserved for FECN and BECN
    for (size_t i = 0; i < s.packet.size(); ++i)
      for (int bit = 0; bit < 8; ++bit) {
        if (ip6 && i == 0) continue;  // version, and half of the traffic class
        s.packet[i] ^= static_cast<std::byte>(1 << bit);
        EXPECT_EQ(s.is_right(), !covered[i]) << (ip6 ? "ip6 " : "ip4 ") << i;
        s.packet[i] ^= static_cast<std::byte>(1 << bit);
      }
  }
}

TEST(RoceIcrc, PiecesAreAsOne) {
  const Sample s = sample(false, 100, 0);
  const Bytes packet = s.datagram().first(bth_bytes + 100);
  std::array<iovec, 4> parts;
  size_t at = 0;
  for (size_t i = 0; const size_t n : {13, 1, 0, 98}) {
    parts[i++] = {const_cast<std::byte*>(packet.data() + at), n};
    at += n;
  }
  EXPECT_EQ(icrc(s.ip(), parts.data(), parts.size()), icrc(s.ip(), packet));
}

TEST(RoceIcrc, TheIdentificationIsSolvedFor) {
  std::mt19937 random(7);
  for (const size_t payload : {0, 4, 1024, 4096, 4352, 8960, 60000})
    for (int i = 0; i < 40; ++i) {
      const auto identification = static_cast<uint16_t>(i < 2 ? -i : static_cast<int>(random()));
      Sample s = sample(false, payload, identification);
      ASSERT_TRUE(s.is_right());
      s.packet[4] = s.packet[5] = std::byte{0xa5};  // what a socket would not show
      EXPECT_EQ(solve_identification(s.ip(), s.datagram()), identification);
    }
}

TEST(RoceIcrc, AlteredPacketsHaveNoIdentification) {
  std::mt19937 random(9);
  int passed = 0;
  constexpr int tries = 20'000;
  for (int i = 0; i < tries; ++i) {
    Sample s = sample(false, 64, static_cast<uint16_t>(i));
    const size_t at = s.headers + random() % (s.packet.size() - s.headers);
    if (at == s.headers + 4) continue;
    const auto flip = static_cast<std::byte>(1 + random() % 255);
    s.packet[at] ^= flip;
    passed += solve_identification(s.ip(), s.datagram()).has_value();
  }
  EXPECT_LE(passed, 6);  // 20,000 / 65,536 are expected
}

// A FLUSH that rxe of Linux 6.12 sent, from the IP header on.
TEST(RoceIcrc, FlushOfTheKernelHasThePacketTwice) {
  constexpr std::array<uint8_t, 64> captured{
      0x45, 0x00, 0x00, 0x40, 0x3b, 0xb5, 0x40, 0x00, 0x40, 0x11, 0xea, 0xd9, 0x0a, 0x0e, 0x00, 0x01,
      0x0a, 0x0e, 0x00, 0x02, 0xe2, 0xf9, 0x12, 0xb7, 0x00, 0x2c, 0x00, 0x00, 0x1c, 0x00, 0xff, 0xff,
      0x00, 0xa1, 0xd7, 0xbc, 0x80, 0x84, 0x97, 0x73, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x55, 0xa1,
      0x43, 0x72, 0x40, 0xa0, 0x86, 0xe8, 0x74, 0xd1, 0x00, 0x00, 0x23, 0x29, 0x45, 0xea, 0x55, 0xee};
  const Bytes from = std::as_bytes(std::span(captured));
  Sample s{{from.begin(), from.end()}, Ip4::bytes + Udp::bytes};
  EXPECT_FALSE(s.is_right());
  EXPECT_FALSE(solve_identification(s.ip(), s.datagram()));
  EXPECT_TRUE(is_flush_of_rxe(s.ip(), s.datagram(), true));
  EXPECT_TRUE(is_flush_of_rxe(s.ip(), s.datagram(), false));
  s.packet[4] = s.packet[5] = std::byte{0};
  EXPECT_FALSE(is_flush_of_rxe(s.ip(), s.datagram(), true));
  EXPECT_TRUE(is_flush_of_rxe(s.ip(), s.datagram(), false));
  for (size_t at = s.headers; at < s.packet.size(); ++at) {
    if (at == s.headers + 4) continue;  // the ICRC does not cover it, but the second copy does
    s.packet[at] ^= std::byte{1};
    EXPECT_FALSE(is_flush_of_rxe(s.ip(), s.datagram(), false)) << at;
    s.packet[at] ^= std::byte{1};
  }
  // With the right ICRC it is none, and no other packet is one.
  const Bytes packet = s.datagram().first(s.datagram().size() - icrc_bytes);
  const uint32_t right = icrc(s.ip(), packet);
  store_big(s.packet.data() + s.packet.size() - icrc_bytes, swap_bytes(right));
  EXPECT_TRUE(s.is_right());
  EXPECT_FALSE(is_flush_of_rxe(s.ip(), s.datagram(), true));
  s.packet[s.headers] = std::byte{0x1d};
  store_big(s.packet.data() + s.packet.size() - icrc_bytes,
            swap_bytes(icrc_of_rxe_flush(icrc(s.ip(), packet), packet)));
  EXPECT_FALSE(is_flush_of_rxe(s.ip(), s.datagram(), true));
  for (size_t length = 0; length < bth_bytes + icrc_bytes; ++length)
    EXPECT_FALSE(is_flush_of_rxe(s.ip(), s.datagram().first(length), true));
}

TEST(RoceIcrc, TooShortIsWrong) {
  const Sample s = sample(false, 0, 0);
  for (size_t length = 0; length < bth_bytes + icrc_bytes; ++length) {
    EXPECT_FALSE(icrc_is_right(s.ip(), s.datagram().first(length)));
    EXPECT_FALSE(solve_identification(s.ip(), s.datagram().first(length)));
  }
  EXPECT_FALSE(icrc_is_right({}, s.datagram()));
}

}  // namespace
}  // namespace weft::wire::roce
