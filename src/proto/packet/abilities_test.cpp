// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The concepts of packet links: the least that satisfies them, and one link that has every ability.
#include "proto/packet/abilities.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <vector>

namespace weft::proto {
namespace {

// What PacketLink names, and nothing else.
struct Least {
  static constexpr size_t address_length = 4;
  static Result<void> open(std::span<const std::byte>) { return {}; }
  static void close() noexcept {}
  static std::span<const std::byte> address() noexcept { return {}; }
  static size_t packet_bytes_max(std::span<const std::byte>) noexcept { return 512; }
  static bool send(std::span<const std::byte>, const iovec*, size_t) noexcept { return true; }
  template <class Handler>
  int poll(Handler&) noexcept {
    return 0;
  }
};
static_assert(PacketLink<Least>);
static_assert(!HasSegmentationOffload<Least> && !HasSegmentedBytesMax<Least> && !HasBatches<Least> &&
              !HasZeroCopySend<Least> && !HasSendStatus<Least> && !HasPathMtu<Least> &&
              !HasTrafficClass<Least> && !HasCongestionMarks<Least> && !HasSleep<Least> &&
              !HasReceiveBuffer<Least> && !HasReceiveSlots<Least> && !HasRefusals<Least> &&
              !HasChecksum<Least> && !HasTrueSources<Least> && !HasIpAddresses<Least> &&
              !HasRunTimeTraits<Least> && !HasStatistics<Least> && !HasContext<Least> &&
              !HasWarnings<Least> && !HasHints<Least>);

// With one of them missing, or of another type.
#define WEFT_WITHOUT(Type, member) \
  struct Type : Least {            \
    member;                        \
  };                               \
  static_assert(!PacketLink<Type>)
WEFT_WITHOUT(NoAddressLength, void address_length());
WEFT_WITHOUT(OpenSaysInt, int open(std::span<const std::byte>));
WEFT_WITHOUT(CloseThrows, void close());
WEFT_WITHOUT(NoAddress, void address());
WEFT_WITHOUT(NoPacketBytes, void packet_bytes_max());
WEFT_WITHOUT(SendThrows, bool send(std::span<const std::byte>, const iovec*, size_t));
WEFT_WITHOUT(NoPoll, void poll());
#undef WEFT_WITHOUT

// A link whose device reads payload where it lies, and completes it at the next poll().
struct Most : Least {
  static constexpr size_t segments_max = 8;
  static constexpr size_t segmented_bytes_max = 9000;
  static constexpr bool checks_packets = true;
  static constexpr bool shows_addresses = true;
  static constexpr bool has_ip_addresses = true;
  static bool send_segmented(std::span<const std::byte>, const iovec*, size_t, size_t) noexcept {
    return true;
  }
  static size_t send_batch(const PacketToSend*, size_t count) noexcept { return count; }
  bool send_in_place(std::span<const std::byte>, std::span<const std::byte>, SendBuffer& buffer,
                     std::span<const std::byte>) noexcept {
    if (held.size() == 2) return false;
    buffer.hold();
    held.push_back(&buffer);
    return true;
  }
  void collect_sent() noexcept {
    for (SendBuffer* buffer : held) buffer->release();
    held.clear();
  }
  static int try_send(std::span<const std::byte>, const iovec*, size_t) noexcept { return -ENETUNREACH; }
  static void set_fragments(bool) noexcept {}
  static void set_optional_checksum(bool) noexcept {}
  static void set_traffic_class(uint8_t) noexcept {}
  static void set_ecn(Ecn) noexcept {}
  static int wait_fd() noexcept { return -1; }
  static bool arm() noexcept { return false; }
  static void disarm() noexcept {}
  static size_t receive_buffer_bytes() noexcept { return 1000; }
  static size_t receive_packet_bytes() noexcept { return 100; }
  static void watch_refusals() noexcept {}
  template <class Fn>
  static void take_refusals(Fn&&) noexcept {}
  static PacketStatistics packet_statistics() noexcept { return {}; }
  static void set_context(const void*) noexcept {}
  static void set_warning(PacketWarning, const void*) noexcept {}
  static std::string hints() { return {}; }
  std::vector<SendBuffer*> held;
};
static_assert(PacketLink<Most> && HasSegmentationOffload<Most> && HasSegmentedBytesMax<Most> &&
              HasBatches<Most> && HasZeroCopySend<Most> && HasSendStatus<Most> && HasPathMtu<Most> &&
              HasOptionalChecksum<Most> && HasTrafficClass<Most> && HasCongestionMarks<Most> &&
              HasSleep<Most> && HasReceiveBuffer<Most> && HasReceiveSlots<Most> && HasRefusals<Most> &&
              HasChecksum<Most> && HasTrueSources<Most> && HasIpAddresses<Most> && HasStatistics<Most> &&
              HasContext<Most> && HasWarnings<Most> && HasHints<Most>);

struct LearnsLater : Most {
  static PacketLinkTraits traits(PacketLinkTraits traits) noexcept {
    traits.segments_max = 1;
    return traits;
  }
};

TEST(PacketLinkTraits, ComeFromWhatTheTypeHas) {
  Least least;
  const PacketLinkTraits none = traits_of(least);
  EXPECT_FALSE(none.checks_packets || none.ip_addresses);
  EXPECT_EQ(none.segments_max, 1u);
  EXPECT_EQ(none.receive_buffer_bytes, SIZE_MAX);
  Most most;
  const PacketLinkTraits all = traits_of(most);
  EXPECT_TRUE(all.checks_packets && all.ip_addresses);
  EXPECT_EQ(all.segments_max, 8u);
  EXPECT_EQ(all.segmented_bytes_max, 9000u);
  EXPECT_EQ(all.receive_buffer_bytes, 1000u);
  EXPECT_EQ(all.receive_packet_bytes, 100u);
  LearnsLater later;
  EXPECT_EQ(traits_of(later).segments_max, 1u);
  EXPECT_EQ(traits_of(later).receive_packet_bytes, 100u);
}

TEST(SendBuffer, IsInUseUntilEveryPacketIsComplete) {
  const std::array<std::byte, 64> memory{};
  SendBuffer buffer(memory);
  Most link;
  EXPECT_FALSE(buffer.in_use());
  EXPECT_TRUE(link.send_in_place({}, {}, buffer, buffer.bytes().first(32)));
  EXPECT_TRUE(link.send_in_place({}, {}, buffer, buffer.bytes().last(32)));
  EXPECT_FALSE(link.send_in_place({}, {}, buffer, buffer.bytes()));
  EXPECT_TRUE(buffer.in_use());
  link.collect_sent();
  EXPECT_FALSE(buffer.in_use());
}

}  // namespace
}  // namespace weft::proto
