// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// ARP and Neighbor Discovery: round trips, every truncation, what is refused.
#include "wire/neighbor.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "wire/bytes.hpp"

namespace weft::wire {
namespace {

TEST(Arp, ComesBackAndIsWhole) {
  Arp in;
  in.operation = Arp::reply;
  in.sender = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}, std::byte{5}, std::byte{6}};
  in.target_ip = {std::byte{10}, {}, {}, std::byte{1}};
  std::vector<std::byte> bytes(Arp::bytes);
  in.write(bytes.data());
  Arp out;
  ASSERT_TRUE(Arp::read(bytes, out));
  EXPECT_EQ(out.operation, Arp::reply);
  EXPECT_EQ(out.sender, in.sender);
  EXPECT_EQ(out.target_ip, in.target_ip);
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(Arp::read(
        std::vector<std::byte>(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length)), out));
  for (const size_t at : {0u, 1u, 2u, 3u, 4u, 5u, 6u}) {
    auto wrong = bytes;
    wrong[at] ^= std::byte{0x10};
    EXPECT_FALSE(Arp::read(wrong, out)) << at;
  }
}

struct Message {
  Ip6 ip;
  std::vector<std::byte> bytes;
};

Message message(bool advertisement, bool mac) {
  Message m;
  m.ip.next_header = Neighbor::protocol;
  m.ip.hops = Neighbor::hops;
  m.ip.source[15] = std::byte{1};
  m.ip.destination[15] = std::byte{2};
  Neighbor n;
  n.is_advertisement = advertisement;
  n.is_solicited = advertisement;
  n.target[0] = std::byte{0xfd};
  n.target[15] = std::byte{9};
  n.has_mac = mac;
  n.mac[5] = std::byte{7};
  m.bytes.resize(Neighbor::bytes_max);
  m.bytes.resize(n.write(m.ip, m.bytes.data()));
  return m;
}

TEST(Neighbor, ComesBack) {
  for (const bool advertisement : {false, true})
    for (const bool mac : {false, true}) {
      const Message m = message(advertisement, mac);
      Neighbor out;
      ASSERT_TRUE(Neighbor::read(m.ip, m.bytes, out));
      EXPECT_EQ(out.is_advertisement, advertisement);
      EXPECT_EQ(out.is_solicited, advertisement);
      EXPECT_FALSE(out.is_router);
      EXPECT_EQ(out.target[15], std::byte{9});
      EXPECT_EQ(out.has_mac, mac);
      EXPECT_EQ(out.mac[5], mac ? std::byte{7} : std::byte{0});
    }
}

TEST(Neighbor, EveryTruncationAndFlippedBitIsRefused) {
  Message m = message(true, true);
  Neighbor out;
  for (size_t length = 0; length < m.bytes.size(); ++length)
    EXPECT_FALSE(Neighbor::read(
        m.ip, std::vector<std::byte>(m.bytes.begin(), m.bytes.begin() + static_cast<std::ptrdiff_t>(length)),
        out));
  for (size_t bit = 0; bit < 8 * m.bytes.size(); ++bit) {
    m.bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(Neighbor::read(m.ip, m.bytes, out)) << bit;
    m.bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
  m.ip.hops = 254;
  EXPECT_FALSE(Neighbor::read(m.ip, m.bytes, out));
}

TEST(Neighbor, OptionsOfNoLengthOrTooMuchAreRefused) {
  for (const uint8_t units : {0, 2, 255}) {
    Message m = message(false, true);
    const uint16_t before = load_big<uint16_t>(&m.bytes[24]);
    m.bytes[25] = std::byte{units};
    // The checksum follows the changed word (RFC 1624).
    uint32_t sum = static_cast<uint16_t>(~load_big<uint16_t>(&m.bytes[2])) + static_cast<uint16_t>(~before) +
                   load_big<uint16_t>(&m.bytes[24]);
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    store_big(&m.bytes[2], static_cast<uint16_t>(~sum));
    Neighbor out;
    EXPECT_FALSE(Neighbor::read(m.ip, m.bytes, out)) << static_cast<int>(units);
  }
}

}  // namespace
}  // namespace weft::wire
