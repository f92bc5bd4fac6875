// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Every opcode, truncation and pad; reserved and wrong values.
#include "wire/roce/packet.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

namespace weft::wire::roce {
namespace {

Packet sample(uint8_t code, Bytes payload) {
  Packet p;
  p.bth = {.opcode = code,
           .solicited = true,
           .pad = pad_of(payload.size()),
           .destination = 0x123456,
           .ack_request = true,
           .psn = 0xfedcba};
  p.xrc_srqn = 0x00abcdef;
  p.deth = {0x11223344, 0x00556677};
  p.reth = {0x0102030405060708, 0x99aabbcc, 0x01020304};
  p.atomic = {0x1112131415161718, 0x21222324, 0x3132333435363738, 0x4142434445464748};
  p.aeth = {0x1f, 0x00777777};
  p.atomic_ack = 0x5152535455565758;
  p.immediate = 0xdeadbeef;
  p.invalidate = 0xcafef00d;
  p.feth = {placement_global | placement_persistent, selects_region};
  p.payload = payload;
  return p;
}

std::vector<std::byte> encoded(const Packet& p) {
  std::vector<std::byte> out(headers_bytes_max);
  out.resize(write_headers(p, out.data()));
  out.insert(out.end(), p.payload.begin(), p.payload.end());
  out.resize(out.size() + p.bth.pad);
  return out;
}

std::vector<std::byte> noise(size_t bytes) {
  std::mt19937 random(static_cast<uint32_t>(bytes));
  std::vector<std::byte> out(bytes);
  for (std::byte& b : out) b = static_cast<std::byte>(random());
  return out;
}

// A copy that ends where the memory ends, so that a sanitizer sees one byte too far.
bool parses(Bytes bytes, Packet& out, std::unique_ptr<std::byte[]>& held) {
  held = std::make_unique<std::byte[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), held.get());
  return parse({held.get(), bytes.size()}, out);
}

TEST(RocePacket, EveryOpcodeComesBackAsItWent) {
  size_t known = 0;
  for (unsigned code = 0; code < 256; ++code) {
    const OpcodeTraits& traits = traits_of(static_cast<uint8_t>(code));
    if (!traits.exists) continue;
    ++known;
    ASSERT_LE(traits.headers_bytes, headers_bytes_max);
    for (const size_t length : {0, 1, 2, 3, 4, 5, 1024}) {
      if (!traits.has_payload && length != 0) continue;
      const auto payload = noise(length);
      const Packet in = sample(static_cast<uint8_t>(code), payload);
      const auto bytes = encoded(in);
      Packet out;
      std::unique_ptr<std::byte[]> held;
      ASSERT_TRUE(parses(bytes, out, held)) << code << " with " << length;
      EXPECT_EQ(encoded(out), bytes);
      EXPECT_EQ(out.payload.size(), length);
      EXPECT_EQ(out.bth.destination, 0x123456u);
      EXPECT_EQ(out.bth.psn, 0xfedcbau);
      if ((traits.headers & has_reth) != 0) {
        EXPECT_EQ(out.reth.length, 0x01020304u);
      }
      if ((traits.headers & has_feth) != 0) {
        EXPECT_EQ(out.feth.bits(), 0x13u);
        EXPECT_EQ(bytes[traits.headers_bytes - 17], std::byte{0x13});
      }
      if ((traits.headers & has_atomic_eth) != 0) {
        EXPECT_EQ(out.atomic.compare, 0x4142434445464748u);
      }
    }
  }
  EXPECT_EQ(known, 25u + 12 + 2 + 1 + 25 + 2);  // RC, UC, UD, CNP, XRC; SACK bitmap and window update
}

// A FLUSH of rxe (Linux 6.12): FETH, then RETH.
TEST(RocePacket, FlushOfTheKernel) {
  constexpr std::array<uint8_t, 32> captured{0x1c, 0x00, 0xff, 0xff, 0x00, 0xa1, 0xd7, 0xbc, 0x80, 0x84, 0x97,
                                             0x73, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x55, 0xa1, 0x43, 0x72,
                                             0x40, 0xa0, 0x86, 0xe8, 0x74, 0xd1, 0x00, 0x00, 0x23, 0x29};
  Packet p;
  ASSERT_TRUE(parse(std::as_bytes(std::span(captured)), p));
  EXPECT_EQ(p.operation(), Operation::Flush);
  EXPECT_EQ(p.feth.placement, placement_global);
  EXPECT_EQ(p.feth.selectivity, selects_range);
  EXPECT_EQ(p.reth.address, 0x55a1437240a0u);
  EXPECT_EQ(p.reth.key, 0x86e874d1u);
  EXPECT_EQ(p.reth.length, 9001u);
  const auto bytes = encoded(p);
  ASSERT_EQ(bytes.size(), captured.size());
  EXPECT_EQ(std::memcmp(bytes.data(), captured.data(), captured.size()), 0);
}

TEST(RocePacket, EveryTruncationAndPadIsRefusedOrConsistent) {
  for (unsigned code = 0; code < 256; ++code) {
    const OpcodeTraits& traits = traits_of(static_cast<uint8_t>(code));
    const auto payload = noise(8);
    Packet in = sample(static_cast<uint8_t>(code), traits.has_payload ? Bytes(payload) : Bytes{});
    for (uint8_t pad = 0; pad < 4; ++pad) {
      in.bth.pad = pad;
      auto bytes = traits.exists ? encoded(in) : noise(64);
      bytes[0] = static_cast<std::byte>(code);
      for (size_t length = 0; length <= bytes.size(); ++length) {
        Packet out;
        std::unique_ptr<std::byte[]> held;
        const bool parsed = parses(Bytes(bytes).first(length), out, held);
        const bool fits = traits.exists && length % 4 == 0 && length >= traits.headers_bytes;
        if (!fits) {
          EXPECT_FALSE(parsed) << code << " of " << length;
        } else if (!traits.has_payload) {
          EXPECT_EQ(parsed, length == traits.headers_bytes && pad == 0) << code << " of " << length;
        } else {
          EXPECT_EQ(parsed, length - traits.headers_bytes >= pad) << code << " of " << length;
          if (parsed) {
            EXPECT_EQ(out.payload.size(), length - traits.headers_bytes - pad);
          }
        }
      }
    }
  }
}

TEST(RocePacket, OtherVersionsAreRefused) {
  const auto payload = noise(8);
  auto bytes = encoded(sample(0x04, payload));
  Packet out;
  ASSERT_TRUE(parse(bytes, out));
  bytes[1] |= std::byte{1};
  EXPECT_FALSE(parse(bytes, out));
}

TEST(RocePacket, HeadersFollowTheOpcode) {
  EXPECT_EQ(traits_of(0x0b).headers, has_reth | has_immediate);
  EXPECT_EQ(traits_of(0x0b).headers_bytes, 32);
  EXPECT_EQ(traits_of(0x0e).headers, 0);
  EXPECT_EQ(traits_of(0x12).headers, has_aeth | has_atomic_ack);
  EXPECT_EQ(traits_of(0x65).headers, has_deth | has_immediate);
  EXPECT_EQ(traits_of(opcode(Transport::Extended, Operation::CompareSwap)).headers,
            has_xrceth | has_atomic_eth);
  EXPECT_EQ(traits_of(opcode(Transport::Extended, Operation::Acknowledge)).headers, has_aeth);
  EXPECT_FALSE(traits_of(opcode(Transport::Unreliable, Operation::ReadRequest)).exists);
  EXPECT_FALSE(traits_of(0x15).exists);
}

}  // namespace
}  // namespace weft::wire::roce
