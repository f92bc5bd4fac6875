// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What kernel/ and the user-space library both put on the wire is the same: each number by its name, the places of fields, the bytes of heads and
// handshakes. The virtual machine (tests/vm/kofi, "peers") shows the same end to end, where there is one.
#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_errno.h>

#include <array>
#include <cstring>
#include <map>
#include <random>
#include <string>

#include "core/atomic.hpp"
#include "link/tcp/channel.hpp"
#include "link/tcp/connection.hpp"
#include "link/tcp/handshake.hpp"
#include "os/socket_address.hpp"
#include "proto/engine/op.hpp"
#include "proto/stream/head.hpp"
#include "wire/frame.hpp"
#include "wire_values.h"

namespace weft {
namespace {

using Values = std::map<std::string, uint64_t>;

Values read(const wire_value* list) {
  Values values;
  for (; list->name != nullptr; ++list)
    EXPECT_TRUE(values.emplace(list->name, list->value).second) << list->name << " is listed twice";
  return values;
}

template <class T>
constexpr uint64_t number(T value) {
  return static_cast<uint64_t>(value);
}

// Of frames and handshakes, by the names of the kernel's headers.
Values library_values() {
  using link::tcp::Connection, link::tcp::ConnectionKind, link::tcp::HandshakeType, link::tcp::RefusalReason;
  using wire::FrameKind;
#define WEFT_PLACE(kernel, type, field) \
  { "ktcp_" #kernel "." #field, offsetof(wire::type, field) }
#define WEFT_SIZE(kernel, type) \
  { "sizeof ktcp_" #kernel, sizeof(wire::type) }
#define WEFT_SAME(name) \
  { #name, number(name) }
  return {
      {"KT_BYE", number(link::tcp::frame_bye)},
      {"KT_TAGGED", number(FrameKind::Tagged)},
      {"KT_MSG", number(FrameKind::Msg)},
      {"KT_TAGGED_ACK", number(FrameKind::TaggedAck)},
      {"KT_MSG_ACK", number(FrameKind::MsgAck)},
      {"KT_TAGGED_RTS", number(FrameKind::TaggedRts)},
      {"KT_MSG_RTS", number(FrameKind::MsgRts)},
      {"KT_CTS", number(FrameKind::Cts)},
      {"KT_SEGMENT", number(FrameKind::Segment)},
      {"KT_DONE", number(FrameKind::Done)},
      {"KT_WRITE", number(FrameKind::Write)},
      {"KT_WRITE_RTS", number(FrameKind::WriteRts)},
      {"KT_READ", number(FrameKind::Read)},
      {"KT_ATOMIC", number(FrameKind::Atomic)},
      {"KT_REPLY", number(FrameKind::Reply)},
      {"KT_PAUSE", number(FrameKind::Pause)},
      {"KT_RESUME", number(FrameKind::Resume)},
      {"KT_TAGGED_FIRST", number(FrameKind::TaggedFirst)},
      {"KT_MSG_FIRST", number(FrameKind::MsgFirst)},
      {"KT_MORE", number(FrameKind::More)},
      {"KT_HAS_B", wire::has_b},
      {"KT_HAS_DATA", wire::has_data},
      {"KT_HEAD_MIN", proto::stream::head_bytes_min},
      {"KT_HEAD_MAX", proto::stream::head_bytes_max},
      {"KT_FRAME_MAX", Connection::frame_bytes_max},
      {"KT_FRAGMENTED_MAX", Connection::fragmented_eager_bytes_max},
      {"KT_SEGMENT_MAX", Connection::segment_bytes},
      {"KT_EAGER_MAX", Connection::eager_bytes_max},
      {"KT_TARGETS_MAX", proto::rma_iov_max},
      WEFT_SIZE(rts, RtsPrefix),
      WEFT_PLACE(rts, RtsPrefix, operation),
      WEFT_PLACE(rts, RtsPrefix, total),
      WEFT_PLACE(rts, RtsPrefix, stamp),
      WEFT_PLACE(rts, RtsPrefix, segments),
      WEFT_PLACE(rts, RtsPrefix, reserved),
      WEFT_SIZE(cts, CtsPrefix),
      WEFT_PLACE(cts, CtsPrefix, operation),
      WEFT_PLACE(cts, CtsPrefix, length),
      WEFT_SIZE(rma, RmaPrefix),
      WEFT_PLACE(rma, RmaPrefix, total),
      WEFT_PLACE(rma, RmaPrefix, targets),
      WEFT_PLACE(rma, RmaPrefix, flags),
      WEFT_SIZE(target, RmaTarget),
      WEFT_PLACE(target, RmaTarget, address),
      WEFT_PLACE(target, RmaTarget, length),
      WEFT_PLACE(target, RmaTarget, key),
      WEFT_SIZE(atomic, AtomicPrefix),
      WEFT_PLACE(atomic, AtomicPrefix, datatype),
      WEFT_PLACE(atomic, AtomicPrefix, op),
      WEFT_PLACE(atomic, AtomicPrefix, kind),
      WEFT_PLACE(atomic, AtomicPrefix, targets),
      WEFT_PLACE(atomic, AtomicPrefix, bytes),
      {"KT_ATOMIC_WRITE", number(core::AtomicKind::Write)},
      {"KT_ATOMIC_FETCH", number(core::AtomicKind::Fetch)},
      {"KT_ATOMIC_COMPARE", number(core::AtomicKind::Compare)},
      {"KT_SHAKE_MIN", link::tcp::handshake_bytes_min},
      {"KT_SHAKE_DATA", link::tcp::handshake_data_max},
      {"KT_SHAKE_MAX", link::tcp::handshake_bytes_max},
      {"KT_VERSION", link::tcp::wire_version},
      {"KT_ENDPOINT_MSG", number(ConnectionKind::Msg)},
      {"KT_HELLO", number(HandshakeType::Hello)},
      {"KT_WELCOME", number(HandshakeType::Welcome)},
      {"KT_REFUSAL", number(HandshakeType::Refusal)},
      {"KT_WHY_VERSION", number(RefusalReason::Version)},
      {"KT_WHY_KIND", number(RefusalReason::Kind)},
      {"KT_WHY_MALFORMED", number(RefusalReason::Malformed)},
      {"KT_WHY_PROGRAM", number(RefusalReason::Program)},
      {"KT_WHY_RESOURCES", number(RefusalReason::Resources)},
      WEFT_SAME(FI_EOTHER),
      WEFT_SAME(FI_ETOOSMALL),
      WEFT_SAME(FI_EOPBADSTATE),
      WEFT_SAME(FI_EAVAIL),
      WEFT_SAME(FI_EBADFLAGS),
      WEFT_SAME(FI_ENOEQ),
      WEFT_SAME(FI_EDOMAIN),
      WEFT_SAME(FI_ENOCQ),
      WEFT_SAME(FI_ECRC),
      WEFT_SAME(FI_ETRUNC),
      WEFT_SAME(FI_ENOKEY),
      WEFT_SAME(FI_ENOAV),
      WEFT_SAME(FI_EOVERRUN),
      WEFT_SAME(FI_INT8),
      WEFT_SAME(FI_UINT8),
      WEFT_SAME(FI_INT16),
      WEFT_SAME(FI_UINT16),
      WEFT_SAME(FI_INT32),
      WEFT_SAME(FI_UINT32),
      WEFT_SAME(FI_INT64),
      WEFT_SAME(FI_UINT64),
      WEFT_SAME(FI_MIN),
      WEFT_SAME(FI_MAX),
      WEFT_SAME(FI_SUM),
      WEFT_SAME(FI_PROD),
      WEFT_SAME(FI_LOR),
      WEFT_SAME(FI_LAND),
      WEFT_SAME(FI_BOR),
      WEFT_SAME(FI_BAND),
      WEFT_SAME(FI_LXOR),
      WEFT_SAME(FI_BXOR),
      WEFT_SAME(FI_ATOMIC_READ),
      WEFT_SAME(FI_ATOMIC_WRITE),
      WEFT_SAME(FI_CSWAP),
      WEFT_SAME(FI_CSWAP_NE),
      WEFT_SAME(FI_CSWAP_LE),
      WEFT_SAME(FI_CSWAP_LT),
      WEFT_SAME(FI_CSWAP_GE),
      WEFT_SAME(FI_CSWAP_GT),
      WEFT_SAME(FI_MSWAP),
  };
#undef WEFT_PLACE
#undef WEFT_SIZE
#undef WEFT_SAME
}

TEST(KernelWire, EveryNumberIsTheOneOfTheLibrary) {
  Values kernel = read(kernel_values);
  std::erase_if(kernel, [](const auto& value) {
    return value.first.find("BLK_") != std::string::npos || value.first.find("kblk_") != std::string::npos;
  });
  EXPECT_EQ(kernel, library_values());
}

TEST(KernelWire, EveryNumberOfABlockDeviceIsTheOneOfTheTargetInUserSpace) {
  Values kernel = read(kernel_values);
  std::erase_if(kernel, [](const auto& value) {
    return value.first.find("BLK_") == std::string::npos && value.first.find("kblk_") == std::string::npos;
  });
  EXPECT_EQ(kernel, read(block_target_values));
}

class Random {
 public:
  uint64_t operator()(uint64_t bound) {
    return std::uniform_int_distribution<uint64_t>(0, bound - 1)(engine_);
  }
  // Zero, small, 32 bits or 64 bits: what a head writes differently.
  uint64_t field() {
    static constexpr std::array<uint64_t, 5> bounds{1, 256, 1ULL << 32, 1ULL << 33, UINT64_MAX};
    return (*this)(bounds[(*this)(bounds.size())]);
  }

 private:
  std::mt19937_64 engine_{37};
};

TEST(KernelWire, HeadsAreThoseOfTheLibraryByteForByte) {
  Random random;
  for (int round = 0; round < 20'000; ++round) {
    kernel_head head{static_cast<uint8_t>(random(22)),
                     static_cast<uint8_t>(random(4)),
                     0,
                     static_cast<uint32_t>(
                         random(2) == 0 ? random(300) : random(link::tcp::Connection::frame_bytes_max + 1)),
                     random.field(),
                     random.field()};
    const wire::FrameHead same{
        static_cast<wire::FrameKind>(head.kind), head.flags, 0, head.length, head.a, head.b};
    std::array<std::byte, proto::stream::head_bytes_max> ours{};
    std::array<uint8_t, proto::stream::head_bytes_max> theirs{};
    const size_t size = proto::stream::pack_head(same, ours.data());
    ASSERT_EQ(kernel_pack_head(theirs.data(), &head), size);
    ASSERT_EQ(std::memcmp(ours.data(), theirs.data(), size), 0)
        << "kind " << int{head.kind} << " length " << head.length;
  }
}

TEST(KernelWire, HeadsOfAnyBytesAreReadAsTheLibraryReadsThem) {
  Random random;
  size_t heads = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::array<std::byte, proto::stream::head_bytes_max> bytes{};
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random(256));
    if (random(2) == 0) bytes[7] = std::byte{0};  // the byte of an extension that has to be zero
    if (random(2) == 0) bytes[4] = bytes[5] = std::byte{0};
    const size_t left = random(bytes.size() + 1);
    wire::FrameHead ours{};
    kernel_head theirs{};
    size_t size = 0;
    const auto what = proto::stream::unpack_head(bytes.data(), left, ours, size);
    const int answer = kernel_unpack_head(reinterpret_cast<const uint8_t*>(bytes.data()), left, &theirs);
    if (what == proto::stream::Unpacked::Short) {
      ASSERT_EQ(answer, 0);
    } else if (what == proto::stream::Unpacked::Malformed ||
               ours.length > link::tcp::Connection::frame_bytes_max) {
      ASSERT_LT(answer, 0);
    } else {
      ++heads;
      ASSERT_EQ(answer, static_cast<int>(size));
      ASSERT_EQ(theirs.kind, number(ours.kind));
      ASSERT_EQ(theirs.flags, ours.flags);
      ASSERT_EQ(theirs.context, ours.context);
      ASSERT_EQ(theirs.length, ours.length);
      ASSERT_EQ(theirs.a, ours.a);
      ASSERT_EQ(theirs.b, ours.b);
    }
  }
  EXPECT_GT(heads, 10'000U);
}

using link::tcp::Handshake, link::tcp::HandshakeType, link::tcp::RefusalReason;

Handshake some_handshake(Random& random) {
  Handshake handshake;
  handshake.type = static_cast<HandshakeType>(1 + random(3));
  handshake.kind = link::tcp::ConnectionKind::Msg;
  handshake.reason = static_cast<RefusalReason>(random(8));
  std::array<uint8_t, link::tcp::handshake_data_max> data{};
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(random(256));
  handshake.set_data(data.data(), random(data.size() + 1));
  return handshake;
}

TEST(KernelWire, HandshakesAreThoseOfTheLibraryByteForByte) {
  Random random;
  for (int round = 0; round < 1'000; ++round) {
    Handshake handshake = some_handshake(random);
    const int family = random(2) == 0 ? AF_INET : AF_INET6;
    handshake.target = os::SocketAddress::loopback(family, static_cast<uint16_t>(random(65536)));
    const bool named = random(4) != 0;
    if (!named) handshake.target = {};
    std::array<std::byte, link::tcp::handshake_bytes_max> ours{};
    std::array<uint8_t, link::tcp::handshake_bytes_max> theirs{};
    const size_t size = link::tcp::pack_handshake(handshake, ours.data());
    ASSERT_EQ(
        kernel_pack_shake(theirs.data(), static_cast<uint8_t>(handshake.type),
                          static_cast<uint16_t>(handshake.reason), named ? handshake.target.get() : nullptr,
                          handshake.data.data(), handshake.data_bytes),
        size);
    ASSERT_EQ(std::memcmp(ours.data(), theirs.data(), size), 0) << "family " << family;
  }
}

TEST(KernelWire, HandshakesWithAWrongByteAreRefusedAsTheLibraryRefusesThem) {
  Random random;
  for (int round = 0; round < 20'000; ++round) {
    const Handshake handshake = some_handshake(random);
    std::array<std::byte, link::tcp::handshake_bytes_max> bytes{};
    const size_t size = link::tcp::pack_handshake(handshake, bytes.data());
    // Addresses and what is opaque to the kernel (12 to 71) stay.
    const size_t at = random(2) == 0 ? random(12) : 72 + random(8);
    bytes[at] ^= static_cast<std::byte>(1U << random(8));
    const size_t told = link::tcp::handshake_size(bytes.data());
    const int missing = kernel_shake_missing(reinterpret_cast<const uint8_t*>(bytes.data()), size);
    if (told == 0) {
      ASSERT_EQ(missing, -static_cast<int>(RefusalReason::Malformed)) << "byte " << at;
    } else if (told > size) {
      ASSERT_EQ(missing, static_cast<int>(told - size)) << "byte " << at;
    } else {
      Handshake read;
      const RefusalReason reason = link::tcp::unpack_handshake(std::span(bytes).first(told), read);
      ASSERT_EQ(missing, -static_cast<int>(reason)) << "byte " << at;
    }
  }
}

}  // namespace
}  // namespace weft
